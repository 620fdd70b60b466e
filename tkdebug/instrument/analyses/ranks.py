"""The ranks of a distributed run side by side: who is slowest, how far kernels spread, the skew.

Ranks of one host share a session; those of several hosts have one each, in one folder. Launches are
matched by kernel and order: the nth launch of a kernel on each rank is taken to be the same step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tkdebug.errors import UsageError
from tkdebug.instrument.session import Session

_PAGE = 10_000
# Launches of one kernel and rank that are matched with those of other ranks.
_MOST_MATCHED = 100_000


@dataclass(frozen=True, slots=True)
class RankTotal:
    """One rank.

    Attributes:
        total_ns: the time of its launches that were timed.
        ended: whether its session has an end; a rank that was killed has none.
    """

    rank: int
    host: str
    launches: int
    total_ns: int
    ended: bool


@dataclass(frozen=True, slots=True)
class KernelSpread:
    """One kernel on all ranks.

    Attributes:
        means_ns: mean time of a launch by rank, of ranks that timed some.
        launches: the number of launches by rank.
        skew_ns: the median, over launches that all ranks have, of the time from the first rank's
            begin to the last one's; None if the ranks do not share a host's clock, or nothing is
            matched.
    """

    kernel: str
    means_ns: dict[int, float]
    launches: dict[int, int]
    skew_ns: float | None

    @property
    def slowest(self) -> int:
        """The rank whose launches take longest."""
        return max(self.means_ns, key=lambda rank: self.means_ns[rank])

    @property
    def spread(self) -> float:
        """Mean time on the slowest rank over that on the fastest."""
        fastest = min(self.means_ns.values())
        return self.means_ns[self.slowest] / fastest if fastest else 1.0


@dataclass(frozen=True, slots=True)
class Ranks:
    """All ranks of a run."""

    totals: tuple[RankTotal, ...]
    kernels: tuple[KernelSpread, ...]


@dataclass(slots=True)
class _Times:
    durations_ns: list[int] = field(default_factory=list)
    starts_ns: list[int] = field(default_factory=list)
    launches: int = 0


def sessions_in(folder: Path) -> tuple[Path, ...]:
    """The recorded runs of a folder, by name.

    Raises:
        UsageError: there is no run.
    """
    found = tuple(sorted(folder.glob("*.tkd")))
    if not found:
        raise UsageError(f"{folder}: a folder without recorded runs (*.tkd)")
    return found


def compare_ranks(sessions: Sequence[Session]) -> Ranks:
    """Put the ranks of some sessions side by side.

    Raises:
        UsageError: two sessions have the same rank, so they are of different runs.
    """
    times: dict[int, dict[str, _Times]] = {}
    hosts: dict[int, str] = {}
    ended: dict[int, bool] = {}
    files: dict[int, Path] = {}
    for session in sessions:
        run = session.run()
        for rank in _read(session, times):
            other = files.setdefault(rank, session.path)
            if other != session.path:
                raise UsageError(
                    f"{session.path}: has launches of rank {rank}, as {other.name} has; put the "
                    "ranks of one run alone into a folder"
                )
            hosts[rank] = run.host
            ended[rank] = run.end_ns is not None
    one_clock = len(set(hosts.values())) == 1
    totals = tuple(
        RankTotal(
            rank,
            hosts[rank],
            sum(known.launches for known in kernels.values()),
            sum(sum(known.durations_ns) for known in kernels.values()),
            ended[rank],
        )
        for rank, kernels in sorted(times.items())
    )
    names = dict.fromkeys(name for kernels in times.values() for name in kernels)
    spreads = [_spread(name, times, one_clock) for name in names]
    spreads.sort(key=lambda one: -sum(one.means_ns[r] * one.launches[r] for r in one.means_ns))
    return Ranks(totals, tuple(spreads))


def _read(session: Session, times: dict[int, dict[str, _Times]]) -> Iterable[int]:
    found: set[int] = set()
    after = 0
    while page := session.launches_in_order(after, _PAGE):
        for launch in page:
            found.add(launch.rank)
            known = times.setdefault(launch.rank, {}).setdefault(launch.kernel, _Times())
            known.launches += 1
            if launch.duration_ns is not None:
                known.durations_ns.append(launch.duration_ns)
            if len(known.starts_ns) < _MOST_MATCHED:
                known.starts_ns.append(launch.device_start_ns or launch.start_ns)
        after = page[-1].seq
    return found


def _spread(kernel: str, times: dict[int, dict[str, _Times]], one_clock: bool) -> KernelSpread:
    by_rank = {rank: kernels[kernel] for rank, kernels in times.items() if kernel in kernels}
    means = {
        rank: sum(known.durations_ns) / len(known.durations_ns)
        for rank, known in sorted(by_rank.items())
        if known.durations_ns
    }
    skew = None
    if one_clock and len(by_rank) == len(times) > 1:
        steps = zip(*(known.starts_ns for known in by_rank.values()), strict=False)
        skew = median([max(starts) - min(starts) for starts in steps])
    counts = {rank: known.launches for rank, known in sorted(by_rank.items())}
    return KernelSpread(kernel, means, counts, skew)
