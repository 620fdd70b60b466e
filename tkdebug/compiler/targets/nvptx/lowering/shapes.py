"""Lowering of ops that make, reshape and rearrange tiles without moving data between threads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.layouts import REGISTER, LinearLayout, f2
from tkdebug.compiler.targets.nvptx.emitter import integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.errors import LoweringError
from tkdebug.compiler.targets.nvptx.lowering.types import Lower, Registers


def lower_make_range(ctx: Lowering, op: Operation) -> Sequence[Registers]:
    """The coordinate, from `start` on."""
    view = tt.MakeRange(op)
    start, layout = view.start, ctx.layout(op.result)
    anew = view.rereads_thread
    coordinates = ctx.coordinates_anew(layout) if anew else ctx.coordinates(layout)
    return ([ctx.emit.add(index, integer("i32", start)) for (index,) in coordinates],)


def lower_splat(ctx: Lowering, op: Operation, x: Registers) -> Sequence[Registers]:
    """The same value in every register."""
    return (x * ctx.register_count(op.result),)


def lower_same_registers(ctx: Lowering, op: Operation, x: Registers) -> Sequence[Registers]:
    """Only the layout's reading changes (expand_dims, trans, reshape)."""
    if len(x) != ctx.register_count(op.result):
        raise LoweringError.at(op, f"{op.name}: the layout would move data; convert it before")
    return (x,)


def lower_unsplat(ctx: Lowering, op: Operation, x: Registers) -> Sequence[Registers]:
    """The only element, which every thread holds."""
    return (x[:1],)


def lower_broadcast(ctx: Lowering, op: Operation, x: Registers) -> Sequence[Registers]:
    """Each register takes the source's register at its coordinates, cut to the source's extents."""
    source, target = ctx.layout(tt.Broadcast(op).source), ctx.layout(op.result)
    picked = _picked_registers(source, target)
    if picked is None:
        raise LoweringError.at(op, f"tt.broadcast: {source} lacks registers of {target}")
    return ([x[register] for register in picked],)


@lru_cache(maxsize=1024)
def _picked_registers(source: LinearLayout, target: LinearLayout) -> tuple[int, ...] | None:
    """The source's register for each of the target's; None where it has none for one of them.

    Which one it is depends linearly on the target's, so the bits of the latter are enough.
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
    """Register bit 0 selects one of the two tiles."""
    return ([value for pair in zip(a, b, strict=True) for value in pair],)


def lower_split(ctx: Lowering, op: Operation, x: Registers) -> Sequence[Registers]:
    """Even and odd registers."""
    return (x[::2], x[1::2])


def lower_cat(ctx: Lowering, op: Operation, a: Registers, b: Registers) -> Sequence[Registers]:
    """The highest register bit selects one of the two tiles."""
    return ([*a, *b],)


def lower_hint(ctx: Lowering, op: Operation, x: Registers) -> Sequence[Registers]:
    """The analyses have read the assumption."""
    return (x,)


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
}
