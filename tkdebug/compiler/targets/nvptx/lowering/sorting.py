"""Lowering of tt.sort, tt.topk and tt.bitonic_merge: bitonic networks over the bits of the axis.

A round compares elements whose positions differ in one bit: registers of a thread, lanes
(shuffles), or warps (shared memory), wherever the layout has that bit. Elements are compared as
integers of the same order: a float's bits with the lower ones of negative numbers flipped. NaN
counts as the largest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.types import ScalarType, element_of, shape_of
from tkdebug.compiler.layouts import LinearLayout
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering import floats8
from tkdebug.compiler.targets.nvptx.lowering.context import TYPE_BITS, Lowering
from tkdebug.compiler.targets.nvptx.lowering.reductions.steps import (
    Parity,
    axis_vectors,
    split_place,
    thread_columns,
    thread_parity,
)
from tkdebug.compiler.targets.nvptx.lowering.shapes import axis_distance
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.access import store_vector
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.exchange import (
    distance_bytes,
    from_distance,
    read_rows,
    tile_bytes,
)
from tkdebug.compiler.targets.nvptx.lowering.types import Lower, Registers, memory_bits


@dataclass(frozen=True, slots=True)
class SortKeys:
    """The comparison of the elements of one op.

    Attributes:
        element: the type of the elements.
        is_unsigned: whether integer elements are unsigned.
    """

    ctx: Lowering
    element: ScalarType
    is_unsigned: bool

    @staticmethod
    def of(ctx: Lowering, op: Operation) -> SortKeys:
        """The keys of a tt.sort, tt.topk or tt.bitonic_merge."""
        element = element_of(tt.Sorting(op).source.type)
        assert isinstance(element, ScalarType)
        is_unsigned = tt.Sorting(op).unsigned or element.bits == 1
        return SortKeys(ctx, element, is_unsigned)

    @property
    def _is_float8(self) -> bool:
        return self.element.is_float and self.element.bits == 8

    def comparable(self, values: Registers) -> Registers:
        """Values as numbers that the hardware compares: no fp8, no single bits."""
        if self._is_float8:
            return floats8.readable(self.ctx, self.element, values)
        if self.element.bits == 1:
            return [self.ctx.emit.cast("zext", value, "i8") for value in values]
        return values

    def restored(self, values: Registers) -> Registers:
        """The inverse of `comparable`."""
        if self._is_float8:
            return floats8.narrowed(self.ctx, values, self.element.name, False)
        if self.element.bits == 1:
            return [self.ctx.emit.cast("trunc", value, "i1") for value in values]
        return values

    def key(self, value: LLVMValue) -> LLVMValue:
        """A comparable value as an integer of the same order."""
        if not self.element.is_float:
            return value
        emit = self.ctx.emit
        width = TYPE_BITS[value.type]
        key = self._flipped(self.ctx.to_bits(value))
        largest = integer(key.type, (1 << (width - 1)) - 1)
        return emit.select(emit.fcmp("uno", value, value), largest, key)

    def value(self, key: LLVMValue, type_: str) -> LLVMValue:
        """The inverse of `key`; for NaN, one of the NaNs."""
        return self.ctx.from_bits(self._flipped(key), type_) if self.element.is_float else key

    def _flipped(self, bits: LLVMValue) -> LLVMValue:
        emit = self.ctx.emit
        width = int(bits.type[1:])
        sign = emit.binary("ashr", bits, integer(bits.type, width - 1))
        return emit.xor(bits, emit.bit_and(sign, (1 << (width - 1)) - 1))

    def smaller(self, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        """The smaller of two keys."""
        return self._extremum("min", a, b)

    def larger(self, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        """The larger of two keys."""
        return self._extremum("max", a, b)

    def _extremum(self, name: str, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        letter = "u" if self.is_unsigned else "s"
        return self.ctx.emit.intrinsic(f"llvm.{letter}{name}.{a.type}", a, b)

    def is_greater(self, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        """i1: a > b of comparable values, as the hardware compares them: false with NaN."""
        if a.type[0] != "i":
            return self.ctx.emit.fcmp("ogt", a, b)
        return self.ctx.emit.icmp("ugt" if self.is_unsigned else "sgt", a, b)


# (own value, other value, i1: whether own comes second in memory and order) -> the value to keep.
Swap = Callable[[LLVMValue, LLVMValue, LLVMValue], LLVMValue]


@dataclass(frozen=True, slots=True)
class _Bit:
    """One bit of the sorted axis.

    Attributes:
        register, lane, warp: XORed to get to the element at the other value of the bit.
        mask: the bits of `thread_columns` that contribute to it.
    """

    register: int
    lane: int
    warp: int
    mask: int


def _bits(layout: LinearLayout) -> list[_Bit]:
    first, count = axis_vectors(layout, len(layout.outs) - 1)
    columns = thread_columns(layout)
    found = []
    for bit in range(first, first + count):
        mask = sum((column >> bit & 1) << i for i, column in enumerate(columns))
        found.append(_Bit(*axis_distance(layout, 1 << bit), mask))
    return found


class _Network:
    """Rounds of compare-and-swap on the registers of one tile.

    Args:
        ctx: the kernel.
        op: the op, whose scratch is used.
        layout: the layout of the tile.
        values: the compared values, by register.
    """

    def __init__(
        self, ctx: Lowering, op: Operation, layout: LinearLayout, values: Registers
    ) -> None:
        self.ctx = ctx
        self.op = op
        self.layout = layout
        self.values = values
        self.bits = _bits(layout)
        self._parities: dict[int, LLVMValue] = {}
        self._scratch_used = False

    def round(self, bit: int, direction_mask: int, is_flipped: bool, swap: Swap) -> None:
        """Compare and swap along `bit`.

        Args:
            bit: number of the bit of the axis.
            direction_mask: bits of the place whose parity reverses the order.
            is_flipped: whether the order is turned around everywhere.
            swap: chooses the value to keep.
        """
        move = self.bits[bit]
        others = self._others(move)
        self.values = [
            swap(
                own,
                others[register ^ move.register],
                self._parity(move.mask ^ direction_mask, register, is_flipped),
            )
            for register, own in enumerate(self.values)
        ]

    def _others(self, move: _Bit) -> Registers:
        base = None
        if move.warp:
            base = self.ctx.scratch(self.op)
            if self._scratch_used:
                self.ctx.barrier()
            self._scratch_used = True
        element_bytes = TYPE_BITS[self.values[0].type] // 8
        return from_distance(
            self.ctx, base, self.layout, self.values, move.lane, move.warp, element_bytes
        )

    def _parity(self, mask: int, register: int, is_flipped: bool) -> LLVMValue:
        own = Parity(*split_place(self.layout, mask))
        key = mask & ~own.register
        if key not in self._parities:
            self._parities[key] = thread_parity(self.ctx, own)
        flip = own.of_register(register) ^ is_flipped
        return self.ctx.emit.xor(self._parities[key], integer("i1", flip))


def _sorted(ctx: Lowering, op: Operation, x: Registers, descending: bool) -> Registers:
    """Return the tile sorted along its last axis, in its own layout."""
    layout = ctx.layout(tt.Sorting(op).source)
    keys = SortKeys.of(ctx, op)
    values = keys.comparable(x)
    type_ = values[0].type
    network = _Network(ctx, op, layout, [keys.key(value) for value in values])

    def swap(own: LLVMValue, other: LLVMValue, takes_larger: LLVMValue) -> LLVMValue:
        known = takes_larger.constant
        if known is not None:
            return keys.larger(own, other) if known else keys.smaller(own, other)
        return ctx.emit.select(takes_larger, keys.larger(own, other), keys.smaller(own, other))

    count = len(network.bits)
    for stage in range(1, count + 1):
        # Runs of 2 ** stage elements, rising and falling in turn, until one is left.
        direction = network.bits[stage].mask if stage < count else 0
        for bit in reversed(range(stage)):
            network.round(bit, direction, descending, swap)
    return keys.restored([keys.value(key, type_) for key in network.values])


def lower_sort(ctx: Lowering, op: Operation, x: Registers) -> Sequence[Registers]:
    """Lower `tt.sort` to a bitonic sort."""
    return (_sorted(ctx, op, x, tt.Sort(op).descending),)


def lower_bitonic_merge(ctx: Lowering, op: Operation, x: Registers) -> Sequence[Registers]:
    """Lower `tt.bitonic_merge` to the last stage alone; comparisons with NaN swap nothing."""
    keys = SortKeys.of(ctx, op)
    network = _Network(ctx, op, ctx.layout(tt.BitonicMerge(op).source), keys.comparable(x))
    descending = tt.BitonicMerge(op).descending
    emit = ctx.emit

    def swap(own: LLVMValue, other: LLVMValue, is_right: LLVMValue) -> LLVMValue:
        left, right = emit.select(is_right, other, own), emit.select(is_right, own, other)
        wrong = keys.is_greater(right, left) if descending else keys.is_greater(left, right)
        return emit.select(wrong, other, own)

    for bit in reversed(range(len(network.bits))):
        network.round(bit, 0, False, swap)
    return (keys.restored(network.values),)


def lower_topk(ctx: Lowering, op: Operation, x: Registers) -> Sequence[Registers]:
    """Lower `tt.topk` to a sort; its first k elements go through shared memory to the result."""
    k = tt.TopK(op).k
    layout = ctx.layout(tt.TopK(op).source)
    ordered = _sorted(ctx, op, x, tt.TopK(op).descending)
    base = ctx.emit.gep(ctx.scratch(op), "i8", _network_bytes(op))
    element_bytes = memory_bits(element_of(op.result.type)) // 8
    _write_first(ctx, base, layout, ordered, k, element_bytes)
    ctx.barrier()
    return (read_rows(ctx, base, ctx.layout(op.result), ordered[0].type, element_bytes),)


def _write_first(
    ctx: Lowering,
    base: LLVMValue,
    layout: LinearLayout,
    values: Registers,
    k: int,
    element_bytes: int,
) -> None:
    """Write the elements below `k` along the last axis, in row-major order."""
    emit = ctx.emit
    owner = ctx.owner(layout)
    shape = (*layout.shape[:-1], k)
    for value, coordinates in zip(values, ctx.coordinates(layout), strict=True):
        is_kept = emit.icmp("ult", coordinates[-1], k)
        if owner is not None:
            is_kept = emit.binary("and", is_kept, owner)
        offset = integer("i32", 0)
        for extent, coordinate in zip(shape, coordinates, strict=True):
            offset = emit.add(emit.mul(offset, extent), coordinate)
        address = emit.gep(base, "i8", emit.mul(offset, element_bytes))
        store_vector(ctx, address, [value], is_kept)


def _network_bytes(op: Operation) -> int:
    """Bytes for the rounds between warps."""
    layout = Lowering.layout(tt.Sorting(op).source)
    element = element_of(tt.Sorting(op).source.type)
    # Fp8 is compared as a wider float.
    widest = 4 if str(element).startswith("f8") else memory_bits(element) // 8
    return max((distance_bytes(layout, widest, bit.warp) for bit in _bits(layout)), default=0)


def topk_scratch_bytes(op: Operation) -> int:
    """Bytes of shared memory that a tt.topk needs."""
    element_bytes = memory_bits(element_of(op.result.type)) // 8
    return _network_bytes(op) + tile_bytes(shape_of(op.result.type), element_bytes)


def sort_scratch_bytes(op: Operation) -> int:
    """Bytes of shared memory that a tt.sort or tt.bitonic_merge needs."""
    return _network_bytes(op)


LOWERINGS: dict[str, Lower] = {
    tt.Sort.name: lower_sort,
    tt.TopK.name: lower_topk,
    tt.BitonicMerge.name: lower_bitonic_merge,
}
