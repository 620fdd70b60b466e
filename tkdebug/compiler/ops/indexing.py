"""Moving elements around inside tiles: gather, histogram, flip; and grouped program orders."""

from __future__ import annotations

from typing import Any

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.describe import describe
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dtypes import block_type
from tkdebug.compiler.ir.core import Attribute
from tkdebug.compiler.ops import conversion, math, operators
from tkdebug.compiler.ops.arguments import (
    axis_argument,
    int_argument,
    shape_argument,
    tile_argument,
)
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import scalar_dtype, tensor


def _emit_gather(emit: Emitter, src: object, index: object, axis: object) -> tensor:
    """The elements of `src` at the integer tile `index` along `axis`.

    Args:
        emit: where to emit.
        src: tile to take from.
        index: integer tile, of src's shape but along `axis`; each from 0 to the extent - 1.
        axis: constant axis; negative ones count from the end.
    """
    source, places = tile_argument(src, "gather"), tile_argument(index, "gather: index")
    if not scalar_dtype(places).is_int():
        raise SemanticError(f"gather: index must be an integer tile, got {places.dtype}")
    rank = len(source.shape)
    if len(places.shape) != rank:
        raise SemanticError(
            "gather: source and index tensors must have the same rank, "
            f"got {list(source.shape)} and {list(places.shape)}"
        )
    place = axis_argument(axis, rank, "gather")
    for other, (have, want) in enumerate(zip(places.shape, source.shape, strict=True)):
        if other != place and have != want:
            raise SemanticError(
                f"gather: axis {other} of the index has {have} elements, "
                f"but {want} in the source; they may differ only along axis {place}"
            )
    result = block_type(source.type.scalar, places.shape)
    return emit.value(tt.Gather, [source, places], result, axis=place)


def _emit_histogram(emit: Emitter, input: object, num_bins: object, mask: object = None) -> tensor:
    """How often each integer from 0 to `num_bins` - 1 occurs in a tile of one axis, int32.

    Args:
        emit: where to emit.
        input: integer tile of one axis; values outside the bins are not counted.
        num_bins: constant power of 2.
        mask: int1 tile; elements where it is false are not counted.
    """
    value = tile_argument(input, "histogram")
    if len(value.shape) != 1:
        raise SemanticError(
            f"histogram only supports tiles of one axis, got {list(value.shape)}; use tl.ravel(x)"
        )
    if not scalar_dtype(value).is_int():
        raise SemanticError(f"histogram only supports integers, got {value.dtype}")
    if scalar_dtype(value).primitive_bitwidth != 32 and not emit.is_before(3, 9):
        raise SemanticError(
            f"histogram only supports 32-bit integers, got {value.dtype}; cast with .to(tl.int32)"
        )
    (bins,) = shape_argument(int_argument(num_bins, "histogram: num_bins", 1), "histogram")
    operands = [value]
    if mask is not None:
        limit = conversion.to_tensor(emit, mask)
        if limit.dtype != dt.int1:
            raise SemanticError(
                f"histogram: mask must be int1 (a comparison), got {describe(limit)}"
            )
        operands.append(conversion.broadcast_to(emit, limit, value.shape))
    attributes: dict[str, Attribute] = {"bins": bins}
    if scalar_dtype(value).is_int_unsigned():
        attributes["unsigned"] = True
    return emit.value(tt.Histogram, operands, block_type(dt.int32, (bins,)), **attributes)


def _emit_flip(emit: Emitter, x: object, dim: object = None) -> tensor:
    """The elements of `x` in reverse order along `dim`, the last axis by default."""
    value = tile_argument(x, "flip")
    axis = axis_argument(-1 if dim is None else dim, len(value.shape), "flip")
    if value.shape[axis] == 1:
        return value
    return emit.value(tt.Flip, [value], value.type, axis=axis)


def _emit_swizzle2d(
    emit: Emitter, i: Any, j: Any, size_i: Any, size_j: Any, size_g: Any
) -> tuple[Any, Any]:
    """Row-major position (i, j) of a size_i x size_j matrix in column-major groups of rows.

    Each group has `size_g` rows, the last maybe fewer; gives the new row and column.
    """

    def apply(name: str, left: Any, right: Any) -> Any:
        return operators.binary(emit, name, left, right)

    i, j, size_i, size_j, size_g = (
        conversion.to_tensor(emit, value) for value in (i, j, size_i, size_j, size_g)
    )
    linear = apply("add", apply("mul", i, size_j), j)
    group_elems = apply("mul", size_g, size_j)
    first_row = apply("mul", apply("floordiv", linear, group_elems), size_g)
    rows = math.extremum(emit, "min", apply("sub", size_i, first_row), size_g, None)
    inside = apply("mod", linear, group_elems)
    return apply("add", first_row, apply("mod", inside, rows)), apply("floordiv", inside, rows)


_BUILTINS: tuple[Builtin, ...] = (
    Builtin("gather", _emit_gather, member=True),
    Builtin("histogram", _emit_histogram, member=True),
    Builtin("flip", _emit_flip, member=True),
    Builtin("swizzle2d", _emit_swizzle2d),
)
LANGUAGE = {builtin.name: builtin for builtin in _BUILTINS}
