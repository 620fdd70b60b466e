"""Reductions and scans: with built-in or custom combine functions; sorting.

The combine function is a region; the attribute `combiner` names well-known ones, so that an
evaluator may take a direct path. The region defines the result: custom combine functions have
nothing else, and lowering uses it alone.

Sort, topk and the merge of a bitonic sequence are ops of their own rather than networks of reshapes
and selects, so that every executor may sort in its own best way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.describe import as_given, describe
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects import math as math_ops
from tkdebug.compiler.dtypes import block_type, dtype
from tkdebug.compiler.ir import Block, Region
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Attribute
from tkdebug.compiler.ir.op_view import OpName
from tkdebug.compiler.ops import conversion, math, operators
from tkdebug.compiler.ops.arguments import axis_argument, tile_argument, type_argument
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.shape import reshape
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import scalar_dtype, tensor

Combine = Callable[[Sequence[tensor]], Sequence[tensor]]


def _combine_region(emit: Emitter, elements: Sequence[dt.LanguageType], combine: Combine) -> Region:
    types = [element.to_ir() for element in elements]
    block = Block([*types, *types])
    arguments = [
        tensor(value, element)
        for value, element in zip(block.arguments, [*elements, *elements], strict=True)
    ]
    with emit.builder.inside(block):
        results = combine(arguments)
        if len(results) != len(elements):
            raise SemanticError(
                f"the combine function returns {len(results)} values, expected {len(elements)}"
            )
        for result, element in zip(results, elements, strict=True):
            if result.type != element:
                raise SemanticError(
                    f"the combine function returns {describe(result)} for an operand of {element}"
                )
        emit.op(tt.ReduceReturn, list(results))
    return Region([block])


def _emit_combined(
    emit: Emitter,
    name: OpName,
    inputs: Sequence[tensor],
    axis: int,
    combine: Combine,
    combiner: str | None,
    reverse: bool = False,
) -> list[tensor]:
    region = _combine_region(emit, [value.type.scalar for value in inputs], combine)
    attributes: dict[str, Attribute] = {"axis": axis}
    if combiner is not None:
        attributes["combiner"] = combiner
    if reverse:
        attributes["reverse"] = True
    op = emit.op(name, list(inputs), None, [region], **attributes)
    out = []
    for value, result in zip(inputs, op.results, strict=True):
        shape = ir.shape_of(result.type)
        element = value.type.scalar
        out.append(tensor(result, block_type(element, shape) if shape else element))
    return out


def reduce_with(
    emit: Emitter,
    inputs: Sequence[tensor],
    axis: object,
    combine: Combine,
    combiner: str | None,
    keep_dims: bool,
    what: str,
) -> list[tensor]:
    """Reduce equally shaped tiles along `axis` (None: all axes)."""
    shape = inputs[0].shape
    if not inputs[0].type.is_block():
        if axis is not None:
            raise SemanticError(
                f"{what}: got a scalar of type {describe(inputs[0])}, expected a tile; "
                f"a scalar has no axis {axis}"
            )
        return list(inputs)
    original_rank = len(shape)
    if axis is None:
        inputs = [reshape(emit, value, (value.numel,)) for value in inputs]
        place = 0
    else:
        place = axis_argument(axis, original_rank, what)
    results = _emit_combined(emit, tt.Reduce, inputs, place, combine, combiner)
    if not keep_dims:
        return results
    if axis is None:
        return [conversion.splat(emit, value, (1,) * original_rank) for value in results]
    return [conversion.expand_dims(emit, value, place) for value in results]


def _user_combine(emit: Emitter, function: object) -> Combine:
    def combine(arguments: Sequence[tensor]) -> Sequence[tensor]:
        result = emit.call(function, arguments)
        values = result if isinstance(result, tuple | list) else (result,)
        return [conversion.to_tensor(emit, value) for value in values]

    return combine


def _emit_reduce(
    emit: Emitter, input: object, axis: object, combine_fn: object, keep_dims: object = False
) -> object:
    """Reduce a tile, or a tuple of equally shaped tiles, with a jit function.

    Args:
        emit: where to emit.
        input: a tile or a tuple of tiles.
        axis: the axis to reduce, or None for all.
        combine_fn: jit function that combines elements: it takes one element of each tile, then
            another of each, and returns one of each. It has to be associative and commutative: a
            GPU combines elements in the order of its threads.
        keep_dims: whether the reduced axes stay, with extent 1.
    """
    inputs, is_tuple = _input_tiles(emit, input)
    results = reduce_with(
        emit,
        inputs,
        axis,
        _user_combine(emit, combine_fn),
        None,
        bool(keep_dims),
        "reduce",
    )
    return tuple(results) if is_tuple else results[0]


def _input_tiles(emit: Emitter, input: object) -> tuple[list[tensor], bool]:
    if isinstance(input, tuple | list):
        if not input:
            raise SemanticError("expected at least one tile, got an empty tuple")
        tiles = conversion.broadcast_all(emit, *(conversion.to_tensor(emit, v) for v in input))
        return list(tiles), True
    return [conversion.to_tensor(emit, input)], False


def _emit_associative_scan(
    emit: Emitter, input: object, axis: object, combine_fn: object, reverse: object = False
) -> object:
    """Inclusive prefix combination along `axis` with an associative jit function."""
    inputs, is_tuple = _input_tiles(emit, input)
    place = axis_argument(axis, len(inputs[0].shape), "associative_scan")
    results = _emit_combined(
        emit,
        tt.Scan,
        inputs,
        place,
        _user_combine(emit, combine_fn),
        None,
        bool(reverse),
    )
    return tuple(results) if is_tuple else results[0]


def widen_for_sum(element: dtype) -> dtype:
    """Dtype of sum, cumsum and cumprod: integers below 32 bits widen to 32 bits, floats stay."""
    if element.is_int() and element.primitive_bitwidth < 32:
        return dt.int32 if element.is_int_signed() and not element.is_bool() else dt.uint32
    return element


def widen_for_extremum(element: dtype) -> dtype:
    """Dtype of max and min: below 32 bits, floats widen to fp32 and all integers to int32."""
    if element.primitive_bitwidth >= 32:
        return element
    return dt.float32 if element.is_floating() else dt.int32


def _widen_bfloat16(emit: Emitter, value: tensor) -> tensor:
    """Return `value`; before Triton 3.9, whose scans and argmax of bf16 are fp32, bf16 as fp32."""
    is_wanted = emit.is_before(3, 9) and value.dtype == dt.bfloat16
    return conversion.cast(emit, value, dt.float32) if is_wanted else value


def _operator_combine(emit: Emitter, operator: str) -> Combine:
    return lambda arguments: [operators.binary(emit, operator, arguments[0], arguments[1])]


def _reduction(name: str, operator: str, doc: str, integers_only: bool = False) -> Builtin:
    def emit_reduction(
        emit: Emitter,
        input: object,
        axis: object = None,
        keep_dims: object = False,
        dtype: object = None,
    ) -> tensor:
        value = conversion.to_tensor(emit, input)
        element = scalar_dtype(value)
        if integers_only and not element.is_int():
            raise SemanticError(f"{name} only supports integers, got {element}")
        natural = element if integers_only else widen_for_sum(element)
        target = natural if dtype is None else type_argument(dtype, name)
        value = conversion.cast(emit, value, target)
        return reduce_with(
            emit,
            [value],
            axis,
            _operator_combine(emit, operator),
            operator,
            bool(keep_dims),
            name,
        )[0]

    emit_reduction.__doc__ = doc
    return Builtin(name, emit_reduction, member=True, doc=doc)


def _extremum_reduction(which: str) -> Builtin:
    def emit_extremum(
        emit: Emitter,
        input: object,
        axis: object = None,
        return_indices: object = False,
        return_indices_tie_break_left: object = True,
        keep_dims: object = False,
        propagate_nan: object = None,
    ) -> object:
        value = conversion.to_tensor(emit, input)
        keep = bool(keep_dims)
        if return_indices:
            left = bool(return_indices_tie_break_left)
            return tuple(_with_index(emit, which, value, axis, left, keep, which))
        value = conversion.cast(emit, value, widen_for_extremum(scalar_dtype(value)))
        return _extremum_values(emit, which, value, axis, keep, propagate_nan)

    doc = f"{which}imum along `axis` (all axes by default); below 32 bits the result widens."
    emit_extremum.__doc__ = doc
    return Builtin(which, emit_extremum, member=True, doc=doc)


def _extremum_values(
    emit: Emitter, which: str, value: tensor, axis: object, keep: bool, propagate_nan: object
) -> tensor:
    def combine(arguments: Sequence[tensor]) -> Sequence[tensor]:
        return [math.extremum(emit, which, arguments[0], arguments[1], propagate_nan)]

    combiner = math.extremum_op(which, scalar_dtype(value), propagate_nan).combination
    return reduce_with(emit, [value], axis, combine, combiner, keep, which)[0]


def _with_index(
    emit: Emitter, which: str, value: tensor, axis: object, left: bool, keep: bool, what: str
) -> list[tensor]:
    if axis is None:
        raise SemanticError(f"{what}: an index needs an axis; pass axis=0, or tl.ravel(x) first")
    value = _widen_bfloat16(emit, value)
    place = axis_argument(axis, len(value.shape), what)
    extent = value.shape[place]
    lanes = emit.op(tt.MakeRange, (), [ir.tile((extent,), ir.I32)], start=0, end=extent)
    index = tensor(lanes.result, block_type(dt.int32, (extent,)))
    selector: list[object] = [None] * len(value.shape)
    selector[place] = slice(None)
    index = conversion.broadcast_to(
        emit, operators.subscript(emit, index, tuple(selector)), value.shape
    )
    better = "gt" if which == "max" else "lt"

    def combine(arguments: Sequence[tensor]) -> Sequence[tensor]:
        v1, i1, v2, i2 = arguments
        wins = operators.compare(emit, better, v1, v2)
        if left:
            tie = operators.binary(
                emit,
                "and",
                operators.compare(emit, "eq", v1, v2),
                operators.compare(emit, "lt", i1, i2),
            )
            wins = operators.binary(emit, "or", wins, tie)
        return [
            emit.value(arith.Select, [wins, v1, v2], v1.type),
            emit.value(arith.Select, [wins, i1, i2], i1.type),
        ]

    combiner = f"arg{which}" + ("" if left else "_any")
    results = _emit_combined(emit, tt.Reduce, [value, index], place, combine, combiner)
    return [conversion.expand_dims(emit, v, place) for v in results] if keep else results


def _arg_reduction(which: str) -> Builtin:
    def emit_arg(
        emit: Emitter,
        input: object,
        axis: object,
        tie_break_left: object = True,
        keep_dims: object = False,
    ) -> tensor:
        value = conversion.to_tensor(emit, input)
        left, keep = bool(tie_break_left), bool(keep_dims)
        return _with_index(emit, which, value, axis, left, keep, f"arg{which}")[1]

    doc = f"Index of the {which}imum along `axis`, int32; the leftmost on ties."
    emit_arg.__doc__ = doc
    return Builtin(f"arg{which}", emit_arg, member=True, doc=doc)


def _scan(name: str, operator: str, doc: str) -> Builtin:
    def emit_scan(
        emit: Emitter,
        input: object,
        axis: object = 0,
        reverse: object = False,
        dtype: object = None,
    ) -> tensor:
        value = _widen_bfloat16(emit, conversion.to_tensor(emit, input))
        element = scalar_dtype(value)
        keeps = operator == "mul" and emit.is_before(3, 9)
        natural = element if keeps else widen_for_sum(element)
        target = natural if dtype is None else type_argument(dtype, name)
        value = conversion.cast(emit, value, target)
        place = axis_argument(axis, len(value.shape), name)
        return _emit_combined(
            emit,
            tt.Scan,
            [value],
            place,
            _operator_combine(emit, operator),
            operator,
            bool(reverse),
        )[0]

    emit_scan.__doc__ = doc
    return Builtin(name, emit_scan, member=True, doc=doc)


def _emit_softmax(
    emit: Emitter,
    x: object,
    dim: object = None,
    keep_dims: object = None,
    ieee_rounding: object = False,
) -> tensor:
    """Softmax along `dim`, the first axis by default.

    Before Triton 3.9, the result is right only along the first axis or with keep_dims=True. From
    3.9 on, `keep_dims` is ignored with a warning.
    """
    if keep_dims is not None and not emit.is_before(3, 9):
        emit.warn("tl.softmax ignores keep_dims, which is deprecated; leave it out")
    keep = bool(keep_dims) or not emit.is_before(3, 9)
    value = conversion.to_tensor(emit, x)
    axis = 0 if dim is None else axis_argument(dim, len(value.shape), "softmax")
    wide = conversion.cast(emit, value, widen_for_extremum(scalar_dtype(value)))
    top = _extremum_values(emit, "max", wide, axis, keep, None)
    shifted = operators.binary(emit, "sub", value, top)
    numerator = math.float_math(emit, math_ops.Exp, shifted, "softmax")
    total = reduce_with(
        emit, [numerator], axis, _operator_combine(emit, "add"), "addf", keep, "softmax"
    )[0]
    return math.LANGUAGE["fdiv"].emit(emit, numerator, total, ieee_rounding)  # type: ignore[no-any-return]


def _sortable(x: object, dim: object, what: str) -> tensor:
    value = tile_argument(x, what)
    rank = len(value.shape)
    if dim is not None and axis_argument(dim, rank, what) != rank - 1:
        raise SemanticError(
            f"{what}: only the last axis can be sorted, got dim {dim} of {rank} axes; "
            "permute the tile first"
        )
    return value


def _sort_order(value: tensor, descending: object) -> dict[str, Attribute]:
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
    return emit.value(tt.Sort, [value], value.type, **_sort_order(value, descending))


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
        return emit.value(tt.Sort, [value], value.type, **_sort_order(value, descending))
    value = conversion.cast(emit, value, widen_for_extremum(scalar_dtype(value)))
    result = block_type(value.type.scalar, (*value.shape[:-1], k))
    return emit.value(tt.TopK, [value], result, k=k, **_sort_order(value, descending))


def _emit_bitonic_merge(
    emit: Emitter, x: object, dim: object = None, descending: object = False
) -> tensor:
    """Sort the last axis of `x`, if it is bitonic: it rises, then falls (or a rotation of that).

    Args:
        emit: where to emit.
        x: tile.
        dim: the last axis, or None for it.
        descending: constant; whether the largest comes first.
    """
    value = _sortable(x, dim, "bitonic_merge")
    return emit.value(tt.BitonicMerge, [value], value.type, **_sort_order(value, descending))


_BUILTINS: tuple[Builtin, ...] = (
    Builtin("reduce", _emit_reduce, member=True),
    Builtin("associative_scan", _emit_associative_scan, member=True),
    _reduction("sum", "add", "Sum along `axis` (all axes by default)."),
    _reduction("xor_sum", "xor", "Exclusive-or along `axis`, integers only.", True),
    _reduction("reduce_or", "or", "Bitwise or along `axis`, integers only.", True),
    _extremum_reduction("max"),
    _extremum_reduction("min"),
    _arg_reduction("max"),
    _arg_reduction("min"),
    _scan("cumsum", "add", "Inclusive prefix sum along `axis`."),
    _scan("cumprod", "mul", "Inclusive prefix product along `axis`."),
    Builtin("softmax", _emit_softmax, member=True),
    Builtin("sort", _emit_sort, member=True),
    Builtin("topk", _emit_topk),
    Builtin("bitonic_merge", _emit_bitonic_merge),
)
LANGUAGE = {builtin.name: builtin for builtin in _BUILTINS}
