"""Places of a tile's elements: in the tile, and in memory.

A thread's elements are bits in the order of their places in the tile: the number of set bits is a
count of elements, and the first set bit the least element. Groups of an access are addressed from
one of them: a constant needs no register, and a pointer for each group would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tkdebug.compiler.analysis.axis_facts import unit_of
from tkdebug.compiler.ir import Value
from tkdebug.compiler.ir.types import TensorType
from tkdebug.compiler.layouts import LANE, REGISTER, WARP, LinearLayout, f2
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering

_WORD_BITS = 32


@dataclass(frozen=True, slots=True)
class PlaceOrder:
    """The registers of a tile in the order of their elements' places in it.

    Attributes:
        registers: the registers that are no copies of others.
        bits: for each bit of a position in this order, the bit that it sets in the register's
            number, and the weight that it has in the place.
    """

    registers: tuple[int, ...]
    bits: tuple[tuple[int, int], ...]

    @staticmethod
    def of(ctx: Lowering, pointer: Value) -> PlaceOrder | None:
        """Return the order of a tile of pointers; None if it differs between threads."""
        if not isinstance(pointer.type, TensorType):
            return PlaceOrder((0,), ())
        layout = ctx.layout(pointer)
        free = layout.free_masks.get(REGISTER, 0)
        places = [_place_of(layout, packed) for packed in layout.packed_bases(REGISTER)]
        kept = sorted((place, bit) for bit, place in enumerate(places) if not free >> bit & 1)
        taken = 0
        for name in (LANE, WARP):
            for packed in layout.packed_bases(name):
                taken |= _place_of(layout, packed)
        if any(place & (place - 1) or place & taken for place, _ in kept):
            return None
        registers = [0]
        for _, bit in kept:
            registers += [register | 1 << bit for register in registers]
        return PlaceOrder(tuple(registers), tuple((bit, place) for place, bit in kept))

    def positions(self) -> dict[int, int]:
        """The position of each register."""
        return {register: position for position, register in enumerate(self.registers)}


def _place_of(layout: LinearLayout, packed: int) -> int:
    """The row-major place of a packed output; extents are powers of two, so bits map to bits."""
    place, moved = 0, layout.unpack_out(packed)
    for name, size in layout.outs:
        place = place * size + moved[name]
    return place


def first_bit(words: Sequence[str], count: str, position: str) -> list[str]:
    """Return instructions that count bits and find the first set one; any position if none is.

    Args:
        words: the words that hold the bits.
        count: the register that gets their number.
        position: the register that gets the place of the first bit.
    """
    lines = [f"popc.b32 {count}, {words[-1]};", f"brev.b32 t, {words[-1]};"]
    lines += [f"clz.b32 {position}, t;"]
    lines += [f"add.u32 {position}, {position}, {_WORD_BITS * (len(words) - 1)};"] * (
        len(words) > 1
    )
    for place, word in reversed(list(enumerate(words[:-1]))):
        lines += ["{", ".reg .pred q;", ".reg .b32 n;", f"popc.b32 n, {word};"]
        lines += [f"add.u32 {count}, {count}, n;", "setp.ne.u32 q, n, 0;"]
        lines += [f"brev.b32 n, {word};", "clz.b32 n, n;"]
        lines += [f"@q add.u32 {position}, n, {_WORD_BITS * place};", "}"]
    return lines


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """The first element of a group.

    Attributes:
        register: the register whose pointer it is addressed from.
        offset_bytes: its distance from that pointer.
    """

    register: int
    offset_bytes: int


def group_places(ctx: Lowering, pointer: Value, firsts: range) -> list[GroupPlace]:
    """Return the place of each group, by its first register.

    Args:
        ctx: the kernel.
        pointer: the tile of pointers, or the only one.
        firsts: the first register of each group.
    """
    if not isinstance(pointer.type, TensorType):
        return [GroupPlace(first, 0) for first in firsts]
    layout, runs = ctx.layout(pointer), ctx.axis_info[pointer].contiguity
    axis = max(range(len(runs)), key=lambda one: runs[one])
    name, run, unit = layout.out_dims[axis], runs[axis], unit_of(pointer.type)
    taken = 0
    for dim in (LANE, WARP):
        for packed in layout.packed_bases(dim):
            taken |= layout.unpack_out(packed)[name]
    steps = [layout.unpack_out(packed) for packed in f2.spanned(layout.packed_bases(REGISTER))]
    seen: dict[tuple[tuple[str, int], ...], int] = {}
    places = []
    for first in firsts:
        step = steps[first]
        at = step[name]
        if run == 1 or at & taken:
            places.append(GroupPlace(first, 0))
            continue
        # Threads reach other bits of the position, so all of them are in the same run or none.
        key = tuple({**step, name: at // run}.items())
        anchor = seen.setdefault(key, first)
        places.append(GroupPlace(anchor, (at - steps[anchor][name]) * unit))
    return places


def acting_thread(ctx: Lowering, value: Value) -> LLVMValue | None:
    """i1: whether this thread acts for its elements of `value`; None when all do."""
    if isinstance(value.type, TensorType):
        return ctx.owner(ctx.layout(value))
    return ctx.is_first_thread


def counted_registers(ctx: Lowering, pointer: Value) -> set[int]:
    """The registers that hold no copies of an earlier register's element."""
    if not isinstance(pointer.type, TensorType):
        return {0}
    layout = ctx.layout(pointer)
    copies = layout.free_masks.get(REGISTER, 0)
    return {register for register in range(layout.in_size(REGISTER)) if not register & copies}


def linear_places(ctx: Lowering, value: Value) -> list[LLVMValue]:
    """Row-major position in the tile of each register's element, i32."""
    if not isinstance(value.type, TensorType):
        return [integer("i32", 0)]
    emit, layout = ctx.emit, ctx.layout(value)
    places = []
    for coordinates in ctx.coordinates(layout):
        place = integer("i32", 0)
        for coordinate, (_, size) in zip(coordinates, layout.outs, strict=True):
            place = emit.add(emit.mul(place, size), coordinate)
        places.append(place)
    return places
