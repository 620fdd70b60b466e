"""How the layout of an op's result and those of its operands follow from each other.

One rule per op, in both directions: `result_layout` forward, `operand_layout` backward. Ops that
no rule covers (accesses, dots, reductions over control flow) are anchors: passes decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.types import shape_of
from tkdebug.compiler.layouts import LANE, REGISTER, WARP, LinearLayout, blocked, views

ELEMENTWISE_DIALECTS = ("arith.", "math.")
ELEMENTWISE = frozenset(
    (
        "tt.fp_to_fp",
        "tt.bitcast",
        "tt.ptr_to_int",
        "tt.int_to_ptr",
        "tt.precise_divf",
        "tt.precise_sqrt",
        "tt.addptr",
        "tt.hint",
        "tt.map_elementwise",
        "tt.elementwise_inline_asm",
        "tt.extern_elementwise",
        "tt.flip",
        "tt.sort",
        "tt.bitonic_merge",
        "tt.scan",
    )
)
# They make a tile out of scalars or nothing, in whichever layout is wanted.
SOURCES = frozenset(("tt.make_range", "tt.splat", "arith.constant"))
ACCESSES = frozenset(("tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas"))
VIEWS = frozenset(("tt.expand_dims", "tt.trans", "tt.reshape", "tt.broadcast", "tt.join", "tt.cat"))
_WARP_LANES = 32


def is_elementwise(op: Operation) -> bool:
    """Whether operands and results of `op` share one layout."""
    return op.name in ELEMENTWISE or (
        op.name.startswith(ELEMENTWISE_DIALECTS) and op.name not in SOURCES
    )


@lru_cache(1024)
def default_layout(shape: tuple[int, ...], num_warps: int) -> LinearLayout:
    """A layout for a tile that nothing prefers another for: threads along the last dimension."""
    rank = len(shape)
    lanes, warps, left_lanes, left_warps = [1] * rank, [1] * rank, _WARP_LANES, num_warps
    for d in reversed(range(rank)):
        lanes[d] = min(shape[d], left_lanes)
        left_lanes //= lanes[d]
        warps[d] = min(max(1, shape[d] // lanes[d]), left_warps)
        left_warps //= warps[d]
    if rank:
        lanes[0] *= left_lanes
        warps[0] *= left_warps
        made = blocked((1,) * rank, tuple(lanes), tuple(warps), tuple(reversed(range(rank))), shape)
        return made.without_zero_bases(REGISTER)
    bits = (num_warps - 1).bit_length()
    return LinearLayout(((REGISTER, ()), (LANE, (0,) * 5), (WARP, (0,) * bits), ("block", ())), ())


def broadcast_source(layout: LinearLayout, shape: Sequence[int]) -> LinearLayout:
    """The layout of a tile of `shape` that broadcasts to `layout` without moving data."""
    names = layout.out_dims
    outs = tuple(zip(names, shape, strict=True))
    cut = LinearLayout((), outs)
    ins = tuple(
        (
            d,
            tuple(
                cut.pack_out(
                    {
                        name: index if size > 1 else 0
                        for (name, size), index in zip(
                            outs, layout.unpack_out(v).values(), strict=True
                        )
                    }
                )
                for v in vectors
            ),
        )
        for d, vectors in layout.ins
    )
    return LinearLayout(ins, outs).without_zero_bases(REGISTER)


def join_layout(layout: LinearLayout) -> LinearLayout:
    """Two tiles in `layout` side by side in a new last dimension, told apart by register bit 0."""
    rank = len(layout.outs)
    wide = views.expand_dims(layout, rank)
    outs = (*wide.outs[:-1], (wide.outs[-1][0], 2))
    bit = 1 << layout.out_bits
    ins = tuple((d, (bit, *vs) if d == REGISTER else vs) for d, vs in wide.ins)
    return LinearLayout(ins, outs)


def split_source(layout: LinearLayout) -> LinearLayout | None:
    """`layout` with its registers in such an order that bit 0 runs over a last dimension of 2.

    None when not registers but threads run over it.
    """
    bit = 1 << (layout.out_bits - 1)
    registers = layout.packed_bases(REGISTER)
    others = [v for d, vs in layout.ins for v in vs if d != REGISTER or v != bit]
    if bit not in registers or any(v & bit for v in others):
        return None
    order = (bit, *(v for v in registers if v != bit))
    return LinearLayout(
        tuple((d, order if d == REGISTER else vs) for d, vs in layout.ins), layout.outs
    )


def split_layout(source: LinearLayout) -> LinearLayout:
    """The layout of each half of a tile in `source` (see `split_source`)."""
    outs = source.outs[:-1]
    ins = tuple((d, vs[1:] if d == REGISTER else vs) for d, vs in source.ins)
    return LinearLayout(ins, outs)


def cat_layout(layout: LinearLayout) -> LinearLayout:
    """Two tiles in `layout` one after the other along dim0, told apart by the highest register."""
    first, size = layout.outs[0]
    outs = ((first, 2 * size), *layout.outs[1:])
    grown = LinearLayout((), outs)
    ins = tuple(
        (d, tuple(grown.pack_out(layout.unpack_out(v)) for v in vs)) for d, vs in layout.ins
    )
    bit = grown.pack_out({first: size})
    return LinearLayout(tuple((d, (*vs, bit) if d == REGISTER else vs) for d, vs in ins), outs)


def result_layout(op: Operation, source: LinearLayout) -> LinearLayout | None:
    """The layout of the results when the (first tile) operand has `source`; None if undecided."""
    if is_elementwise(op):
        return source
    match op.name:
        case "tt.expand_dims":
            return views.expand_dims(source, _axis(op))
        case "tt.trans":
            return views.transpose(source, _order(op))
        case "tt.reshape":
            return views.reshape(source, shape_of(op.result.type))
        case "tt.join":
            return join_layout(source)
        case "tt.cat":
            return cat_layout(source)
        case "tt.split":
            wanted = split_source(source)
            return None if wanted is None else split_layout(wanted)
        case "tt.reduce":
            return views.slice_layout(source, _axis(op))
    return None


def operand_layout(op: Operation, result: LinearLayout) -> LinearLayout | None:
    """The layout that the tile operands need for the results to have `result`; None if undecided.

    For `tt.reduce` and `tt.split` many would do, so the answer is None.
    """
    if is_elementwise(op):
        return result
    match op.name:
        case "tt.expand_dims":
            return views.slice_layout(result, _axis(op))
        case "tt.broadcast":
            return broadcast_source(result, shape_of(op.operands[0].type))
        case "tt.trans":
            order = _order(op)
            back = tuple(order.index(d) for d in range(len(order)))
            return views.transpose(result, back)
        case "tt.reshape":
            return views.reshape(result, shape_of(op.operands[0].type))
        case "tt.join":
            rejoined = split_source(result)
            return split_layout(rejoined) if rejoined == result else None
        case "tt.cat":
            return _cat_source(result)
    return None


def _cat_source(result: LinearLayout) -> LinearLayout | None:
    registers = result.packed_bases(REGISTER)
    if not registers:
        return None
    first, size = result.outs[0]
    half = LinearLayout((), ((first, size // 2), *result.outs[1:]))
    if result.unpack_out(registers[-1])[first] != size // 2:
        return None
    ins = []
    for d, vectors in result.ins:
        kept = vectors[:-1] if d == REGISTER else vectors
        coordinates = [result.unpack_out(v) for v in kept]
        if any(c[first] & (size // 2) for c in coordinates):
            return None
        ins.append((d, tuple(half.pack_out(c) for c in coordinates)))
    made = LinearLayout(tuple(ins), half.outs)
    return made if cat_layout(made) == result else None


def _axis(op: Operation) -> int:
    axis = op.attributes["axis"]
    assert isinstance(axis, int)
    return axis


def _order(op: Operation) -> tuple[int, ...]:
    order = op.attributes["order"]
    assert isinstance(order, tuple)
    return tuple(axis for axis in order if isinstance(axis, int))
