"""Watched values of two runs compared, such as of one that was native and one that was interpreted.

Values are matched by variable, by the how manieth launch that shows it, program and iteration.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tkdebug.errors import Frame
from tkdebug.instrument.session import Session
from tkdebug.instrument.watched_values import WatchedName, watched_names
from tkdebug.watches.records import WatchedValue

_Moment = tuple[int, tuple[int, int, int], int]


@dataclass(frozen=True, slots=True)
class WatchedChange:
    """A variable that both runs watched.

    Attributes:
        compared: values that both have.
        different: how many of them differ at all in what is kept of them.
        largest: the largest difference of minimum, maximum and mean, over the largest magnitude of
            the value; infinite where there are NaNs or infinities in one run alone.
        before: the first value that differs so; None where none does.
        after: the same in the later run.
    """

    kernel: str
    name: str
    frames: tuple[Frame, ...]
    compared: int
    different: int
    largest: float
    before: WatchedValue | None
    after: WatchedValue | None


def watched_changes(before: Session, after: Session) -> tuple[WatchedChange, ...]:
    """The variables that both runs watched, by line."""
    old = {_key(name): name for name in watched_names(before)}
    return tuple(
        _change(old[_key(name)], name) for name in watched_names(after) if _key(name) in old
    )


def _key(name: WatchedName) -> tuple[object, ...]:
    return name.watch, name.kernel, name.type, tuple(frame.line for frame in name.frames)


def _change(before: WatchedName, after: WatchedName) -> WatchedChange:
    old, new = _by_moment(before), _by_moment(after)
    common = [moment for moment in new if moment in old]
    different = [moment for moment in common if not _same(old[moment], new[moment])]
    sizes = {moment: _difference(old[moment], new[moment]) for moment in different}
    largest = max(sizes.values(), default=0.0)
    first = next((moment for moment in different if sizes[moment] == largest), None)
    return WatchedChange(
        after.kernel,
        after.name,
        after.frames,
        len(common),
        len(different),
        largest,
        None if first is None else old[first],
        None if first is None else new[first],
    )


def _by_moment(name: WatchedName) -> Mapping[_Moment, WatchedValue]:
    launches: dict[object, int] = {}
    found = {}
    for row in name.values:
        value = row.event
        launch = launches.setdefault((row.rank, row.process, value.launch_id), len(launches))
        found[launch, value.program_id, value.iteration] = value
    return found


def _numbers(value: WatchedValue) -> Iterator[float]:
    yield from (value.minimum, value.maximum, value.mean)


def _same(a: WatchedValue, b: WatchedValue) -> bool:
    counts = (a.nan, a.inf, a.zeros, a.histogram) == (b.nan, b.inf, b.zeros, b.histogram)
    # Texts, so that NaN is equal to itself.
    return counts and [*map(repr, _numbers(a))] == [*map(repr, _numbers(b))] and a.tile == b.tile


def _difference(a: WatchedValue, b: WatchedValue) -> float:
    if (a.nan, a.inf) != (b.nan, b.inf):
        return math.inf
    pairs = [pair for pair in zip(_numbers(a), _numbers(b), strict=True) if all(map(_finite, pair))]
    if a.tile and b.tile and a.shape == b.shape:
        pairs += [p for p in zip(a.values(), b.values(), strict=True) if all(map(_finite, p))]
    largest = max((abs(number) for pair in pairs for number in pair), default=0.0)
    return max((abs(x - y) for x, y in pairs), default=0.0) / largest if largest else 0.0


def _finite(number: float) -> bool:
    return math.isfinite(number)
