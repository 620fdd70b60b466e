"""What timelines are asked for: `KERNEL[@PROGRAMS]`."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass

from tkdebug.errors import UsageError

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
        """As it is asked for."""
        return f"{self.kernel}@{','.join(map(str, self.programs))}"


def read_request(text: str) -> TimelineRequest:
    """The request that a text is, such as `matmul`, `matmul@0:4,17`; program 0 unless said.

    Raises:
        UsageError: it cannot be read, or asks for more programs than fit.
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
    """The first request that names a kernel."""
    return next((one for one in requests if fnmatch.fnmatchcase(kernel, one.kernel)), None)
