"""How many elements one access to global memory can move."""

from __future__ import annotations

from tkdebug.compiler.analysis.axis_facts import AxisInfo, unit_of
from tkdebug.compiler.dialects.interfaces import MaskedAccess, PointerAccess
from tkdebug.compiler.ir.core import Operation, Value
from tkdebug.compiler.layouts import LinearLayout

# The widest access of a thread (PTX ISA, "ld": .v4 of 32-bit or .v2 of 64-bit elements).
MAX_ACCESS_BYTES = 16


def mask_of(op: Operation) -> Value | None:
    """The mask of an access; None when it has none."""
    access = MaskedAccess.cast(op)
    return None if access is None else access.mask


def accessible_elems(
    op: Operation, axis: int, pointers: AxisInfo, mask: AxisInfo | None = None
) -> int:
    """How many elements along `axis` one access can move, wherever the layout puts them.

    The address must be a multiple of the access's size, and the mask one for all its elements.
    """
    element_bytes = unit_of(PointerAccess(op).pointer.type)
    count = min(pointers.run(axis, element_bytes), max(1, MAX_ACCESS_BYTES // element_bytes))
    return count if mask is None else min(count, mask.constancy[axis])


def vector_elems(
    op: Operation, layout: LinearLayout, info: AxisInfo, mask_info: AxisInfo | None = None
) -> int:
    """How many consecutive registers of a tile one access can move.

    Args:
        op: a load, store or atomic on tiles.
        layout: of its pointers.
        info: facts about its pointers.
        mask_info: facts about its mask, if it has one.

    Returns:
        A power of two: each aligned group of so many registers is consecutive in memory, begins
        at a multiple of its size, and has one mask. The group is 16 bytes at most.
    """
    return max(
        min(together, accessible_elems(op, axis, info, mask_info))
        for axis, together in enumerate(_together(layout))
    )


def neighbouring_elems(layout: LinearLayout, info: AxisInfo) -> int:
    """How many consecutive registers of a tile are neighbours in memory, wherever they begin."""
    return max(
        min(together, info.contiguity[axis]) for axis, together in enumerate(_together(layout))
    )


def _together(layout: LinearLayout) -> list[int]:
    """By axis, how many consecutive registers follow each other along it."""
    names = layout.out_dims
    orders = [[name, *(other for other in names if other != name)] for name in names]
    return [min(layout.consecutive_elements(o), layout.out_size(o[0])) for o in orders]
