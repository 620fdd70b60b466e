"""The timelines of warps that a session holds, launch by launch, and where their cycles went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tkdebug.errors import Frame
from tkdebug.timelines.records import WarpTimeline

if TYPE_CHECKING:
    from tkdebug.instrument.session import Session

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class LineCycles:
    """What the warps of a launch spent at one line.

    Attributes:
        frame: of the line; None before the first site.
        cycles: of all warps, from an op of that line to the next site.
        visits: how often a warp came by.
    """

    frame: Frame | None
    cycles: int
    visits: int


@dataclass(frozen=True, slots=True)
class LaunchTimeline:
    """The warps of one launch.

    Attributes:
        process: that launched it.
        start_ns: when the first of its warps began, by the GPU's global timer.
        ns_per_cycle: of the multiprocessors' clock, by all warps together.
    """

    process: int
    launch_id: int
    kernel: str
    warps: tuple[WarpTimeline, ...]
    start_ns: int
    ns_per_cycle: float

    def lines(self) -> Sequence[LineCycles]:
        """Where its cycles went, the most first."""
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
    def lost(self) -> int:
        """Marks for which there was no room."""
        return sum(warp.lost for warp in self.warps)


def recorded_timelines(session: Session) -> list[LaunchTimeline]:
    """The launches that have timelines, in order."""
    found: dict[tuple[int, int], list[WarpTimeline]] = defaultdict(list)
    since = 0
    while page := session.records(WarpTimeline, since, limit=_PAGE):
        for one in page:
            found[one.process, one.event.launch_id].append(one.event)
        since = page[-1].seq
    return [_launch(process, warps) for (process, _), warps in found.items()]


def _launch(process: int, warps: Sequence[WarpTimeline]) -> LaunchTimeline:
    # The timer goes on in steps of up to a microsecond: all warps together have less of an error.
    cycles = sum(warp.cycles for warp in warps)
    lasted_ns = sum(max(0, warp.end_ns - warp.start_ns) for warp in warps)
    return LaunchTimeline(
        process,
        warps[0].launch_id,
        warps[0].kernel,
        tuple(warps),
        min(warp.start_ns for warp in warps),
        lasted_ns / cycles if cycles else 0.0,
    )
