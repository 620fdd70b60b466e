"""Timelines of warps: which source line a warp was at, by the clock of its multiprocessor.

Users request them by `KERNEL[@PROGRAMS]`; a session keeps a record of each warp.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from tkdebug.errors import Frame, UsageError
from tkdebug.records.storage import REPEATED, SHORT, stored

_CLOCK_BITS = 32


@dataclass(frozen=True, slots=True)
class ClockSite:
    """A place in a kernel where the clock is read: right before an op.

    Attributes:
        op: name of the op.
        loops: the number of loops around it.
        frames: call chain of its line, outermost first.
    """

    op: str
    loops: int
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time between two readings of the clock.

    Attributes:
        site: the site at its begin; None before the first site.
        start_cycles: the begin of the span, since the warp began.
        cycles: the length of the span.
    """

    site: ClockSite | None
    start_cycles: int
    cycles: int


@stored("warp_timelines", indices=("launch_id",))
@dataclass(frozen=True, slots=True)
class WarpTimeline:
    """The times at which one warp of one program came by at each site.

    Attributes:
        launch_id: the launch's number in its process.
        program: number in the grid, x fastest.
        warp: number in the program.
        sm: the multiprocessor that it ran on.
        start_ns: its begin, by the GPU's global timer, which goes on in steps.
        end_ns: its end, by the same timer.
        start_clock: lower 32 bits of the multiprocessor's clock, in cycles, when it began.
        end_clock: the clock at its end.
        sites: the sites of the kernel.
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
        """Cycles from its beginning to its end."""
        return _since(self.start_clock, self.end_clock)

    def spans(self) -> Iterator[Span]:
        """Yield the spans of the warp's time in order, without gaps, up to the first lost mark."""
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


MOST_PROGRAMS = 64
_PLACE = re.compile(r"(?P<first>[0-9]{1,9})(?::(?P<end>[0-9]{1,9}))?")


@dataclass(frozen=True, slots=True)
class TimelineRequest:
    """One request.

    Attributes:
        kernel: pattern of the kernel's name.
        programs: numbers of programs in the grid, x fastest.
    """

    kernel: str
    programs: tuple[int, ...]

    @property
    def text(self) -> str:
        """The request as users write it."""
        return f"{self.kernel}@{','.join(map(str, self.programs))}"


def read_request(text: str) -> TimelineRequest:
    """Read a request such as `matmul`, `matmul@0:4,17`; program 0 by default.

    Raises:
        UsageError: the text cannot be read, or asks for more programs than fit.
    """
    kernel, at, places = text.partition("@")
    if not kernel:
        raise UsageError(
            f"timeline {text!r}: no kernel; expected KERNEL[@PROGRAMS], as in k@0:4,17"
        )
    programs: dict[int, None] = {}
    for place in places.split(",") if at else ("0",):
        found = _PLACE.fullmatch(place.strip())
        if found is None:
            raise UsageError(
                f"timeline {text!r}: {place!r} is not a program; expected numbers and ranges, "
                "as in k@0:4,17"
            )
        first = int(found["first"])
        end = first + 1 if found["end"] is None else int(found["end"])
        if end <= first:
            raise UsageError(f"timeline {text!r}: {place!r} has no program in it")
        if end - first + len(programs) > MOST_PROGRAMS:
            raise UsageError(f"timeline {text!r}: more than {MOST_PROGRAMS} programs; choose fewer")
        programs.update(dict.fromkeys(range(first, end)))
    return TimelineRequest(kernel, tuple(programs))


def requested(requests: tuple[TimelineRequest, ...], kernel: str) -> TimelineRequest | None:
    """The first request whose pattern matches the name `kernel`, or None."""
    return next((one for one in requests if fnmatch.fnmatchcase(kernel, one.kernel)), None)
