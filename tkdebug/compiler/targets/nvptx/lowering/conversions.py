"""Lowering of ttg.convert_layout by the plan of `layouts.classify_conversion`.

Fragments of tensor cores become rows by `stmatrix` where the target has it. A thread holds 2
elements of a row of 8 in a fragment, and would store them alone. `stmatrix` takes the rows of 8 x 8
matrices of 16-bit elements from the warp as a whole: each lane names the address of a row of 16
bytes. So the buffer is chosen for the lanes that name rows, and the other side reads whole rows.

Source: PTX ISA, "Warp-level matrix store instruction: stmatrix".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from tkdebug.compiler.dialects import ttg
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.types import element_of
from tkdebug.compiler.layouts import (
    LANE,
    OFFSET,
    REGISTER,
    WARP,
    LinearLayout,
    NoConversion,
    RegisterMoves,
    SharedTrip,
    ShufflePlan,
    ShuffleRound,
    classify_conversion,
    f2,
)
from tkdebug.compiler.layouts.conversion import plan_shared_trip, thread_vectors
from tkdebug.compiler.targets.nvptx.architectures import BANKS
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.access import (
    MatrixPlan,
    load_groups,
    plan_matrices,
    store_groups,
    store_matrices,
)
from tkdebug.compiler.targets.nvptx.lowering.types import Lower, Registers, memory_bits
from tkdebug.compiler.targets.target import STMATRIX

_ELEMENT_BYTES = 2
_CACHED_PLANS = 256


@lru_cache(_CACHED_PLANS)
def plan_matrix_trip(source: LinearLayout, target: LinearLayout) -> SharedTrip | None:
    """Plan a trip of 16-bit elements through a buffer into which `stmatrix` can store `source`.

    Returns:
        The trip, whose `stores` are not `source`'s; None if `source` holds copies, or no
        fragments of rows that `target` reads.
    """
    if len(source.packed_bases(LANE)) != 5 or any(source.free_masks.values()):
        return None
    if len(f2.independent(source.packed_bases(REGISTER))) != source.in_bits(REGISTER):
        return None
    for row, naming in _namings(source, target):
        if len(f2.independent(row, over=thread_vectors(naming, target))) == len(row):
            return plan_shared_trip(naming, target, _ELEMENT_BYTES, BANKS, row)
    return None


def _namings(
    source: LinearLayout, target: LinearLayout
) -> Iterator[tuple[tuple[int, ...], LinearLayout]]:
    """Yield, for each choice of rows, a row's elements and the layout in which lanes name rows."""
    registers, lanes = source.packed_bases(REGISTER), source.packed_bases(LANE)
    held = f2.Span(target.packed_bases(REGISTER))
    for index, pair in enumerate(registers):
        rest = [*registers[:index], *registers[index + 1 :]]
        matrices = [*rest[:2], 0, 0][:2]
        # A pair of registers is two elements of a row; or of a column, with .trans.
        for row, names in (((pair, *lanes[:2]), lanes[2:]), (lanes[2:], (pair, *lanes[:2]))):
            if all(element in held for element in row):
                ins = {
                    REGISTER: (*row, *rest[2:]),
                    LANE: (*names, *matrices),
                    WARP: source.packed_bases(WARP),
                }
                kept = tuple((dim, ins.get(dim, vectors)) for dim, vectors in source.ins)
                yield row, LinearLayout(kept, source.outs)


def lower_convert_layout(ctx: Lowering, op: Operation, x: Registers) -> Sequence[Registers]:
    """Lower `ttg.convert_layout` to register moves, shuffles or a trip through shared memory."""
    source, target = ctx.layout(ttg.ConvertLayout(op).source), ctx.layout(op.result)
    element_bytes = memory_bits(element_of(op.result.type)) // 8
    match classify_conversion(source, target, element_bytes, BANKS):
        case NoConversion():
            return (x,)
        case RegisterMoves(sources):
            return ([x[register] for register in sources],)
        case ShufflePlan() as plan:
            return (_shuffled(ctx, plan, x),)
        case SharedTrip() as trip:
            return (_through_shared(ctx, op, trip, source, target, x),)


def _shuffled(ctx: Lowering, plan: ShufflePlan, x: Registers) -> Registers:
    filled: dict[int, LLVMValue] = {}
    for round_ in plan.rounds:
        _shuffle_round(ctx, round_, x, filled)
    return [filled[register] for register in plan.copies]


def _shuffle_round(
    ctx: Lowering, round_: ShuffleRound, x: Registers, filled: dict[int, LLVMValue]
) -> None:
    emit = ctx.emit
    offered = _choose(ctx, round_.source_register, x)
    if round_.lane_xor == 0:
        received = offered
    elif round_.lane_xor is not None:
        received = ctx.shuffle("bfly", offered, round_.lane_xor)
    else:
        lanes = [integer("i32", lane) for lane in round_.source_lane]
        received = ctx.shuffle("idx", offered, _lane_table(ctx, lanes))
    for register in sorted({r for r in round_.target_register if r is not None}):
        lanes_of = [target == register for target in round_.target_register]
        if all(lanes_of):
            filled[register] = received
            continue
        if register not in filled:
            filled[register] = received
            continue
        here = _lane_in(ctx, lanes_of)
        filled[register] = emit.select(here, received, filled[register])


def _choose(ctx: Lowering, registers: Sequence[int | None], x: Registers) -> LLVMValue:
    """Return the value that each lane offers: register `registers[lane]`."""
    wanted = sorted({register for register in registers if register is not None})
    chosen = x[wanted[0]]
    for register in wanted[1:]:
        here = _lane_in(ctx, [source == register for source in registers])
        chosen = ctx.emit.select(here, x[register], chosen)
    return chosen


def _lane_in(ctx: Lowering, lanes: Sequence[bool]) -> LLVMValue:
    """i1: whether this lane is one of the marked ones, by a bit of a constant."""
    mask = sum(1 << lane for lane, marked in enumerate(lanes) if marked)
    lane = ctx.lane
    with ctx.emit.in_entry():
        bits = ctx.emit.binary("lshr", integer("i32", mask), lane)
        return ctx.emit.cast("trunc", bits, "i1")


def _lane_table(ctx: Lowering, lanes: Sequence[LLVMValue]) -> LLVMValue:
    """Return this lane's entry of a table, from the lane's bits if the table is affine over F2."""
    numbers = [lane.constant or 0 for lane in lanes]
    bases = [numbers[1 << bit] ^ numbers[0] for bit in range(5)]
    value = integer("i32", numbers[0])
    this = ctx.lane
    with ctx.emit.in_entry():
        if all(
            numbers[lane] == numbers[0] ^ _combined(bases, lane) for lane in range(len(numbers))
        ):
            for bit, base in enumerate(bases):
                one = ctx.emit.bit_and(ctx.emit.lshr(this, bit), 1)
                value = ctx.emit.xor(value, ctx.emit.mul(one, base))
            return value
        for lane in range(1, len(numbers)):
            is_lane = ctx.emit.icmp("eq", this, lane)
            value = ctx.emit.select(is_lane, lanes[lane], value)
        return value


def _combined(bases: Sequence[int], bits: int) -> int:
    total = 0
    for bit, base in enumerate(bases):
        if bits >> bit & 1:
            total ^= base
    return total


def _through_shared(
    ctx: Lowering,
    op: Operation,
    trip: SharedTrip,
    source: LinearLayout,
    target: LinearLayout,
    x: Registers,
) -> Registers:
    element = x[0].type
    element_bytes = memory_bits(element_of(op.result.type)) // 8
    base = ctx.scratch(op)
    by_matrix = _matrix_trip(ctx, source, target, element_bytes)
    if by_matrix is not None:
        trip, plan = by_matrix
        rows = matrix_addresses(ctx, base, plan, trip.buffer, element_bytes)
        store_matrices(ctx, rows, plan, x)
    else:
        writes = shared_addresses(ctx, base, source, trip.buffer, trip.stores, element_bytes)
        store_groups(ctx, writes, trip.stores, x, ctx.owner(source))
    ctx.barrier()
    reads = shared_addresses(ctx, base, target, trip.buffer, trip.loads, element_bytes)
    return load_groups(ctx, reads, trip.loads, trip.copies, element)


def _matrix_trip(
    ctx: Lowering, source: LinearLayout, target: LinearLayout, element_bytes: int
) -> tuple[SharedTrip, MatrixPlan] | None:
    """Return a trip with stores by `stmatrix`, and the plan of these; None if there is none.

    They are as wide as accesses can be. If both sides have vectors of that width anyway, the trip
    takes as long on an H200, but fewer registers: a row's elements stay in order.
    """
    if not ctx.target.has(STMATRIX) or element_bytes != 2:
        return None
    trip = plan_matrix_trip(source, target)
    plan = None if trip is None else plan_matrices(source, trip.buffer, element_bytes)
    return None if trip is None or plan is None else (trip, plan)


def matrix_addresses(
    ctx: Lowering,
    base: LLVMValue,
    plan: MatrixPlan,
    buffer: LinearLayout,
    element_bytes: int,
    fixed_offset: int = 0,
) -> list[LLVMValue]:
    """The address of the row that this lane names, for each access of `plan`."""
    accesses = [(index,) for index in range(len(plan.groups))]
    return shared_addresses(ctx, base, plan.rows, buffer, accesses, element_bytes, fixed_offset)


def shared_addresses(
    ctx: Lowering,
    base: LLVMValue,
    layout: LinearLayout,
    buffer: LinearLayout,
    groups: Sequence[Sequence[int]],
    element_bytes: int,
    fixed_offset: int = 0,
) -> list[LLVMValue]:
    """The address in a buffer where each group of registers begins.

    Args:
        ctx: the kernel.
        base: pointer to the buffer.
        layout: the layout of the tensor in registers.
        buffer: the layout of the buffer, offset -> coordinates.
        groups: registers that are consecutive in the buffer, in order.
        element_bytes: size of an element.
        fixed_offset: XORed to all offsets, in elements.
    """
    to_offset = layout.invert_and_compose(buffer)
    thread = ctx.thread_part(to_offset.sublayout((LANE, WARP), (OFFSET,)))[OFFSET]
    thread_bits = 0
    for dim in (LANE, WARP):
        for vector in to_offset.packed_bases(dim):
            thread_bits |= to_offset.unpack_out(vector)[OFFSET]
    offsets = [
        to_offset.unpack_out(v)[OFFSET] for v in f2.spanned(to_offset.packed_bases(REGISTER))
    ]
    shift = element_bytes.bit_length() - 1
    addresses = []
    pointers: dict[int, LLVMValue] = {}
    for group in groups:
        offset = offsets[group[0]] ^ fixed_offset
        # Bits that threads use too are XORed in; the others are an immediate of the access.
        mixed, plain = offset & thread_bits, offset & ~thread_bits
        if mixed not in pointers:
            index = ctx.emit.shl(ctx.emit.xor(thread, integer("i32", mixed)), shift)
            pointers[mixed] = ctx.emit.gep(base, "i8", index)
        addresses.append(ctx.emit.gep(pointers[mixed], "i8", plain * element_bytes))
    return addresses


LOWERINGS: dict[str, Lower] = {ttg.ConvertLayout.name: lower_convert_layout}
