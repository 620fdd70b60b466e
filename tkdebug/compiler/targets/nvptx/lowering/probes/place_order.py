"""A thread's elements of a tile as bits, in the order of their places in the tile.

The number of bits that are set is a count of elements, and the first of them the least element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tkdebug.compiler.ir import Value
from tkdebug.compiler.ir.types import TensorType
from tkdebug.compiler.layouts import LANE, REGISTER, WARP, LinearLayout
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering

_WORD_BITS = 32


@dataclass(frozen=True, slots=True)
class PlaceOrder:
    """The registers of a tile in the order of their elements' places in it.

    Attributes:
        registers: without copies of others.
        bits: for each bit of a position in this order, which bit of the register's number it is,
            and the bit of the place that it sets.
    """

    registers: tuple[int, ...]
    bits: tuple[tuple[int, int], ...]

    @staticmethod
    def of(ctx: Lowering, pointer: Value) -> PlaceOrder | None:
        """Of a tile of pointers; None where threads have their elements in different orders."""
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
    """The row-major place of a packed output; extents are powers of two, so its bits are theirs."""
    place, moved = 0, layout.unpack_out(packed)
    for name, size in layout.outs:
        place = place * size + moved[name]
    return place


def first_bit(words: Sequence[str], count: str, position: str) -> list[str]:
    """Instructions that count bits, and find the first; any position without one.

    Args:
        words: with the bits.
        count: the register that gets their number.
        position: the one that gets the place of the first.
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
