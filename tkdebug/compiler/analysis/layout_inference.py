"""Derives the layouts of an op's results from those of its operands, and the other way round.

One rule per op, in both directions: `result_layout` forward, `operand_layout` backward. Ops that
no rule covers (accesses, dots, control flow) are anchors: passes decide. The effect of a view on a
layout is `layouts.views`; whether the layouts of finished GPU IR fit together is checked by
the verifier.
"""

from __future__ import annotations

from functools import lru_cache

from tkdebug.compiler.dialects import arith, tt, ttg
from tkdebug.compiler.dialects.interfaces import SameLayout
from tkdebug.compiler.ir import Module, Operation
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import ScalarType, TensorType, Type, element_of, shape_of
from tkdebug.compiler.layouts import LANE, REGISTER, WARP, LinearLayout, blocked, views
from tkdebug.errors import IRError

# Ops that make a tile out of scalars or nothing, in any layout.
SOURCES = names_of(tt.MakeRange, tt.Splat, arith.Constant)
ACCESSES = names_of(tt.Load, tt.Store, tt.Atomic)
VIEWS = frozenset(
    (
        tt.ExpandDims.name,
        tt.Trans.name,
        tt.Reshape.name,
        tt.Broadcast.name,
        tt.Join.name,
        tt.Cat.name,
    )
)


def is_elementwise(op: Operation) -> bool:
    """Whether operands and results of `op` share one layout."""
    return SameLayout.matches(op)


@lru_cache(1024)
def default_layout(shape: tuple[int, ...], num_warps: int, warp_size: int) -> LinearLayout:
    """The layout of a tile that no op prefers a layout for: threads along the last dimension."""
    rank = len(shape)
    lanes, warps, left_lanes, left_warps = [1] * rank, [1] * rank, warp_size, num_warps
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
    lane_bits, warp_bits = (warp_size - 1).bit_length(), (num_warps - 1).bit_length()
    threads = ((LANE, (0,) * lane_bits), (WARP, (0,) * warp_bits))
    return LinearLayout(((REGISTER, ()), *threads, ("block", ())), ())


def result_layout(op: Operation, source: LinearLayout) -> LinearLayout | None:
    """The layout of the results when the (first tile) operand has `source`; None if undecided."""
    if is_elementwise(op):
        return source
    match op.name:
        case tt.ExpandDims.name:
            return views.expand_dims(source, axis_of(op))
        case tt.Trans.name:
            return views.transpose(source, _order(op))
        case tt.Reshape.name:
            return views.reshape(source, shape_of(op.result.type))
        case tt.Join.name:
            return views.join(source)
        case tt.Cat.name:
            return views.concatenate(source)
        case tt.Split.name:
            ordered = views.split_source(source)
            return None if ordered is None else views.split(ordered)
        case tt.Reduce.name:
            return views.slice_layout(source, axis_of(op))
    return None


def operand_layout(op: Operation, result: LinearLayout) -> LinearLayout | None:
    """The layout that the tile operands need for the results to have `result`; None if undecided.

    For `tt.reduce` and `tt.split` several layouts would do, so the result is None.
    """
    if is_elementwise(op):
        return result
    match op.name:
        case tt.ExpandDims.name:
            return views.slice_layout(result, axis_of(op))
        case tt.Broadcast.name:
            return views.broadcast_source(result, shape_of(tt.Broadcast(op).source.type))
        case tt.Trans.name:
            order = _order(op)
            back = tuple(order.index(d) for d in range(len(order)))
            return views.transpose(result, back)
        case tt.Reshape.name:
            return views.reshape(result, shape_of(tt.Reshape(op).source.type))
        case tt.Join.name:
            return views.split(result) if views.split_source(result) == result else None
        case tt.Cat.name:
            return views.concatenate_source(result)
    return None


def num_warps_of(module: Module) -> int:
    """The number of warps of the kernel's blocks.

    Raises:
        IRError: the function has no `num_warps`.
    """
    if tt.Func.num_warps.key not in module.function.attributes:
        raise IRError(f"{module.name}: the function has no num_warps")
    return tt.Func(module.function).num_warps


def register_words(type_: Type) -> int:
    """The 32-bit registers of a thread that hold a tile of numbers; 0 for any other type."""
    if not isinstance(type_, TensorType) or type_.encoding is None:
        return 0
    element = element_of(type_)
    if not isinstance(element, ScalarType):
        return 0
    return type_.encoding.in_size(REGISTER) * element.bits // 32


def axis_of(op: Operation) -> int:
    """The attribute `axis` of a view or reduction."""
    if tt.ExpandDims.matches(op):
        return tt.ExpandDims(op).axis
    return tt.AlongAxis(op).axis if tt.AlongAxis.matches(op) else tt.Combining(op).axis


def _order(op: Operation) -> tuple[int, ...]:
    return tt.Trans(op).order if tt.Trans.matches(op) else ttg.MemDescTrans(op).order
