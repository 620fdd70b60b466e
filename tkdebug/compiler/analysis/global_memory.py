"""Accesses to global memory: origins of their pointers, widths, and which must wait for others.

In the order of its program a load gives the value that was stored before it. Each thread keeps that
order for its own accesses. If one thread stores an element and another one loads it, the two must
wait for each other in between. This happens where two accesses have different layouts, and where
several threads hold copies of an element, which all of them load and one of them stores. Scalars
are loaded by all threads, and stored by the first one.

Loads that are volatile, or decide whether a `while` goes on, are left alone: they wait for another
program, and threads may see its stores in different iterations, so no barrier may be put there.

Accesses of one layout without copies are taken to touch the same elements or none in common: a
thread that stores at one offset and another that loads at another offset are not looked for, nor
memory that two arguments share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from tkdebug.compiler.analysis.axis_facts import AxisInfo, unit_of
from tkdebug.compiler.analysis.data_flow import source_of, traced
from tkdebug.compiler.dialects import scf, tt, ttg
from tkdebug.compiler.dialects.interfaces import MaskedAccess, PointerAccess, SameElements, stored
from tkdebug.compiler.ir.control_flow import iter_arg
from tkdebug.compiler.ir.core import Module, Operation, Value
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import PointerType, TensorType, element_of, encoding_of
from tkdebug.compiler.layouts import LANE, WARP, LinearLayout

# Ops whose result points where their first operand does, or to other elements from there.
POINTER_VIEWS = names_of(tt.AddPtr, SameElements)
_STEPS = names_of(tt.AddPtr, tt.Hint, ttg.ConvertLayout)


@dataclass(frozen=True, slots=True)
class Tile:
    """The memory that an access touches.

    Attributes:
        base: the value that its pointers are computed from.
        layout: the layout of its pointers; None for a scalar pointer.
        kind: the kind of the access.
    """

    base: Value
    layout: LinearLayout | None
    kind: Literal["load", "store", "atomic"]

    def overlaps(self, other: Tile) -> bool:
        """Whether threads must wait for each other between this access and `other`."""
        if self.base is not other.base:
            return False
        kinds = {self.kind, other.kind}
        if kinds == {"atomic"}:
            return False
        return self.layout != other.layout or ("load" in kinds and self.has_copies)

    @property
    def has_copies(self) -> bool:
        """Whether several threads hold each element: all of them load it, one of them stores it."""
        if self.layout is None:
            return True
        free = self.layout.free_masks
        return bool(free.get(LANE) or free.get(WARP))


def contended_tiles(function: Operation) -> Mapping[Operation, Tile]:
    """The accesses through each base pointer by which threads may have to wait for each other.

    Returns:
        The tile of each such access; all accesses through the same base pointer are included.
    """
    by_base: dict[Value, dict[Operation, Tile]] = {}
    for op in function.walk():
        access = PointerAccess.cast(op)
        if access is not None and not waits_for_others(op):
            layout = encoding_of(access.pointer.type)
            tile = Tile(pointer_base(access.pointer), layout, access.access)
            by_base.setdefault(tile.base, {})[op] = tile
    found: dict[Operation, Tile] = {}
    for tiles in by_base.values():
        distinct = set(tiles.values())
        written = [tile for tile in distinct if tile.kind != "load"]
        if any(tile.overlaps(other) for tile in written for other in distinct):
            found |= tiles
    return found


def waits_for_others(op: Operation) -> bool:
    """Whether an access is a volatile load, or is in the condition region of a `while`."""
    if tt.Load.matches(op) and tt.Load(op).volatile:
        return True
    block = op.block
    assert block is not None
    loop = block.parent_op
    return loop is not None and scf.While.matches(loop) and loop.regions[0].block is block


def pointer_base(value: Value) -> Value:
    """The value that a pointer is an offset from, as far as its ops can be followed."""
    while True:
        value = traced(value, POINTER_VIEWS)
        if value.defining_op is not None:
            return value
        carried = iter_arg(value)
        if carried is None or not _is_stepped(carried.yielded, value):
            return value
        value = carried.initial


def _is_stepped(value: Value, start: Value) -> bool:
    """Whether `value` is `start` plus offsets."""
    while value is not start:
        source = source_of(value, _STEPS)
        if source is None:
            return False
        value = source
    return True


class Origin(Enum):
    """The origin of a pointer that comes from no parameter.

    Attributes:
        LOADED: the pointer was loaded, or made of numbers that come from no pointer.
        UNKNOWN: any other origin.
    """

    LOADED = "loaded"
    UNKNOWN = "unknown"


_INTEGER_OPS: Final = ("arith.", tt.Splat.name, tt.Broadcast.name, tt.ExpandDims.name, tt.Hint.name)


def pointer_origin(pointer: Value) -> Value | Origin:
    """The function's parameter that a pointer is an offset from, or its other origin."""
    base = pointer_base(pointer)
    maker = base.defining_op
    if maker is None:
        block = base.owner
        assert not isinstance(block, Operation)
        parent = block.parent_op
        return base if parent is not None and tt.Func.matches(parent) else Origin.UNKNOWN
    if tt.Bitcast.matches(maker):
        return pointer_origin(tt.Bitcast(maker).source)
    if tt.Load.matches(maker):
        return Origin.LOADED
    if tt.IntToPtr.matches(maker) and _is_number(tt.IntToPtr(maker).source):
        return Origin.LOADED
    return Origin.UNKNOWN


def loaded_root(access: Operation) -> Value | None:
    """The scalar pointer, not a parameter, that all pointers of an access are offsets from.

    Returns:
        None if that pointer is a parameter or is unknown, or `access` is no access by pointers.
    """
    if not PointerAccess.matches(access):
        return None
    root = pointer_base(PointerAccess(access).pointer)
    return None if root.defining_op is None or isinstance(root.type, TensorType) else root


def hands_out_addresses(module: Module) -> bool:
    """Whether a kernel may store addresses: it casts pointers to integers, or stores pointers."""
    return any(
        tt.PtrToInt.matches(op)
        or (tt.Store.matches(op) and isinstance(element_of(stored(op).type), PointerType))
        for op in module.walk()
    )


def may_meet(a: Value | Origin, b: Value | Origin) -> bool:
    """Whether pointers of two origins may point into one tensor.

    Two parameters are taken to be different tensors, and so are a parameter and a loaded pointer.
    """
    return Origin.UNKNOWN in (a, b) or a is b


def _is_number(value: Value) -> bool:
    """Whether an integer was computed from loaded integers and arguments, and from no pointer."""
    seen, pending = {value}, [value]
    while pending:
        current = pending.pop()
        maker = current.defining_op
        if isinstance(element_of(current.type), PointerType):
            return False
        if maker is None:
            block = current.owner
            assert not isinstance(block, Operation)
            if block.parent_op is None or not tt.Func.matches(block.parent_op):
                return False
        elif maker.name.startswith(_INTEGER_OPS):
            pending += [operand for operand in maker.operands if operand not in seen]
            seen.update(maker.operands)
        elif maker.name not in (tt.Load.name, tt.GetProgramId.name, tt.GetNumPrograms.name):
            return False
    return True


# The widest access of a thread (PTX ISA, "ld": .v4 of 32-bit or .v2 of 64-bit elements).
MAX_ACCESS_BYTES = 16


def mask_of(op: Operation) -> Value | None:
    """The mask of an access; None if it has none."""
    access = MaskedAccess.cast(op)
    return None if access is None else access.mask


def accessible_elems(
    op: Operation, axis: int, pointers: AxisInfo, mask: AxisInfo | None = None
) -> int:
    """The most elements along `axis` that one access can move, in any layout.

    The address must be a multiple of the access's size, and the mask must be the same for all its
    elements.
    """
    element_bytes = unit_of(PointerAccess(op).pointer.type)
    count = min(pointers.run(axis, element_bytes), max(1, MAX_ACCESS_BYTES // element_bytes))
    return count if mask is None else min(count, mask.constancy[axis])


def vector_elems(
    op: Operation, layout: LinearLayout, info: AxisInfo, mask_info: AxisInfo | None = None
) -> int:
    """The number of consecutive registers of a tile that one access can move.

    Args:
        op: a load, store or atomic on tiles.
        layout: the layout of its pointers.
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
    """The number of consecutive registers that are neighbours in memory, aligned or not."""
    return max(
        min(together, info.contiguity[axis]) for axis, together in enumerate(_together(layout))
    )


def consecutive_elems(layout: LinearLayout) -> int:
    """The number of consecutive registers that hold consecutive elements along some axis."""
    return max(_together(layout), default=1)


def _together(layout: LinearLayout) -> list[int]:
    """The number of consecutive registers that hold consecutive elements, for each axis."""
    names = layout.out_dims
    orders = [[name, *(other for other in names if other != name)] for name in names]
    return [min(layout.consecutive_elements(o), layout.out_size(o[0])) for o in orders]
