"""Lowering of ops that make, reshape and rearrange tiles, and of gather, histogram and flip."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.types import element_of, shape_of
from tkdebug.compiler.layouts import REGISTER, LinearLayout, f2
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import TYPE_BITS, Lowering
from tkdebug.compiler.targets.nvptx.lowering.reductions.steps import (
    axis_vectors,
    split_place,
    thread_columns,
)
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.access import load_vector
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.exchange import (
    distance_bytes,
    from_distance,
    read_rows,
    tile_bytes,
    write_rows,
)
from tkdebug.compiler.targets.nvptx.lowering.types import (
    Lower,
    LoweringError,
    Registers,
    memory_bits,
)


def lower_make_range(ctx: Lowering, op: Operation) -> Sequence[Registers]:
    """Lower `tt.make_range`: each register's coordinate, plus `start`."""
    view = tt.MakeRange(op)
    start, layout = view.start, ctx.layout(op.result)
    is_fresh = view.rereads_thread
    coordinates = ctx.fresh_coordinates(layout) if is_fresh else ctx.coordinates(layout)
    return ([ctx.emit.add(index, integer("i32", start)) for (index,) in coordinates],)


def lower_splat(ctx: Lowering, op: Operation, x: Registers) -> Sequence[Registers]:
    """Lower `tt.splat`: the value in every register."""
    return (x * ctx.register_count(op.result),)


def lower_same_registers(ctx: Lowering, op: Operation, x: Registers) -> Sequence[Registers]:
    """Return the same registers: only the layout's axes change (expand_dims, trans, reshape)."""
    if len(x) != ctx.register_count(op.result):
        raise LoweringError.at(op, f"{op.name}: the layout would move data; convert it before")
    return (x,)


def lower_unsplat(ctx: Lowering, op: Operation, x: Registers) -> Sequence[Registers]:
    """Lower `tt.unsplat`: the only element, which every thread holds."""
    return (x[:1],)


def lower_broadcast(ctx: Lowering, op: Operation, x: Registers) -> Sequence[Registers]:
    """Lower `tt.broadcast`: take the source's register at the coordinates, cut to its extents."""
    source, target = ctx.layout(tt.Broadcast(op).source), ctx.layout(op.result)
    picked = _picked_registers(source, target)
    if picked is None:
        raise LoweringError.at(op, f"tt.broadcast: {source} lacks registers of {target}")
    return ([x[register] for register in picked],)


@lru_cache(maxsize=1024)
def _picked_registers(source: LinearLayout, target: LinearLayout) -> tuple[int, ...] | None:
    """Return the source's register for each of the target's, or None if one of these has none.

    The source's register depends linearly on the target's, so the bits of the latter are enough.
    """
    span, sizes = f2.Span(source.packed_bases(REGISTER)), dict(source.outs)
    bits = []
    for packed in target.packed_bases(REGISTER):
        here = {d: i if sizes[d] > 1 else 0 for d, i in target.unpack_out(packed).items()}
        register = span.solve(source.pack_out(here))
        if register is None:
            return None
        bits.append(register)
    return f2.spanned(bits)


def lower_join(ctx: Lowering, op: Operation, a: Registers, b: Registers) -> Sequence[Registers]:
    """Lower `tt.join`: register bit 0 selects one of the two tiles."""
    return ([value for pair in zip(a, b, strict=True) for value in pair],)


def lower_split(ctx: Lowering, op: Operation, x: Registers) -> Sequence[Registers]:
    """Lower `tt.split`: even and odd registers."""
    return (x[::2], x[1::2])


def lower_cat(ctx: Lowering, op: Operation, a: Registers, b: Registers) -> Sequence[Registers]:
    """Lower `tt.cat`: the highest register bit selects one of the two tiles."""
    return ([*a, *b],)


def lower_hint(ctx: Lowering, op: Operation, x: Registers) -> Sequence[Registers]:
    """Forward the operand: the analyses have read the assumption."""
    return (x,)


_BIN_BYTES = 4


def _element_bytes(op: Operation) -> int:
    return memory_bits(element_of(tt.AlongAxis(op).source.type)) // 8


# Gather


def lower_gather(
    ctx: Lowering, op: Operation, source: Registers, index: Registers
) -> Sequence[Registers]:
    """Lower `tt.gather`: write the source to shared memory, and read it at the indices.

    Indices wrap, so that none reads beyond the source.
    """
    layout = ctx.layout(op.result)
    if ctx.layout(tt.Gather(op).indices) != layout:
        raise LoweringError.at(op, "tt.gather: the index lies in another layout than the result")
    base = ctx.scratch(op)
    element_bytes = _element_bytes(op)
    write_rows(ctx, base, ctx.layout(tt.Gather(op).source), source, element_bytes)
    ctx.barrier()
    emit, axis = ctx.emit, tt.Gather(op).axis
    shape = shape_of(tt.Gather(op).source.type)
    gathered = []
    for place, coordinates in zip(index, ctx.coordinates(layout), strict=True):
        width = TYPE_BITS[place.type]
        wanted = emit.cast("trunc" if width > 32 else "zext", place, "i32")
        at = list(coordinates)
        at[axis] = emit.bit_and(wanted, shape[axis] - 1)
        offset = integer("i32", 0)
        for extent, coordinate in zip(shape, at, strict=True):
            offset = emit.add(emit.mul(offset, extent), coordinate)
        address = emit.gep(base, "i8", emit.mul(offset, element_bytes))
        gathered += load_vector(ctx, address, source[0].type, 1)
    return (gathered,)


def gather_scratch_bytes(op: Operation) -> int:
    """Bytes of shared memory that a tt.gather needs."""
    return tile_bytes(shape_of(tt.Gather(op).source.type), _element_bytes(op))


# Histogram


def lower_histogram(
    ctx: Lowering, op: Operation, values: Registers, mask: Registers | None = None
) -> Sequence[Registers]:
    """Lower `tt.histogram` to atomic additions in shared memory."""
    bins = tt.Histogram(op).bins
    base, layout = ctx.scratch(op), ctx.layout(op.result)
    zeros = [integer("i32", 0)] * ctx.register_count(op.result)
    write_rows(ctx, base, layout, zeros, _BIN_BYTES)
    ctx.barrier()
    owner = ctx.owner(ctx.layout(tt.Histogram(op).source))
    for register, value in enumerate(values):
        if register in _copies(ctx.layout(tt.Histogram(op).source)):
            continue
        wide, counted = _bin(ctx, op, value, bins)
        for condition in (owner, None if mask is None else mask[register]):
            if condition is not None:
                counted = ctx.emit.binary("and", counted, condition)
        address = ctx.emit.gep(base, "i8", ctx.emit.mul(wide, _BIN_BYTES))
        pointer = ctx.emit.cast("ptrtoint", address, "i32")
        ctx.emit.asm("@$1 red.shared.add.u32 [$0], 1;", "r,b,~{memory}", "void", (pointer, counted))
    ctx.barrier()
    return (read_rows(ctx, base, layout, "i32", _BIN_BYTES),)


def _bin(ctx: Lowering, op: Operation, value: LLVMValue, bins: int) -> tuple[LLVMValue, LLVMValue]:
    """The number of a value's bin (i32), and whether it has one (i1)."""
    emit = ctx.emit
    is_unsigned = tt.Histogram(op).unsigned or value.type == "i1"
    width = TYPE_BITS[value.type]
    if width < 32:
        value = emit.cast("zext" if is_unsigned else "sext", value, "i32")
    # Negative numbers are large unsigned ones.
    counted = emit.icmp("ult", value, bins)
    return emit.cast("trunc", value, "i32"), counted


def _copies(layout: LinearLayout) -> frozenset[int]:
    """Registers that hold copies of another one's element."""
    mask = layout.free_masks.get("register", 0)
    return frozenset(r for r in range(layout.in_size("register")) if r & mask)


def histogram_scratch_bytes(op: Operation) -> int:
    """Bytes of shared memory that a tt.histogram needs."""
    return tile_bytes(shape_of(op.result.type), _BIN_BYTES)


# Flip


def lower_flip(ctx: Lowering, op: Operation, x: Registers) -> Sequence[Registers]:
    """Lower `tt.flip`: exchange with the element at the other end, at one XOR distance for all."""
    layout = ctx.layout(op.result)
    register, lane, warp = _flip_distance(op)
    base = ctx.scratch(op) if warp else None
    moved = from_distance(ctx, base, layout, x, lane, warp, _element_bytes(op))
    return ([moved[index ^ register] for index in range(len(moved))],)


def _flip_distance(op: Operation) -> tuple[int, int, int]:
    layout = Lowering.layout(op.result)
    first, bits = axis_vectors(layout, tt.Flip(op).axis)
    return axis_distance(layout, ((1 << bits) - 1) << first)


def axis_distance(layout: LinearLayout, moved: int) -> tuple[int, int, int]:
    """(register, lane, warp) that differ where packed coordinates differ by `moved`."""
    found = layout.solve(moved)
    known = len(thread_columns(layout))
    assert not found >> known, "the blocks of a cluster hold parts of the axis"
    return split_place(layout, found)


def flip_scratch_bytes(op: Operation) -> int:
    """Bytes of shared memory that a tt.flip needs."""
    return distance_bytes(Lowering.layout(op.result), _element_bytes(op), _flip_distance(op)[2])


LOWERINGS: dict[str, Lower] = {
    tt.MakeRange.name: lower_make_range,
    tt.Splat.name: lower_splat,
    tt.Unsplat.name: lower_unsplat,
    tt.ExpandDims.name: lower_same_registers,
    tt.Trans.name: lower_same_registers,
    tt.Reshape.name: lower_same_registers,
    tt.Broadcast.name: lower_broadcast,
    tt.Join.name: lower_join,
    tt.Split.name: lower_split,
    tt.Cat.name: lower_cat,
    tt.Hint.name: lower_hint,
    tt.Gather.name: lower_gather,
    tt.Histogram.name: lower_histogram,
    tt.Flip.name: lower_flip,
}
