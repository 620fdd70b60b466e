"""Whether a kernel takes another time in a later run: from repeated launches, with an interval.

The ratio is that of geometric means; the interval is Welch's, of logarithms. Launches of one run
share its clocks and its machine, so two runs made one after the other on a quiet machine are meant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tkdebug.instrument.session import Session

# Fewer launches say nothing of how much times vary.
LEAST_LAUNCHES = 5
_MOST_LAUNCHES = 20_000
# Two-sided, of a normal distribution: 99 %.
_Z = 2.5758293035489
CONFIDENCE_PERCENT = 99
_PAGE = 10_000

Verdict = Literal["slower", "faster", "same", "unknown"]


@dataclass(frozen=True, slots=True)
class TimeChange:
    """One kernel's times in two runs.

    Attributes:
        ratio: later over earlier.
        low: of the confidence interval of `ratio`.
        high: alike.
        launches: of the earlier and the later run that were timed.
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


def time_changes(before: Session, after: Session) -> Mapping[str, TimeChange]:
    """By kernel that both runs have timed."""
    old, new = _logarithms(before), _logarithms(after)
    return {kernel: _change(old[kernel], new[kernel]) for kernel in new if kernel in old}


def _logarithms(session: Session) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    after = 0
    while page := session.launches_in_order(after, _PAGE):
        for launch in page:
            known = found.setdefault(launch.kernel, [])
            if launch.duration_ns and len(known) < _MOST_LAUNCHES:
                known.append(math.log(launch.duration_ns))
        after = page[-1].seq
    return {kernel: times for kernel, times in found.items() if times}


def _change(old: Sequence[float], new: Sequence[float]) -> TimeChange:
    difference = _mean(new) - _mean(old)
    launches = len(old), len(new)
    if min(launches) < 2:
        return TimeChange(math.exp(difference), 0.0, math.inf, launches)
    parts = [_variance(times) / len(times) for times in (old, new)]
    error = math.sqrt(sum(parts))
    if not error:
        return TimeChange(
            math.exp(difference), math.exp(difference), math.exp(difference), launches
        )
    weights = sum(
        part**2 / (count - 1) for part, count in zip(parts, launches, strict=True) if part
    )
    reach = student_quantile(sum(parts) ** 2 / weights) * error
    low, high = math.exp(difference - reach), math.exp(difference + reach)
    return TimeChange(math.exp(difference), low, high, launches)


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
