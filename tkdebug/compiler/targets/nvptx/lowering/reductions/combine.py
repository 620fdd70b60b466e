"""Combine regions of reductions and scans: what they are, and their code for two elements."""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.compiler.dialects import arith
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.reductions.reduction_steps import Parity

# One element of each operand.
Element = tuple[LLVMValue, ...]


def single_op(op: Operation) -> arith.Binary | None:
    """The only op of the combine region, if it is applied to both elements; else None."""
    block = op.regions[0].block
    if len(block.operations) != 2 or len(block.arguments) != 2:
        return None
    inner = block.operations[0]
    is_plain = set(inner.operands) == set(block.arguments)
    is_all = is_plain and block.terminator.operands == inner.results
    return arith.Binary.cast(inner) if is_all else None


class Combine:
    """The combine function of one op.

    Args:
        ctx: the kernel.
        op: tt.reduce or tt.scan.
    """

    def __init__(self, ctx: Lowering, op: Operation) -> None:
        self.ctx = ctx
        self.op = op
        single = single_op(op)
        self.is_commutative = single is not None and single.commutes
        self._parities: dict[tuple[int, int], LLVMValue] = {}

    def __call__(self, first: Element, second: Element) -> Element:
        """Code that combines two elements."""
        made = self.ctx.inline(self.op.regions[0].block, (*first, *second))
        # What follows belongs to the reduction again, not to an op of its region.
        self.ctx.emit.set_op(self.op.id)
        return tuple(made)

    def ordered(self, own: Element, other: Element, is_second: LLVMValue) -> Element:
        """Combine with another thread's element, which comes first where `is_second` holds."""
        if self.is_commutative:
            return self(own, other)
        select = self.ctx.emit.select
        pairs = list(zip(own, other, strict=True))
        first = tuple(select(is_second, b, a) for a, b in pairs)
        second = tuple(select(is_second, a, b) for a, b in pairs)
        return self(first, second)

    def shuffled(self, element: Element, lane_xor: int) -> Element:
        """The element of the lane at a distance."""
        return tuple(self.ctx.shuffle("bfly", value, lane_xor) for value in element)

    def parity(self, parity: Parity, register: int) -> LLVMValue:
        """i1: the parity of this thread's place and `register`."""
        key = (parity.lane, parity.warp)
        if key not in self._parities:
            self._parities[key] = thread_parity(self.ctx, parity)
        value = self._parities[key]
        if not parity.of_register(register):
            return value
        return self.ctx.emit.xor(value, integer("i1", 1))


def thread_parity(ctx: Lowering, parity: Parity) -> LLVMValue:
    """i1: the parity of the masked bits of lane and warp."""
    total = integer("i1", 0)
    for place, mask in ((ctx.lane, parity.lane), (ctx.warp, parity.warp)):
        with ctx.emit.in_entry():
            for bit in range(mask.bit_length()):
                if mask >> bit & 1:
                    moved = ctx.emit.lshr(place, bit)
                    total = ctx.emit.xor(total, ctx.emit.cast("trunc", moved, "i1"))
    return total


def elements_of(operands: Sequence[Sequence[LLVMValue]]) -> list[Element]:
    """The elements of several tiles, by register."""
    return list(zip(*operands, strict=True))
