"""Whether a kernel takes another time in a later run: from repeated launches, with an interval.

Launches that are alike are compared: on tensors of the same shapes, timed in the same way. The
ratio is that of geometric means; the interval is Welch's, of logarithms, over all kinds of launches
together. Launches of one run share its clocks and its machine, so two runs made one after the other
on a quiet machine are meant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tkdebug.instrument.session import Session
from tkdebug.records.events import ArgumentInfo

# Fewer launches say nothing of how much times vary.
LEAST_LAUNCHES = 5
_MOST_LAUNCHES = 20_000
_LEAST_OF_KIND = 2
# Two-sided, of a normal distribution: 99 %.
_Z = 2.5758293035489
CONFIDENCE_PERCENT = 99
# How launches are timed; what is only known to be at most so long is not compared.
_TIMED = ("cupti", "events", "host")

Verdict = Literal["slower", "faster", "same", "unknown"]


@dataclass(frozen=True, slots=True)
class TimeChange:
    """One kernel's times in two runs.

    Attributes:
        ratio: later over earlier.
        low: of the confidence interval of `ratio`.
        high: alike.
        launches: of the earlier and the later run that are alike.
    """

    ratio: float
    low: float
    high: float
    launches: tuple[int, int]

    @property
    def verdict(self) -> Verdict:
        """Slower or faster where the interval leaves out 1."""
        if min(self.launches) < LEAST_LAUNCHES:
            return "unknown"
        if self.low > 1:
            return "slower"
        return "faster" if self.high < 1 else "same"


# Of a kind of launches: how they were timed, and the shapes of their tensors.
_Kind = tuple[str, tuple[tuple[int, ...], ...]]
_Times = dict[_Kind, list[float]]


def time_changes(before: Session, after: Session) -> Mapping[str, TimeChange]:
    """By kernel of which both runs have timed launches that are alike, at least two of a kind."""
    old, new = _logarithms(before), _logarithms(after)
    changes = {kernel: _change(old[kernel], new[kernel]) for kernel in new if kernel in old}
    return {kernel: change for kernel, change in changes.items() if change is not None}


def _logarithms(session: Session) -> dict[str, _Times]:
    found: dict[str, _Times] = {}
    counts: dict[str, int] = {}
    shapes = _Shapes()
    names = ("kernel", "duration_ns", "time_source", "arguments")
    for kernel, duration_ns, source, arguments in session.launch_fields(names):
        assert isinstance(kernel, str)
        known = found.setdefault(kernel, {})
        number = counts[kernel] = counts.get(kernel, 0) + 1
        if number <= _MOST_LAUNCHES and source in _TIMED and duration_ns:
            assert isinstance(duration_ns, int)
            assert isinstance(arguments, tuple)
            kind = str(source), shapes.of(arguments)
            known.setdefault(kind, []).append(math.log(duration_ns))
    return found


class _Shapes:
    """The shapes of a launch's tensors, worked out once for those that many launches share."""

    def __init__(self) -> None:
        # By identity, which lasts because the arguments are kept.
        self._known: dict[int, tuple[tuple[ArgumentInfo, ...], tuple[tuple[int, ...], ...]]] = {}

    def of(self, arguments: tuple[ArgumentInfo, ...]) -> tuple[tuple[int, ...], ...]:
        """In the order of the arguments."""
        found = self._known.get(id(arguments))
        if found is None:
            shapes = tuple(one.shape for one in arguments if one.shape is not None)
            if len(self._known) >= _MOST_LAUNCHES:
                self._known.clear()
            found = self._known[id(arguments)] = arguments, shapes
        return found[1]


def _change(old: _Times, new: _Times) -> TimeChange | None:
    """Differences of the kinds that both have, weighed by how much their launches tell."""
    kinds = [k for k in new if k in old and min(len(old[k]), len(new[k])) >= _LEAST_OF_KIND]
    if not kinds:
        return None
    pairs = [(old[kind], new[kind]) for kind in kinds]
    launches = sum(len(one) for one, _ in pairs), sum(len(other) for _, other in pairs)
    weights = [len(one) * len(other) / (len(one) + len(other)) for one, other in pairs]
    weights = [weight / sum(weights) for weight in weights]
    difference = math.fsum(
        weight * (_mean(later) - _mean(earlier))
        for weight, (earlier, later) in zip(weights, pairs, strict=True)
    )
    # The square of each mean's error, and how many launches it is from.
    parts = [
        (weight**2 * _variance(times) / len(times), len(times))
        for weight, pair in zip(weights, pairs, strict=True)
        for times in pair
    ]
    squared = math.fsum(part for part, _ in parts)
    reach = 0.0
    if squared:
        freedom = squared**2 / math.fsum(part**2 / (count - 1) for part, count in parts)
        reach = student_quantile(freedom) * math.sqrt(squared)
    ratio, low, high = (math.exp(difference + d) for d in (0.0, -reach, reach))
    return TimeChange(ratio, low, high, launches)


def student_quantile(freedom: float) -> float:
    """The 99.5 % quantile of Student's distribution (Abramowitz and Stegun, 26.7.5)."""
    z = _Z
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
