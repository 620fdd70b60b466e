"""Symptoms: what a checked kernel notes cheaply of faults that take a closer look.

A NaN that is stored may be the input's, a division by zero whose result nobody uses is no fault,
nor is a product that wraps and is masked off. A kernel notes for each of these kinds whether there
was one, and in which program first. Whether it is a fault, and where the result goes, the
interpreter finds in that program.

All symptoms of a kernel have one slot of the table, of a layout of its own. Behind `count` is a
word for each kind: the complement of the least program's place, 0 where there is no symptom. A
place is `z << 48 | y << 32 | x`: no kernel has to work out a program's number, and the least place
is that of the least program. `count` is for the host, which sees it while the launch runs.

Source: CUDA Programming Guide, "Compute Capabilities": a grid has less than 2**31 programs along x
and less than 2**16 along y and z.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import inf
from typing import Final

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir.core import Operation
from tkdebug.compiler.sites.table import SLOT_BYTES

# The kind of the site, which is last.
SYMPTOMS: Final = "symptoms"
# By their bits.
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
# Of `tl.multiple_of` and its kin; the fault is of kind "assumption".
HINT: Final = "broken-hint"
# Of `tl.gather`; the fault is of kind "oob-load", of no tensor.
INDEX: Final = "bad-index"
_SLOT: Final = struct.Struct("<8Q")
assert _SLOT.size == SLOT_BYTES
assert len(SYMPTOM_KINDS) < SLOT_BYTES // 8
_ALL: Final = (1 << 64) - 1
_Y_BIT, _Z_BIT = 32, 48


def bit_of(kind: str) -> int:
    """The number of a kind's bit."""
    return SYMPTOM_KINDS.index(kind)


def program_offset(kind: str) -> int:
    """Return where in the slot the complement of the least program is, in bytes."""
    return 8 * (1 + bit_of(kind))


def packed_symptoms(programs: Mapping[str, tuple[int, int, int]]) -> bytes:
    """The slot of a launch with some symptoms, first seen in these programs (x, y, z)."""
    words = [_ALL - _place(programs[kind]) if kind in programs else 0 for kind in SYMPTOM_KINDS]
    return _SLOT.pack(SEEN_SOME if programs else 0, *words, *[0] * (7 - len(words)))


def unpacked_symptoms(slot: bytes) -> dict[str, tuple[int, int, int]]:
    """The least program (x, y, z) of each kind that a launch has a symptom of."""
    _, *words = _SLOT.unpack(slot)
    seen = zip(SYMPTOM_KINDS, words, strict=False)
    return {kind: _program(_ALL - word) for kind, word in seen if word}


def unwritten_infinities(function: Operation) -> frozenset[float]:
    """The infinities that are noted where a checked kernel stores them.

    Kernels that have one as a constant, such as scores that are filled with it, may store it.
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
