"""Tiles: creating them, changing their shape, moving elements around inside them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.describe import as_given, describe
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dtypes import block_type
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Attribute
from tkdebug.compiler.ops import conversion, math, operators
from tkdebug.compiler.ops.arguments import (
    axis_argument,
    dtype_argument,
    int_argument,
    list_argument,
    permutation_argument,
    shape_argument,
    tile_argument,
    type_argument,
)
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import scalar_dtype, tensor


def _emit_arange(emit: Emitter, start: object, end: object) -> tensor:
    """The int32 tile [start, start + 1, …, end - 1]; the length must be a power of 2."""
    for value in (start, end):
        if not isinstance(value, int):
            raise SemanticError(
                f"arange's arguments must be of type tl.constexpr, got {as_given(value)}"
            )
    assert isinstance(start, int)
    assert isinstance(end, int)
    extent = end - start
    if extent <= 0:
        raise SemanticError(f"arange's end {end} must be greater than its start {start}")
    if extent & (extent - 1):
        raise SemanticError(
            f"arange's range must be a power of 2, got {extent}; use triton.next_power_of_2 "
            "and mask the rest"
        )
    shape_argument((extent,), "arange")
    op = emit.op(tt.MakeRange, (), [ir.tile((extent,), ir.I32)], start=start, end=end)
    return tensor(op.result, block_type(dt.int32, (extent,)))


def full(emit: Emitter, shape: object, value: object, dtype: dt.dtype) -> tensor:
    """A tile of `shape` filled with the scalar `value` as `dtype`; a scalar for the shape ()."""
    dims = shape_argument(shape, "full") if shape not in ((), []) else ()
    if isinstance(value, tensor):
        if value.type.is_block() and (value.numel != 1 or dims):
            raise SemanticError(f"full: value must be a scalar, got {as_given(value)}")
        scalar = conversion.cast(emit, value, dtype)
    else:
        scalar = conversion.constant(emit, _to_python(value), dtype)
    return conversion.splat(emit, scalar, dims)


def _to_python(value: object) -> bool | int | float:
    if not isinstance(value, bool | int | float):
        raise SemanticError(f"expected a number, got {as_given(value)}")
    return value


def _emit_full(emit: Emitter, shape: object, value: object, dtype: object) -> tensor:
    """A tile of `shape` filled with the scalar `value` as `dtype`."""
    if dtype is None:
        raise SemanticError("full: dtype must be given")
    return full(emit, shape, value, dtype_argument(dtype, "full"))


def _emit_zeros(emit: Emitter, shape: object, dtype: object) -> tensor:
    """A tile of `shape` filled with 0 of `dtype`."""
    return full(emit, shape, 0, dtype_argument(dtype, "zeros"))


def _emit_zeros_like(emit: Emitter, input: tensor) -> tensor:
    """Zeros of the shape and dtype of `input`."""
    return full(emit, input.shape, 0, scalar_dtype(input))


def _emit_to(
    emit: Emitter,
    input: object,
    dtype: object,
    fp_downcast_rounding: object = None,
    bitcast: object = False,
) -> tensor:
    """`input` converted to `dtype`: to nearest even unless fp_downcast_rounding is "rtz".

    Float to integer truncates; anything to int1 is `!= 0`; fp8 saturates. With `bitcast` the bits
    are kept.
    """
    value = conversion.to_tensor(emit, input)
    target = type_argument(dtype, "to")
    rounding = fp_downcast_rounding
    if rounding not in (None, "rtne", "rtz"):
        raise SemanticError(f'fp_downcast_rounding must be "rtne" or "rtz", got {rounding!r}')
    source, target = value.type.scalar, target.scalar
    if source == target:
        return value
    if rounding is not None:
        is_downcast = (
            isinstance(source, dt.dtype)
            and isinstance(target, dt.dtype)
            and source.is_floating()
            and target.is_floating()
            and target.primitive_bitwidth < source.primitive_bitwidth
        )
        if not is_downcast:
            raise SemanticError(
                "fp_downcast_rounding is only for conversions to a narrower float, "
                f"got {source} to {target}"
            )
    # Every cast rounds to nearest even.
    named = None if rounding == "rtne" else rounding
    return conversion.cast(emit, value, target, named, bool(bitcast))


def _emit_to_tensor(emit: Emitter, x: object) -> tensor:
    """A Python number as a scalar; a tensor as it is.

    A bool becomes int1, an int the first of int32, uint32, int64 and uint64 that holds it, and a
    float fp32, or fp64 where it is outside the range of normal fp32 numbers.
    """
    return conversion.to_tensor(emit, x)


def _emit_broadcast_to(emit: Emitter, input: object, *shape: object) -> tensor:
    """`input` broadcast to `shape`."""
    return conversion.broadcast_to(
        emit, conversion.to_tensor(emit, input), shape_argument(shape, "broadcast_to")
    )


def _emit_broadcast(emit: Emitter, input: object, other: object) -> tuple[tensor, tensor]:
    """Both operands broadcast to their common shape."""
    return conversion.broadcast_pair(
        emit, conversion.to_tensor(emit, input), conversion.to_tensor(emit, other)
    )


def _emit_expand_dims(emit: Emitter, input: object, axis: object) -> tensor:
    """`input` with new axes of extent 1, at the place or places of the result that `axis` gives."""
    value = conversion.to_tensor(emit, input)
    axes = list_argument(axis, "expand_dims: axis")
    rank = len(value.shape) + len(axes)
    for a in axes:
        if not isinstance(a, int) or not -rank <= a < rank:
            raise SemanticError(
                f"expand_dims: invalid axis {as_given(a)}; the result has {rank} axes, "
                f"{-rank} to {rank - 1}"
            )
    normal = sorted(a % rank for a in axes)
    if len(set(normal)) != len(normal):
        raise SemanticError(f"expand_dims: duplicate axes, normalized axes = {normal}")
    for a in normal:
        value = conversion.expand_dims(emit, value, a)
    return value


def reshape(emit: Emitter, value: tensor, shape: tuple[int, ...]) -> tensor:
    """`value` under another shape of as many elements."""
    if prod(shape) != value.numel:
        raise SemanticError(
            f"reshape: {list(value.shape)} has {value.numel} elements, "
            f"{list(shape)} has {prod(shape)}"
        )
    if value.shape == shape:
        return value
    if not value.type.is_block():
        return conversion.splat(emit, value, shape)
    op = emit.op(tt.Reshape, [value], [ir.tile(shape, ir.element_of(value.value.type))])
    type_ = block_type(value.type.scalar, shape) if shape else value.type.scalar
    return tensor(op.result, type_)


def _emit_reshape(emit: Emitter, input: object, *shape: object, can_reorder: object = False) -> Any:
    """The elements of `input`, row-major, under `shape`; `can_reorder` has no effect here."""
    return reshape(emit, conversion.to_tensor(emit, input), shape_argument(shape, "reshape"))


def _emit_ravel(emit: Emitter, x: object, can_reorder: object = False) -> tensor:
    """The elements of `x`, row-major, along one axis; `can_reorder` has no effect here."""
    value = conversion.to_tensor(emit, x)
    return reshape(emit, value, (value.numel,))


def _emit_squeeze(emit: Emitter, x: tensor, dim: object) -> tensor:
    """Return `x` without axis `dim`, which must have extent 1."""
    axis = axis_argument(dim, len(x.shape), "squeeze")
    if x.shape[axis] != 1:
        raise SemanticError(f"squeeze: axis {axis} of {list(x.shape)} is not 1")
    return reshape(emit, x, x.shape[:axis] + x.shape[axis + 1 :])


def _emit_unsqueeze(emit: Emitter, x: object, dim: object) -> tensor:
    """`x` with a new axis of extent 1 at `dim` of the result."""
    return _emit_expand_dims(emit, x, dim)


def permute(emit: Emitter, value: tensor, order: Sequence[object]) -> tensor:
    """`value` with its axes in the given order."""
    rank = len(value.shape)
    axes = permutation_argument(order, rank, "permute")
    if axes == tuple(range(rank)):
        return value
    op = emit.op(tt.Trans, [value], order=axes)
    return tensor(op.result, block_type(value.type.scalar, ir.shape_of(op.result.type)))


def _unpacked(dims: tuple[object, ...]) -> Sequence[object]:
    """Return the axes, which a call gives one by one or as one sequence, as a list."""
    return list_argument(dims[0] if len(dims) == 1 else dims, "permute: axes")


def _emit_trans(emit: Emitter, input: tensor, *dims: object) -> tensor:
    """`input` with its last two axes swapped, or its axes in the order `dims`."""
    rank = len(input.shape)
    if not dims:
        if rank < 2:
            raise SemanticError(f"trans needs a tile of at least 2 axes, got {list(input.shape)}")
        return permute(emit, input, [*range(rank - 2), rank - 1, rank - 2])
    return permute(emit, input, _unpacked(dims))


def _emit_permute(emit: Emitter, input: tensor, *dims: object) -> tensor:
    """`input` with its axes in the order `dims`."""
    return permute(emit, input, _unpacked(dims))


def join(emit: Emitter, a: object, b: object) -> tensor:
    """Both operands side by side along a new last axis of extent 2."""
    lhs, rhs = conversion.to_tensor(emit, a), conversion.to_tensor(emit, b)
    lhs, rhs = conversion.broadcast_pair(emit, lhs, rhs)
    if lhs.dtype != rhs.dtype:
        raise SemanticError(f"join: dtypes differ: {lhs.dtype} and {rhs.dtype}")
    op = emit.op(tt.Join, [lhs, rhs])
    return tensor(op.result, block_type(lhs.type.scalar, ir.shape_of(op.result.type)))


def split(emit: Emitter, a: tensor) -> tuple[tensor, tensor]:
    """The two halves along the last axis, which must have extent 2."""
    if not a.shape or a.shape[-1] != 2:
        raise SemanticError(f"split: the last axis must have extent 2, got {list(a.shape)}")
    op = emit.op(tt.Split, [a])
    shape = a.shape[:-1]
    type_ = block_type(a.type.scalar, shape) if shape else a.type.scalar
    return tensor(op.results[0], type_), tensor(op.results[1], type_)


def _emit_interleave(emit: Emitter, a: object, b: object) -> tensor:
    """Elements of a and b in turn along the last axis."""
    joined = join(emit, a, b)
    shape = (*joined.shape[:-2], 2 * joined.shape[-2]) if len(joined.shape) > 1 else (2,)
    return reshape(emit, joined, shape)


def _emit_cat(
    emit: Emitter, input: tensor, other: tensor, can_reorder: object = False, dim: object = 0
) -> tensor:
    """`input` followed by `other` along axis `dim`; both must have the same shape and dtype."""
    rank = len(input.shape)
    if not rank or input.shape != other.shape or input.dtype != other.dtype:
        raise SemanticError(
            "cat: needs two tiles of one shape and dtype, "
            f"got {describe(input)} and {describe(other)}"
        )
    axis = axis_argument(dim, rank, "cat")
    if axis == 0:
        op = emit.op(tt.Cat, [input, other])
        return tensor(op.result, block_type(input.type.scalar, ir.shape_of(op.result.type)))
    pairs = permute(emit, join(emit, input, other), [*range(axis), rank, *range(axis, rank)])
    shape = (*input.shape[:axis], 2 * input.shape[axis], *input.shape[axis + 1 :])
    return reshape(emit, pairs, shape)


def _emit_where(emit: Emitter, condition: object, x: object, y: object) -> tensor:
    """`x` where `condition` holds, else `y`; both are always computed."""
    test = conversion.to_tensor(emit, condition)
    if test.dtype != dt.int1:
        if isinstance(condition, tensor):
            emit.warn(
                f"tl.where with a non-boolean condition is deprecated, got {test.dtype}; "
                "write `condition != 0`"
            )
        test = conversion.cast(emit, test, dt.int1)
    if operators.is_pointer(x) or operators.is_pointer(y):
        pointers = [operators.require_pointer(side, "where") for side in (x, y)]
        if pointers[0].type.scalar != pointers[1].type.scalar:
            kinds = " and ".join(str(side.type.scalar) for side in pointers)
            raise SemanticError(f"where: pointers of one type are chosen from, got {kinds}")
        a, b = conversion.broadcast_pair(emit, *pointers)
    else:
        a, b = operators.binary_operands(emit, x, y)
    if test.type.is_block():
        test, a, b = conversion.broadcast_all(emit, test, a, b)
    return emit.value(arith.Select, [test, a, b], a.type)


def _emit_gather(emit: Emitter, src: object, index: object, axis: object) -> tensor:
    """The elements of `src` at the integer tile `index` along `axis`.

    Args:
        emit: where to emit.
        src: tile to take from.
        index: integer tile, of the shape of `src` except along `axis`; each element is from 0 to
            the extent of that axis of `src` - 1.
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
    """Count each integer from 0 to `num_bins` - 1 in a tile of one axis, int32.

    Args:
        emit: where to emit.
        input: integer tile of one axis, 32-bit from Triton 3.9 on; values outside the bins are
            not counted.
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
    """Reorder row-major positions of a size_i x size_j matrix to column-major in groups of rows.

    Each group has `size_g` rows, the last maybe fewer; gives the new row and column of (i, j).
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
    Builtin("arange", _emit_arange),
    Builtin("full", _emit_full),
    Builtin("zeros", _emit_zeros),
    Builtin("zeros_like", _emit_zeros_like),
    Builtin("to", _emit_to, member=True),
    Builtin("cast", _emit_to, member=True),
    Builtin("to_tensor", _emit_to_tensor),
    Builtin("broadcast_to", _emit_broadcast_to, member=True),
    Builtin("broadcast", _emit_broadcast),
    Builtin("expand_dims", _emit_expand_dims, member=True),
    Builtin("reshape", _emit_reshape, member=True),
    Builtin("view", _emit_reshape, member=True),
    Builtin("ravel", _emit_ravel, member=True),
    Builtin("squeeze", _emit_squeeze, member=True),
    Builtin("unsqueeze", _emit_unsqueeze, member=True),
    Builtin("trans", _emit_trans, member=True),
    Builtin("permute", _emit_permute, member=True),
    Builtin("join", join, member=True),
    Builtin("split", split, member=True),
    Builtin("interleave", _emit_interleave),
    Builtin("cat", _emit_cat),
    Builtin("where", _emit_where),
    Builtin("gather", _emit_gather, member=True),
    Builtin("histogram", _emit_histogram, member=True),
    Builtin("flip", _emit_flip, member=True),
    Builtin("swizzle2d", _emit_swizzle2d),
)
LANGUAGE = {builtin.name: builtin for builtin in _BUILTINS}
