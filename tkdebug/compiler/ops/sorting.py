"""Sorting along the last axis: sort, topk, and one merge of a bitonic sequence.

Ops of their own rather than networks of reshapes and selects, so that every executor may sort in
its own best way.
"""

from __future__ import annotations

from tkdebug.compiler.describe import as_given
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dtypes import block_type
from tkdebug.compiler.ir.core import Attribute
from tkdebug.compiler.ops import conversion
from tkdebug.compiler.ops.arguments import axis_argument, tile_argument
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.reduce import widen_for_extremum
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import scalar_dtype, tensor


def _sortable(x: object, dim: object, what: str) -> tensor:
    value = tile_argument(x, what)
    rank = len(value.shape)
    if dim is not None and axis_argument(dim, rank, what) != rank - 1:
        raise SemanticError(
            f"{what}: only the last axis can be sorted, got dim {dim} of {rank} axes; "
            "permute the tile first"
        )
    return value


def _order(value: tensor, descending: object) -> dict[str, Attribute]:
    attributes: dict[str, Attribute] = {}
    if isinstance(descending, tensor):
        raise SemanticError(f"descending must be a constant, got {as_given(descending)}")
    if descending:
        attributes["descending"] = True
    element = scalar_dtype(value)
    if element.is_int_unsigned():
        attributes["unsigned"] = True
    return attributes


def _emit_sort(emit: Emitter, x: object, dim: object = None, descending: object = False) -> tensor:
    """The elements of `x` in order along its last axis.

    Args:
        emit: where to emit.
        x: tile.
        dim: the last axis, or None for it.
        descending: constant; whether the largest comes first.
    """
    value = _sortable(x, dim, "sort")
    return emit.value(tt.Sort, [value], value.type, **_order(value, descending))


def _emit_topk(
    emit: Emitter, x: object, k: object, dim: object = None, descending: object = True
) -> tensor:
    """The `k` largest elements of `x` along its last axis, largest first.

    Below 32 bits the result widens, as `tl.max` does, unless `k` is the whole axis.

    Args:
        emit: where to emit.
        x: tile.
        k: constant power of 2, at most the axis' extent.
        dim: the last axis, or None for it.
        descending: constant; if false, the `k` smallest, smallest first.
    """
    value = _sortable(x, dim, "topk")
    extent = value.shape[-1]
    if not isinstance(k, int) or k <= 0 or k & (k - 1) or k > extent:
        raise SemanticError(
            f"topk: k must be a constant power of 2 from 1 to {extent} (the last axis), "
            f"got {as_given(k)}"
        )
    if k == extent:
        return emit.value(tt.Sort, [value], value.type, **_order(value, descending))
    value = conversion.cast(emit, value, widen_for_extremum(scalar_dtype(value)))
    result = block_type(value.type.scalar, (*value.shape[:-1], k))
    return emit.value(tt.TopK, [value], result, k=k, **_order(value, descending))


def _emit_bitonic_merge(
    emit: Emitter, x: object, dim: object = None, descending: object = False
) -> tensor:
    """Sorts the last axis of `x` where it is bitonic: rises, then falls (or a rotation of that).

    Args:
        emit: where to emit.
        x: tile.
        dim: the last axis, or None for it.
        descending: constant; whether the largest comes first.
    """
    value = _sortable(x, dim, "bitonic_merge")
    return emit.value(tt.BitonicMerge, [value], value.type, **_order(value, descending))


_BUILTINS: tuple[Builtin, ...] = (
    Builtin("sort", _emit_sort, member=True),
    Builtin("topk", _emit_topk),
    Builtin("bitonic_merge", _emit_bitonic_merge),
)
LANGUAGE = {builtin.name: builtin for builtin in _BUILTINS}
