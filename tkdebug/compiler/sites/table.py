"""The memory that a checked launch reports to: one slot for each site, all zero before the launch.

The kernel adds to `count` atomically. The rest of a slot is the example: of the least program, the
first time that it came to the site, the least element. Those fields are written while `lock` is
taken, so that they are of one report. An address is kept as it was computed, and as no lane goes
there, it may be anything.

Atomics are cheap in the device's memory alone, so the table lies there. The thread that changes an
example also copies the slot to mapped host memory, where the host sees it while the kernel runs. A
header before the first slot holds the distance to that memory (`tkdebug.records.running_faults`).

For a site whose bad elements the host finds, `count` is 1 and all other fields are 0. It is written
to the mapped host memory alone.

Beside it, a kernel is passed where each tensor that it tests accesses by begins and ends.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tkdebug.records.running_faults import COUNT, HEADER_BYTES, PROGRAM, SLOT_BYTES, VERSION

__all__ = ("COUNT", "HEADER_BYTES", "PROGRAM", "SLOT_BYTES", "VERSION")

# How many parameters a checked kernel takes for each tensor: the address of its first byte, the one
# behind its last, and how many elements there are from the kernel's pointer on (MOST_ELEMENTS if
# there are more).
PLACES: Final = 3
MOST_ELEMENTS: Final = (1 << 31) - 1
# Where a tensor ends at a multiple of so many bytes, no vector crosses its end: none is longer.
END_BYTES: Final = 16


def elements_behind(address: int, end: int, size_bytes: int) -> int:
    """Count the elements of a size from an address to an end, at most MOST_ELEMENTS."""
    return min(max(0, end - address) // size_bytes, MOST_ELEMENTS)


def hull_elems(shape: Sequence[int], strides: Sequence[int], behind: int) -> int:
    """Elements from the first to the last legal one, inclusive.

    An expanded tensor has no known extent along its strides of 0, and gathers step along them by a
    stride that they are passed beside it: there all of the allocation from its first element on is
    legal.

    Args:
        shape: of the tensor.
        strides: in elements.
        behind: elements of the allocation from the tensor's first one on.
    """
    if 0 in shape:
        return 0
    dims = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    if any(stride == 0 for _, stride in dims):
        return behind
    return 1 + sum((size - 1) * stride for size, stride in dims)


# When the program was there: larger for later iterations.
TIME: Final = 16
# Row-major position in the tile.
ELEMENT: Final = 24
LOCK: Final = 28
# The address of the element, or the bits of a value.
PAYLOAD: Final = 32
# Bad elements of that program at that time.
BAD: Final = 40
# Elements, then, that the mask leaves out: of all threads where COMPLETE is not 0.
MASKED: Final = 44
COMPLETE: Final = 48
# Of a pointer that was loaded: what the tile's pointers are offsets from; 0 where they differ.
ORIGIN: Final = 56
_SLOT: Final = struct.Struct("<QQQIIQIII4xQ")  # without VERSION
assert _SLOT.size == SLOT_BYTES


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a launch at one site.

    Attributes:
        site: number of the site.
        count: bad elements, of all programs.
        program: number of the example's program.
        time: orders what one program reports.
        element: row-major position of the example in its tile.
        payload: the address that the element would have touched, or the bits of a value.
        bad: bad elements of that program at that time.
        masked: elements that the mask left out, of the threads that reported.
        is_complete: whether these were all of the block.
        origin: of a pointer that was loaded, what the tile's pointers are offsets from, or 0.
    """

    site: int
    count: int
    program: int
    time: int
    element: int
    payload: int
    bad: int
    masked: int = 0
    is_complete: bool = False
    origin: int = 0

    @staticmethod
    def flagged(site: int) -> Report:
        """Make the report that there are bad elements, which the host finds."""
        return Report(site, 1, -1, 0, 0, 0, 0)

    def packed(self) -> bytes:
        """The slot."""
        return _SLOT.pack(
            self.count,
            self.program + 1,
            self.time,
            self.element,
            0,
            self.payload & (1 << 64) - 1,
            self.bad,
            self.masked,
            self.is_complete,
            self.origin,
        )


def table_bytes(sites: int) -> int:
    """Size of the table of so many sites."""
    return SLOT_BYTES * sites


def reports(table: bytes) -> Iterator[Report]:
    """List the reports, in the order of the sites.

    Raises:
        ValueError: `table` is no whole number of slots.
    """
    if len(table) % SLOT_BYTES:
        raise ValueError(f"a table of {len(table)} bytes, expected a multiple of {SLOT_BYTES}")
    for site, slot in enumerate(_SLOT.iter_unpack(table)):
        count, program, time, element, _, payload, bad, masked, complete, origin = slot
        if count:
            yield Report(
                site,
                count,
                program - 1,
                time,
                element,
                payload,
                bad,
                masked,
                bool(complete),
                origin,
            )
