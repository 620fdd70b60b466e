"""Watched values of two runs compared, such as of one that was native and one that was interpreted.

Values are matched by variable, by the how manieth launch that shows it, program and iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tkdebug.errors import Frame
from tkdebug.instrument.analyses.watched_values import WatchedName, watched_names
from tkdebug.instrument.session import Session
from tkdebug.watches.differences import difference, same_value
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
    different = [moment for moment in common if not same_value(old[moment], new[moment])]
    sizes = {moment: difference(old[moment], new[moment]) for moment in different}
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
