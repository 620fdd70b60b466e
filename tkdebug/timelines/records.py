"""What a session keeps of a warp's timeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from tkdebug.errors import Frame
from tkdebug.records.storage import REPEATED, SHORT, stored

_CLOCK_BITS = 32


@dataclass(frozen=True, slots=True)
class ClockSite:
    """A place in a kernel where the clock is read: right before an op.

    Attributes:
        op: name of the op.
        loops: how many loops it is in.
        frames: call chain of its line, outermost first.
    """

    op: str
    loops: int
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time between two readings of the clock.

    Attributes:
        site: where it began; None before the first site.
        start_cycles: since the warp began.
        cycles: how long it lasted.
    """

    site: ClockSite | None
    start_cycles: int
    cycles: int


@stored("warp_timelines", indices=("launch_id",))
@dataclass(frozen=True, slots=True)
class WarpTimeline:
    """When one warp of one program came by at each site.

    Attributes:
        launch_id: the launch's number in its process.
        program: number in the grid, x fastest.
        warp: number in the program.
        sm: the multiprocessor that it ran on.
        start_ns: when it began, by the GPU's global timer, which goes on in steps.
        end_ns: when it ended.
        start_clock: lower 32 bits of the multiprocessor's clock, in cycles, when it began.
        end_clock: the same at its end.
        sites: those of the kernel.
        marks: (lower 32 bits of the clock, number of the site), in order.
        lost: marks for which there was no room.
    """

    kernel: Annotated[str, SHORT]
    launch_id: int
    grid: tuple[int, int, int]
    program: int
    warp: int
    sm: int
    start_ns: int
    end_ns: int
    start_clock: int
    end_clock: int
    sites: Annotated[tuple[ClockSite, ...], REPEATED]
    marks: tuple[tuple[int, int], ...]
    lost: int

    @property
    def cycles(self) -> int:
        """From its beginning to its end."""
        return _since(self.start_clock, self.end_clock)

    def spans(self) -> Iterator[Span]:
        """The stretches that it is made of, which have no gaps; up to the first mark lost."""
        site, begin = None, 0
        for clock, number in self.marks:
            now = _since(self.start_clock, clock)
            if now > begin or site is not None:
                yield Span(site, begin, now - begin)
            site, begin = (self.sites[number] if number < len(self.sites) else None), now
        if not self.lost:
            yield Span(site, begin, self.cycles - begin)


def _since(start: int, end: int) -> int:
    """Cycles between two readings less than 2**32 apart."""
    return (end - start) % (1 << _CLOCK_BITS)
