"""The memory that a checked launch reports to: one slot for each site, all zero before the launch.

The kernel adds to `count` atomically. The rest of a slot is the example: the least element of the
least program, the first time that this program came to the site. Those fields are written while
`lock` is taken, so that they are of one report. An address is kept as it was computed, and as no
lane goes there, it may be anything.

Atomics are cheap in the device's memory alone, so the table lies there. The thread that changes an
example also copies the slot to mapped host memory, where the host sees it while the kernel runs. A
header before the first slot holds the distance to that memory (`tkdebug.records.running_faults`).

For a site whose bad elements the host finds, `count` is 1 and all other fields are 0. It is written
to the mapped host memory alone. A kernel is also passed where each tensor that it tests accesses by
begins and ends.

Symptoms are signs of faults that only a closer look can judge: a NaN that is stored may be the
input's, a division by zero whose result nobody uses is no fault, nor is a product that wraps and is
masked off. A kernel notes for each of these kinds whether there was one, and in which program
first; the interpreter judges that program. All symptoms of a kernel have one slot, of a layout of
its own. After `count` is a word for each kind: the complement of the least program's place, 0 if
there is no symptom. A place is `z << 48 | y << 32 | x`: no kernel has to work out a program's
number, and the least place is that of the least program. `count` is for the host, which sees it
while the launch runs.

Source: CUDA Programming Guide, "Compute Capabilities": a grid has less than 2**31 programs along x
and less than 2**16 along y and z.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir.core import Operation
from tkdebug.records.running_faults import COUNT, HEADER_BYTES, PROGRAM, SLOT_BYTES, VERSION

__all__ = ("COUNT", "HEADER_BYTES", "PROGRAM", "SLOT_BYTES", "VERSION")

# The parameters that a checked kernel takes for each tensor: the address of its first byte, the one
# after its last, and the number of elements from the kernel's pointer on (MOST_ELEMENTS if there
# are more).
PLACES: Final = 3
MOST_ELEMENTS: Final = (1 << 31) - 1
# Where a tensor ends at a multiple of so many bytes, no vector crosses its end: none is longer.
END_BYTES: Final = 16


def elements_behind(address: int, end: int, size_bytes: int) -> int:
    """Return the number of whole elements from an address to an end, at most MOST_ELEMENTS."""
    return min(max(0, end - address) // size_bytes, MOST_ELEMENTS)


def hull_elems(shape: Sequence[int], strides: Sequence[int], behind: int) -> int:
    """Elements from the first to the last legal one, inclusive.

    An expanded tensor has no known extent along its strides of 0, and gathers step along them by a
    stride that is another argument: there all of the allocation from its first element on is legal.

    Args:
        shape: the shape of the tensor.
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
# The base of the tile's pointers, if it was loaded; 0 where they differ.
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
        time: orders the reports of one program.
        element: row-major position of the example in its tile.
        payload: the address that the element would have touched, or the bits of a value.
        bad: bad elements of that program at that time.
        masked: elements that the mask left out in the threads that reported.
        is_complete: whether those were all threads of the block.
        origin: the base of the tile's pointers, if it was loaded, or 0.
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
        """The report of a site that the kernel only flags; the host finds its bad elements."""
        return Report(site, 1, -1, 0, 0, 0, 0)

    def packed(self) -> bytes:
        """Return the report as the bytes of its slot."""
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
    """Size of the table of `sites` sites."""
    return SLOT_BYTES * sites


def reports(table: bytes) -> Iterator[Report]:
    """Yield the reports, in the order of the sites.

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


# The kind of the site for all symptoms of a kernel, which is its last site.
SYMPTOMS: Final = "symptoms"
# In the order of the bits that stand for them.
SYMPTOM_KINDS: Final = (
    "nan",
    "inf",
    "division-by-zero",
    "shift-range",
    "offset-overflow",
    "broken-hint",
    "bad-index",
)
# The `count` that the host sees if there are any: no number of bad elements.
SEEN_SOME: Final = 1 << 63
# For `tl.multiple_of` and the like; the fault is of kind "assumption".
HINT: Final = "broken-hint"
# For `tl.gather`; the fault is of kind "oob-load", without a tensor.
INDEX: Final = "bad-index"
_SYMPTOM_WORDS: Final = struct.Struct("<8Q")
assert _SYMPTOM_WORDS.size == SLOT_BYTES
assert len(SYMPTOM_KINDS) < SLOT_BYTES // 8
_ALL: Final = (1 << 64) - 1
_Y_BIT, _Z_BIT = 32, 48


def bit_of(kind: str) -> int:
    """The number of the bit that stands for a kind of symptom."""
    return SYMPTOM_KINDS.index(kind)


def program_offset(kind: str) -> int:
    """Return the byte offset, in the slot, of the complement of a kind's least program."""
    return 8 * (1 + bit_of(kind))


def packed_symptoms(programs: Mapping[str, tuple[int, int, int]]) -> bytes:
    """The slot of a launch with some symptoms, first seen in these programs (x, y, z)."""
    words = [_ALL - _place(programs[kind]) if kind in programs else 0 for kind in SYMPTOM_KINDS]
    return _SYMPTOM_WORDS.pack(SEEN_SOME if programs else 0, *words, *[0] * (7 - len(words)))


def unpacked_symptoms(slot: bytes) -> dict[str, tuple[int, int, int]]:
    """The least program (x, y, z) of each kind that a launch has a symptom of."""
    _, *words = _SYMPTOM_WORDS.unpack(slot)
    seen = zip(SYMPTOM_KINDS, words, strict=False)
    return {kind: _program(_ALL - word) for kind, word in seen if word}


def unwritten_infinities(function: Operation) -> frozenset[float]:
    """The infinities that are noted where a checked kernel stores them.

    A kernel that has one of them as a constant, such as scores that are filled with it, may store
    it.
    """
    return frozenset((inf, -inf)).difference(map(float, tt.Func(function).check_written_infs))


def _place(program: tuple[int, int, int]) -> int:
    x, y, z = program
    return z << _Z_BIT | y << _Y_BIT | x


def _program(place: int) -> tuple[int, int, int]:
    return (
        place & (1 << _Y_BIT) - 1,
        place >> _Y_BIT & (1 << _Z_BIT - _Y_BIT) - 1,
        place >> _Z_BIT,
    )
