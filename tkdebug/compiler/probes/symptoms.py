"""Symptoms: what a checked kernel notes cheaply of faults that take a closer look.

A NaN that is stored may be the input's, a division by zero whose result nobody uses is no fault,
nor is a product that wraps and is masked off. A kernel notes for each of these kinds whether there
was one, and in which program first. Whether it is a fault, and where the result goes, the
interpreter finds in that program.

All symptoms of a kernel have one slot of the table, of a layout of its own: `count` has a bit for
each kind, behind it is the complement of the least program of each, so that all zero is nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from tkdebug.compiler.probes.table import SLOT_BYTES

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
# What the host sees of the slot while the launch runs if there are any: no kind, and no number of
# bad elements.
SEEN_SOME: Final = 1 << 63
# Of `tl.multiple_of` and its kin; the fault is of kind "assumption".
HINT: Final = "broken-hint"
# Of `tl.gather`; the fault is of kind "oob-load", of no tensor.
INDEX: Final = "bad-index"
_SLOT: Final = struct.Struct("<8Q")
assert _SLOT.size == SLOT_BYTES
assert len(SYMPTOM_KINDS) < SLOT_BYTES // 8


def bit_of(kind: str) -> int:
    """The number of a kind's bit."""
    return SYMPTOM_KINDS.index(kind)


def program_offset(kind: str) -> int:
    """Where in the slot the complement of the least program is, in bytes."""
    return 8 * (1 + bit_of(kind))


def packed_symptoms(programs: Mapping[str, int]) -> bytes:
    """The slot of a launch with some symptoms, first seen in these programs."""
    mask = sum(1 << bit_of(kind) for kind in programs)
    words = [(1 << 64) - 1 - programs[kind] if kind in programs else 0 for kind in SYMPTOM_KINDS]
    return _SLOT.pack(mask, *words, *[0] * (7 - len(words)))


def unpacked_symptoms(slot: bytes) -> dict[str, int]:
    """The least program of each kind that a launch has a symptom of."""
    mask, *words = _SLOT.unpack(slot)
    return {
        kind: (1 << 64) - 1 - words[bit]
        for bit, kind in enumerate(SYMPTOM_KINDS)
        if mask >> bit & 1
    }
