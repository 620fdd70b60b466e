"""The timelines of warps that a session holds, launch by launch, and where their cycles went."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tkdebug.errors import Frame
from tkdebug.timelines import WarpTimeline

if TYPE_CHECKING:
    from tkdebug.instrument.records import Launch
    from tkdebug.instrument.session import Session

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class LineCycles:
    """The cycles that the warps of a launch spent at one line.

    Attributes:
        frame: the frame of the line; None before the first site.
        cycles: the cycles of all warps, from an op of that line to the next site.
        visits: the number of visits of the line, by all warps.
    """

    frame: Frame | None
    cycles: int
    visits: int


@dataclass(frozen=True, slots=True)
class KernelParts:
    """The three parts of a kernel's time, which add up to it.

    Attributes:
        kernel_ns: the kernel's time by CUPTI.
        warp_ns: the time from a warp's beginning to its end: the mean over warps with timelines.
        others_ns: the time from the first warp's beginning to the last one's end, less `warp_ns`.
        outside_ns: the rest, before the first of these warps and after the last one.
    """

    kernel_ns: int
    warp_ns: float
    others_ns: float
    outside_ns: int


@dataclass(frozen=True, slots=True)
class LaunchTimeline:
    """The warps of one launch.

    Attributes:
        process: the process that launched it.
        start_ns: the begin of the first of its warps, by the GPU's global timer.
        ns_per_cycle: the length of a cycle of the multiprocessors' clock, by all warps together.
        kernel_ns: the kernel's time by CUPTI; None if CUPTI did not time this launch.
    """

    process: int
    launch_id: int
    kernel: str
    warps: tuple[WarpTimeline, ...]
    start_ns: int
    ns_per_cycle: float
    kernel_ns: int | None = None

    def lines(self) -> Sequence[LineCycles]:
        """Return the cycles by line, the most first."""
        cycles: dict[Frame | None, int] = defaultdict(int)
        visits: dict[Frame | None, int] = defaultdict(int)
        for warp in self.warps:
            for span in warp.spans():
                frames = () if span.site is None else span.site.frames
                frame = frames[-1] if frames else None
                cycles[frame] += span.cycles
                visits[frame] += 1
        found = [LineCycles(frame, count, visits[frame]) for frame, count in cycles.items()]
        return sorted(found, key=lambda one: -one.cycles)

    @property
    def programs(self) -> list[int]:
        """Return the numbers in the grid of the programs that have timelines."""
        return sorted({warp.program for warp in self.warps})

    @property
    def has_all_programs(self) -> bool:
        """Whether every program of the grid has a timeline."""
        return len(self.programs) == math.prod(self.warps[0].grid)

    def parts(self) -> KernelParts | None:
        """Return the parts of the kernel's time.

        None if CUPTI did not time the launch, or if its time is shorter than the span of the warps:
        the GPU's timer goes on in steps.
        """
        span_ns = max(warp.end_ns for warp in self.warps) - self.start_ns
        if self.kernel_ns is None or not 0 < span_ns <= self.kernel_ns:
            return None
        warp_ns = sum(warp.cycles for warp in self.warps) / len(self.warps) * self.ns_per_cycle
        outside_ns = self.kernel_ns - span_ns
        return KernelParts(self.kernel_ns, warp_ns, max(0.0, span_ns - warp_ns), outside_ns)

    @property
    def lost(self) -> int:
        """The number of marks for which there was no room."""
        return sum(warp.lost for warp in self.warps)


def recorded_timelines(session: Session) -> list[LaunchTimeline]:
    """The launches that have timelines, in order."""
    found: dict[tuple[int, int], list[WarpTimeline]] = defaultdict(list)
    since = 0
    while page := session.records(WarpTimeline, since, limit=_PAGE):
        for one in page:
            found[one.process, one.event.launch_id].append(one.event)
        since = page[-1].seq
    return [
        _timeline(process, warps, session.launch_of(process, launch_id))
        for (process, launch_id), warps in found.items()
    ]


def launch_timeline(session: Session, launch: Launch) -> LaunchTimeline | None:
    """The timelines of one launch, or None if it has none."""
    warps, since = [], 0
    fields = {"process": launch.process, "launch_id": launch.id}
    while page := session.records(WarpTimeline, since, limit=_PAGE, **fields):
        warps += [one.event for one in page]
        since = page[-1].seq
    return _timeline(launch.process, warps, launch) if warps else None


def _timeline(process: int, warps: Sequence[WarpTimeline], launch: Launch | None) -> LaunchTimeline:
    # The timer goes on in steps of up to a microsecond: all warps together have less of an error.
    cycles = sum(warp.cycles for warp in warps)
    lasted_ns = sum(max(0, warp.end_ns - warp.start_ns) for warp in warps)
    is_timed = launch is not None and launch.time_source == "cupti"
    return LaunchTimeline(
        process,
        warps[0].launch_id,
        warps[0].kernel,
        tuple(warps),
        min(warp.start_ns for warp in warps),
        lasted_ns / cycles if cycles else 0.0,
        launch.duration_ns if launch is not None and is_timed else None,
    )
