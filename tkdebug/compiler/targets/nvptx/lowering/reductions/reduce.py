"""Lowering of tt.reduce: in registers, by shuffles, through shared memory, for any linear layout.

Elements that are combined differ by vectors that move along the axis alone: the kernel of the
layout, restricted to the other dimensions. Each step of the plan adds the element at one such
vector. The part of a vector in registers is a choice of register, its part in lanes a shuffle, and
a vector with a part in warps goes through shared memory.

Invariant: after all steps every thread that holds a coordinate of the result has combined all
elements along the axis, in one and the same order, so that copies are equal to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.types import I32, element_of
from tkdebug.compiler.layouts import BLOCK, LANE, REGISTER, LayoutError, LinearLayout, f2
from tkdebug.compiler.targets.nvptx.emitter import integer
from tkdebug.compiler.targets.nvptx.lowering.context import FULL_WARP, WARP_SIZE, Lowering
from tkdebug.compiler.targets.nvptx.lowering.reductions.steps import (
    Combine,
    Element,
    Parity,
    Spread,
    Step,
    axis_vectors,
    elements_of,
    exchanged,
    followers,
    is_worth_shuffles,
    shared_out,
    single_op,
    split_place,
    spread_out,
    thread_columns,
)
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.exchange import (
    exchange_tiles,
    trip_bytes,
)
from tkdebug.compiler.targets.nvptx.lowering.types import (
    Lower,
    LoweringError,
    Registers,
    memory_bits,
)
from tkdebug.compiler.targets.target import REDUX

_CACHED_PLANS = 256


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """Steps of a reduction.

    Args:
        register_steps: inside a thread.
        lane_steps: steps by shuffles.
        warp_steps: the steps between warps, through shared memory.
        kept: for each register of the result, the source's register that is reduced into it.
        partial: layout of the elements that warps write, (kept register, lane, warp) -> (dims,
            part).
        gathered: layout of the elements that threads read: parts in their lowest registers, and in
            lanes.
        part_steps: steps by shuffles, for the parts that the lanes of a warp share out.
        spread: None if threads combine the elements they keep; else they combine different
            elements and trade them.
    """

    register_steps: tuple[Step, ...]
    lane_steps: tuple[Step, ...]
    warp_steps: tuple[Step, ...]
    kept: tuple[int, ...]
    partial: LinearLayout
    gathered: LinearLayout
    part_steps: tuple[Step, ...]
    spread: Spread | None

    @property
    def leaves_to_leaders(self) -> bool:
        """Whether the lanes whose element comes first in each lane step can act for the others."""
        if not all(step.is_led for step in self.lane_steps):
            return False
        writes = ~self.partial.free_masks[LANE] if self.warp_steps else 0
        return not followers(self.lane_steps) & writes


@lru_cache(_CACHED_PLANS)
def plan_reduction(
    layout: LinearLayout, axis: int, combine_ops: int = 1, values: int = 1
) -> ReductionPlan:
    """The steps that reduce `axis` of a tensor in `layout`.

    Args:
        layout: the layout of the tensor.
        axis: the reduced axis.
        combine_ops: how many ops combine two elements.
        values: how many numbers an element has: 2 of an argmax.

    Raises:
        LayoutError: blocks of a cluster hold parts of the axis, or no thread holds some element.
    """
    first, bits = axis_vectors(layout, axis)
    mask = ((1 << bits) - 1) << first
    if any(v & mask for v in layout.packed_bases(BLOCK)):
        raise LayoutError("reduction along an axis that is split over the blocks of a cluster")
    columns = thread_columns(layout)
    vectors = _vectors_along(layout, columns, mask)
    moves = [f2.combine(columns, vector) for vector in vectors]
    if len(moves) != bits:
        raise LayoutError(f"reduction: the layout does not reach all of axis {axis}")
    along = f2.Span(moves)
    # coefficients[i]: which moves lead from 0 to the axis coordinate of input bit i.
    coefficients = [along.solve(column & mask) or 0 for column in columns]

    def parity(index: int) -> Parity:
        chosen = sum((c >> index & 1) << i for i, c in enumerate(coefficients))
        return Parity(*split_place(layout, chosen))

    steps = [Step(*split_place(layout, v), parity(i)) for i, v in enumerate(vectors)]
    warp_steps = tuple(step for step in steps if step.warp)
    parts = [i for i, step in enumerate(steps) if step.warp]
    kept_bits = [i for i, v in enumerate(layout.packed_bases(REGISTER)) if v & ~mask]
    partial, gathered = exchanged(layout, axis, coefficients, parts, kept_bits)
    spread = spread_out(gathered, len(parts))
    part_steps: tuple[Step, ...] = ()
    if spread is None and is_worth_shuffles(len(parts), combine_ops, values):
        gathered, part_steps = shared_out(gathered, len(parts))
    return ReductionPlan(
        tuple(step for step in steps if not step.lane and not step.warp),
        tuple(step for step in steps if step.lane and not step.warp),
        warp_steps,
        f2.spanned([1 << bit for bit in kept_bits]),
        partial,
        gathered,
        part_steps,
        spread,
    )


def _vectors_along(layout: LinearLayout, columns: tuple[int, ...], mask: int) -> list[int]:
    """Return vectors of thread bits that move along the axis alone: registers first, warps last."""
    span, seen = f2.Span(), f2.Span()
    found = []
    for index, column in enumerate(columns):
        rest = column & ~mask
        known = span.solve(rest)
        span.add(rest)
        if known is None:
            continue
        vector = known | 1 << index
        if seen.add(f2.combine(columns, vector)):
            found.append(vector)

    def kind(vector: int) -> int:
        _, lane, warp = split_place(layout, vector)
        return 2 if warp else 1 if lane else 0

    # Neighbours first inside each kind, which keeps the order of the axis where it can be kept.
    return sorted(found, key=lambda v: (kind(v), f2.combine(columns, v)))


_LANE_BITS = 5
# PTX ISA, "redux.sync": sm_80 and newer, 32-bit integers.
_REDUX = {
    arith.AddI.name: "add",
    arith.AndI.name: "and",
    arith.OrI.name: "or",
    arith.XOrI.name: "xor",
    arith.MinSI.name: "min",
    arith.MaxSI.name: "max",
    arith.MinUI.name: "umin",
    arith.MaxUI.name: "umax",
}


def lower_reduce(ctx: Lowering, op: Operation, *operands: Registers) -> Sequence[Registers]:
    """Lower `tt.reduce`: combine along the axis; threads get the results of their coordinates."""
    plan = _plan(op)
    combine = Combine(ctx, op)
    by_register = _over_lanes(combine, plan, _in_thread(combine, plan, elements_of(operands)))
    reduced = [by_register[register] for register in plan.kept]
    if plan.warp_steps:
        reduced = _over_warps(combine, plan, reduced)
    return [list(values) for values in zip(*reduced, strict=True)]


def _plan(op: Operation) -> ReductionPlan:
    reduce = tt.Reduce(op)
    layout, values = Lowering.layout(reduce.sources[0]), len(reduce.sources)
    try:
        return plan_reduction(layout, reduce.axis, len(reduce.combine.operations) - 1, values)
    except LayoutError as error:
        raise LoweringError.at(op, f"{op.name}: {error}") from error


def _in_thread(combine: Combine, plan: ReductionPlan, elements: list[Element]) -> list[Element]:
    """Combine registers as pairs, pairs of pairs, …: short chains of dependent instructions."""
    for step in plan.register_steps:
        # Registers that an earlier step has combined hold the very same element.
        made: dict[tuple[int, int], Element] = {}
        combined = []
        for register, own in enumerate(elements):
            other = elements[register ^ step.register]
            pair = (other, own) if step.is_second.of_register(register) else (own, other)
            key = (id(pair[0]), id(pair[1]))
            if key not in made:
                made[key] = combine(*pair)
            combined.append(made[key])
        elements = combined
    return elements


def _over_lanes(
    combine: Combine, plan: ReductionPlan, elements: list[Element]
) -> dict[int, Element]:
    """Combine lanes by butterfly shuffles, or a whole warp of 32-bit integers by one redux.sync."""
    wanted = set(plan.kept)
    if any(step.register for step in plan.lane_steps):
        wanted = set(range(len(elements)))
    found = {register: elements[register] for register in sorted(wanted)}
    redux = _redux(combine.op, plan) if combine.ctx.target.has(REDUX) else None
    if redux is not None:
        name = f"llvm.nvvm.redux.sync.{redux}"
        every = integer("i32", FULL_WARP)
        emit = combine.ctx.emit
        return {r: (emit.intrinsic(name, value, every),) for r, (value,) in found.items()}
    if plan.leaves_to_leaders:
        return _by_leaders(combine, plan.lane_steps, found, is_for_all=not plan.warp_steps)
    for step in plan.lane_steps:
        found = _butterfly(combine, step, found)
    return found


def _by_leaders(
    combine: Combine, steps: tuple[Step, ...], elements: dict[int, Element], is_for_all: bool
) -> dict[int, Element]:
    """The results of `_butterfly`, in the lanes whose elements come first or, if asked, in all.

    Those lanes combine in the right order without testing which lane comes second. Other lanes make
    numbers that nobody reads.
    """
    ctx = combine.ctx
    for step in steps:
        different = {id(own): own for own in elements.values()}
        # All shuffles first: none of them waits for a combination.
        others = {key: combine.shuffled(own, step.lane) for key, own in different.items()}
        made = {key: combine(own, others[key]) for key, own in different.items()}
        elements = {register: made[id(own)] for register, own in elements.items()}
    if combine.is_commutative or not is_for_all:
        return elements
    with ctx.emit.in_entry():
        leader = ctx.emit.bit_and(ctx.lane, ~followers(steps) & (WARP_SIZE - 1))
    different = {id(own): own for own in elements.values()}
    led = {
        key: tuple(ctx.shuffle("idx", value, leader) for value in own)
        for key, own in different.items()
    }
    return {register: led[id(own)] for register, own in elements.items()}


def _butterfly(combine: Combine, step: Step, elements: dict[int, Element]) -> dict[int, Element]:
    others: dict[int, Element] = {}
    for element in elements.values():
        if id(element) not in others:
            others[id(element)] = combine.shuffled(element, step.lane)
    made: dict[tuple[int, int, int], Element] = {}
    result = {}
    for register, own in elements.items():
        source = elements[register ^ step.register]
        key = (id(own), id(source), step.is_second.of_register(register))
        if key not in made:
            is_second = combine.parity(step.is_second, register)
            made[key] = combine.ordered(own, others[id(source)], is_second)
        result[register] = made[key]
    return result


def _redux(op: Operation, plan: ReductionPlan) -> str | None:
    """Name of the redux.sync that does all lane steps, or None if none does."""
    if len(plan.lane_steps) != _LANE_BITS or any(step.register for step in plan.lane_steps):
        return None
    if element_of(tt.Reduce(op).sources[0].type) != I32:
        return None
    single = single_op(op)
    return None if single is None else _REDUX.get(single.name)


def _over_warps(combine: Combine, plan: ReductionPlan, elements: list[Element]) -> list[Element]:
    """Exchange parts between warps through shared memory; return the combined elements."""
    ctx, sizes = combine.ctx, _element_bytes(combine.op)
    scratch = ctx.scratch(combine.op)
    gathered = plan.gathered if plan.spread is None else plan.spread.gathered
    read = exchange_tiles(ctx, scratch, plan.partial, gathered, _tiles(elements), sizes)
    parts = 1 << len(plan.warp_steps) - len(plan.part_steps)
    found = elements_of(read)
    combined = [_tree(combine, found[i : i + parts]) for i in range(0, len(found), parts)]
    if plan.part_steps:
        shared_out = dict(enumerate(combined))
        combined = list(_by_leaders(combine, plan.part_steps, shared_out, is_for_all=True).values())
    if plan.spread is None:
        return combined
    # Elsewhere than the parts, which other warps may still be reading.
    place = ctx.emit.gep(scratch, "i8", sum(_part_bytes(plan, sizes)))
    spread, result = plan.spread.combined, plan.spread.result
    return elements_of(exchange_tiles(ctx, place, spread, result, _tiles(combined), sizes))


def _tiles(elements: Sequence[Element]) -> list[Registers]:
    return [list(values) for values in zip(*elements, strict=True)]


def _tree(combine: Combine, parts: Sequence[Element]) -> Element:
    while len(parts) > 1:
        parts = [combine(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _element_bytes(op: Operation) -> list[int]:
    return [memory_bits(element_of(value.type)) // 8 for value in op.operands]


def reduce_scratch_bytes(op: Operation) -> int:
    """Bytes of shared memory that a tt.reduce needs."""
    plan = _plan(op)
    if not plan.warp_steps:
        return 0
    sizes = _element_bytes(op)
    results = 0
    if plan.spread is not None:
        spread, result = plan.spread.combined, plan.spread.result
        results = sum(trip_bytes(spread, result, size) for size in sizes)
    return sum(_part_bytes(plan, sizes)) + results


def _part_bytes(plan: ReductionPlan, sizes: Sequence[int]) -> list[int]:
    gathered = plan.gathered if plan.spread is None else plan.spread.gathered
    return [trip_bytes(plan.partial, gathered, size) for size in sizes]


LOWERINGS: dict[str, Lower] = {tt.Reduce.name: lower_reduce}
