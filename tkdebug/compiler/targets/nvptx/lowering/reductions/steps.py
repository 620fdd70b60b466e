"""Parts that reductions and scans are made of: steps, combine regions, and exchanges between warps.

A step combines each element with the one at a vector's distance along the axis. Where parts of the
axis lie in several warps, each thread reads all parts of its elements and combines them, unless
that takes many instructions: then the lanes of a warp share out the parts, or all threads the
elements.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

from tkdebug.compiler.dialects import arith
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.layouts import LANE, REGISTER, WARP, LinearLayout
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering

THREAD_DIMS = (REGISTER, LANE, WARP)


@dataclass(frozen=True, slots=True)
class Parity:
    """A linear function of a thread's place: the parity of its masked bits.

    Args:
        register: mask of register bits.
        lane: mask of lane bits.
        warp: mask of warp bits.
    """

    register: int
    lane: int
    warp: int

    def of_register(self, register: int) -> int:
        """The parity that register number `register` contributes, 0 or 1."""
        return (self.register & register).bit_count() & 1


@dataclass(frozen=True, slots=True)
class Step:
    """A combination of each element with the one at a vector's distance.

    Args:
        register: XORed to the register.
        lane: XORed to the lane.
        warp: XORed to the warp.
        is_second: 1 for the elements that come second in the combination.
    """

    register: int
    lane: int
    warp: int
    is_second: Parity

    @property
    def is_led(self) -> bool:
        """Whether the step pairs two lanes, of which the one with bit 0 holds the first element."""
        is_one_bit = self.lane.bit_count() == 1 and not (self.register or self.warp)
        return is_one_bit and self.is_second == Parity(0, self.lane, 0)


def followers(steps: tuple[Step, ...]) -> int:
    """The lane bits of `steps`: a lane with one of them set comes second in that step."""
    return functools.reduce(operator.or_, (step.lane for step in steps), 0)


def axis_vectors(layout: LinearLayout, axis: int) -> tuple[int, int]:
    """(lowest bit, number of bits) of dimension `axis` in a packed output."""
    first = sum(size.bit_length() - 1 for _, size in layout.outs[:axis])
    return first, layout.outs[axis][1].bit_length() - 1


def thread_columns(layout: LinearLayout) -> tuple[int, ...]:
    """Packed outputs of the bits of register, lane and warp, in this order."""
    return tuple(v for d in THREAD_DIMS for v in layout.packed_bases(d))


def split_place(layout: LinearLayout, vector: int) -> tuple[int, int, int]:
    """(register, lane, warp) of a mask over `thread_columns`."""
    registers, lanes = layout.in_bits(REGISTER), layout.in_bits(LANE)
    lane = vector >> registers & ((1 << lanes) - 1)
    return vector & ((1 << registers) - 1), lane, vector >> (registers + lanes)


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
        """Write the code that combines two elements, and return the result."""
        made = self.ctx.inline(self.op.regions[0].block, (*first, *second))
        # The next instructions belong to the reduction again, not to an op of its region.
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
        """Return the element of the lane whose number differs by `lane_xor`."""
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


PART = "part"
# From how many combinations saved in each thread a second trip through shared memory pays.
_WORTH_A_TRIP = 32
# Cycles that a shuffle adds to the chain of a result, times the four warps that an SM issues for in
# one: the instructions of all warps that each shuffle has to save.
_WORTH_A_SHUFFLE = 120
# Shuffles are issued at half the rate of other instructions.
_SHUFFLE_OPS = 2


@dataclass(frozen=True, slots=True)
class Spread:
    """The layouts by which all threads make the results of a reduction over warps together.

    Args:
        gathered: layout of the elements that threads read: all parts in their lowest registers.
        combined: layout of the combined elements, without the parts.
        result: layout of the elements that they keep, kept registers alone.
    """

    gathered: LinearLayout
    combined: LinearLayout
    result: LinearLayout


def exchanged(
    layout: LinearLayout,
    axis: int,
    coefficients: list[int],
    parts: list[int],
    kept_bits: list[int],
) -> tuple[LinearLayout, LinearLayout]:
    """Layouts of a reduction over warps: of the partials that are written, and of those read.

    Args:
        layout: of the operand.
        axis: the one that is reduced.
        coefficients: the steps that lead from 0 to the axis coordinate of each input bit.
        parts: the steps that lead to another warp.
        kept_bits: the register bits that remain after the reduction within a thread.
    """
    rest = tuple(entry for i, entry in enumerate(layout.outs) if i != axis)
    outs = ((PART, 1 << len(parts)), *rest)
    first, bits = axis_vectors(layout, axis)

    def coordinates(column: int) -> int:
        low = column & ((1 << first) - 1)
        high = column >> (first + bits)
        return (low | high << first) << len(parts)

    def part(coefficient: int) -> int:
        return sum((coefficient >> step & 1) << i for i, step in enumerate(parts))

    partial, gathered, index = [], [], 0
    for name in THREAD_DIMS:
        vectors = layout.packed_bases(name)
        chosen = kept_bits if name == REGISTER else range(len(vectors))
        places = [coordinates(vectors[bit]) for bit in chosen]
        partial.append(
            (
                name,
                tuple(
                    p | part(coefficients[index + bit])
                    for p, bit in zip(places, chosen, strict=True)
                ),
            )
        )
        all_parts = tuple(1 << i for i in range(len(parts))) if name == REGISTER else ()
        gathered.append((name, (*all_parts, *places)))
        index += len(vectors)
    return LinearLayout(tuple(partial), outs), LinearLayout(tuple(gathered), outs)


def is_worth_shuffles(part_bits: int, combine_ops: int, values: int) -> bool:
    """Whether lanes are to share out 2**part_bits parts, which each thread combines otherwise."""
    in_thread = ((1 << part_bits) - 1) * combine_ops
    shuffles = (part_bits + 1) * values
    in_lanes = part_bits * combine_ops + shuffles * _SHUFFLE_OPS
    return (in_thread - in_lanes) << part_bits > _WORTH_A_SHUFFLE * part_bits


def shared_out(gathered: LinearLayout, parts: int) -> tuple[LinearLayout, tuple[Step, ...]]:
    """Move parts from registers to lanes that hold the same elements.

    Returns:
        The layout, and the steps that combine the lanes' parts.
    """
    registers, lanes = list(gathered.packed_bases(REGISTER)), list(gathered.packed_bases(LANE))
    free = [bit for bit, vector in enumerate(lanes) if not vector][:parts]
    # The first parts stay in registers, so that all are combined in the same order as there.
    first = parts - len(free)
    for part, bit in enumerate(free, first):
        lanes[bit] = 1 << part
    bases = {REGISTER: registers[:first] + registers[parts:], LANE: lanes}
    bases[WARP] = list(gathered.packed_bases(WARP))
    steps = tuple(Step(0, 1 << bit, 0, Parity(0, 1 << bit, 0)) for bit in free)
    return LinearLayout(tuple((n, tuple(v)) for n, v in bases.items()), gathered.outs), steps


def spread_out(gathered: LinearLayout, parts: int) -> Spread | None:
    """The distribution among threads of elements that many keep, or None if it saves little."""
    rest = gathered.outs[1:]
    bits = gathered.out_bits - parts
    threads = gathered.in_bits(LANE) + gathered.in_bits(WARP)
    kept = gathered.in_bits(REGISTER) - parts
    saved = ((1 << kept) - (1 << max(0, bits - threads))) * ((1 << parts) - 1)
    if not parts or saved < _WORTH_A_TRIP:
        return None
    free = [1 << bit for bit in range(bits)]
    combined = []
    for name in (LANE, WARP):
        count = gathered.in_bits(name)
        combined.append((name, tuple((free[:count] + [0] * count)[:count])))
        free = free[count:]
    combined.insert(0, (REGISTER, tuple(free)))

    def with_parts(name: str, vectors: tuple[int, ...]) -> tuple[int, ...]:
        all_parts = [1 << i for i in range(parts)] if name == REGISTER else []
        return (*all_parts, *(vector << parts for vector in vectors))

    result = []
    for name in THREAD_DIMS:
        vectors = gathered.packed_bases(name)
        own = vectors[parts:] if name == REGISTER else vectors
        result.append((name, tuple(vector >> parts for vector in own)))
    return Spread(
        LinearLayout(tuple((n, with_parts(n, v)) for n, v in combined), gathered.outs),
        LinearLayout(tuple(combined), rest),
        LinearLayout(tuple(result), rest),
    )
