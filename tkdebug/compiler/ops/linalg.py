"""Matrix products: products of tiles, and of tiles in microscaling formats.

Source of the formats: OCP Microscaling Formats (MX) Specification 1.0: e2m1, e4m3 and e5m2 elements
in groups of 32 along K that share an e8m0 scale, a power of 2 biased by 127.
"""

from __future__ import annotations

import math
from typing import Any

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.describe import as_given
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import INPUT_PRECISIONS
from tkdebug.compiler.dtypes import block_type
from tkdebug.compiler.ir.core import Attribute
from tkdebug.compiler.ops import conversion
from tkdebug.compiler.ops.arguments import int_argument, tile_argument
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.shape import reshape
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import scalar_dtype, tensor

# Triton's least K on NVIDIA: 256 bits, one instruction of mma.sync for up to 32-bit operands.
_LEAST_K_BITS = 256


def dot(
    emit: Emitter,
    input: object,
    other: object,
    acc: object = None,
    input_precision: object = None,
    allow_tf32: object = None,
    max_num_imprecise_acc: object = None,
    out_dtype: object = dt.float32,
) -> tensor:
    """Matrix product `input @ other (+ acc)` of tiles (…, M, K) and (…, K, N).

    Args:
        emit: where to emit.
        input: tile of fp8, fp16, bf16, fp32, fp64 or int8; K at least 32 for 8-bit types, 16 for
            16-bit, 8 for fp32, 4 for fp64.
        other: tile of the same dtype (fp8 types may be mixed).
        acc: tile (…, M, N) added to the product; a float tile of another dtype than out_dtype gives
            the result its dtype.
        input_precision: for fp32 inputs: "tf32", "tf32x3", "ieee", "bf16x3" or "bf16x6"; by default
            the option `default_dot_input_precision`, which is "tf32" unless a knob changes it.
        allow_tf32: older spelling; False means input_precision="ieee". Give only one of the two.
        max_num_imprecise_acc: fp8 only; how many sums may stay in the tensor core's precision, at
            most K.
        out_dtype: dtype of the result: fp32 (default), or fp16 for inputs of fp16 and fp8; fp64
            inputs always give fp64, int8 inputs int32.
    """
    a, b = _dot_operands(input, other)
    precision = _precision(emit, input_precision, allow_tf32)
    attributes: dict[str, Attribute] = {"input_precision": precision}
    if max_num_imprecise_acc is not None and scalar_dtype(a).is_fp8():
        attributes["max_num_imprecise_acc"] = _imprecise_sums(max_num_imprecise_acc, a.shape[-1])
    result_dtype = _dot_result_dtype(scalar_dtype(a), out_dtype)
    shape = (*a.shape[:-1], b.shape[-1])
    total = acc
    batch = a.shape[:-2]
    if len(batch) > 1:
        # The op has one batch axis at most.
        a, b = (reshape(emit, x, (math.prod(batch), *x.shape[-2:])) for x in (a, b))
    if total is None:
        zero = conversion.constant(emit, 0, result_dtype)
        total = conversion.splat(emit, zero, shape)
    elif not isinstance(total, tensor) or total.shape != shape:
        raise SemanticError(f"dot: acc must be a tile of shape {list(shape)}, got {as_given(acc)}")
    elif total.dtype != result_dtype:
        if not (scalar_dtype(total).is_floating() and result_dtype.is_floating()):
            raise SemanticError(f"dot: acc is {total.dtype} but the product {result_dtype}")
        result_dtype = scalar_dtype(total)
    if len(batch) > 1:
        total = reshape(emit, total, (math.prod(batch), *shape[-2:]))
    result = block_type(result_dtype, total.shape)
    product = emit.value(tt.Dot, [a, b, total], result, **attributes)
    return reshape(emit, product, shape)


def _dot_operands(input: object, other: object) -> tuple[tensor, tensor]:
    if not (isinstance(input, tensor) and isinstance(other, tensor)):
        raise SemanticError(f"dot needs two tiles, got {as_given(input)} and {as_given(other)}")
    a, b = input, other
    if len(a.shape) != len(b.shape) or len(a.shape) < 2:
        raise SemanticError(
            "dot needs two tiles of as many axes, at least 2, "
            f"got {list(a.shape)} and {list(b.shape)}"
        )
    if a.shape[-1] != b.shape[-2]:
        raise SemanticError(
            f"dot: first input {list(a.shape)} and second {list(b.shape)} do not fit: "
            f"{a.shape[-1]} columns against {b.shape[-2]} rows"
        )
    if a.shape[:-2] != b.shape[:-2]:
        raise SemanticError(f"dot: batch axes differ: {list(a.shape[:-2])}, {list(b.shape[:-2])}")
    x, y = scalar_dtype(a), scalar_dtype(b)
    if x != y and not (x.is_fp8() and y.is_fp8()):
        raise SemanticError(
            f"dot: both operands must have the same dtype, got {x} and {y}; cast one with .to(...)"
        )
    if x.is_int() and x.primitive_bitwidth != 8:
        raise SemanticError(f"dot: integer operands must be 8-bit, got {x}")
    smallest = _LEAST_K_BITS // x.primitive_bitwidth
    if a.shape[-1] < smallest:
        raise SemanticError(
            f"dot: K must be at least {smallest} for {x}, got {a.shape[-1]}; "
            "use tl.sum(a[:, :, None] * b[None, :, :], 1) for smaller products"
        )
    return a, b


def _precision(emit: Emitter, input_precision: object, allow_tf32: object) -> str:
    if input_precision is not None and allow_tf32 is not None:
        raise SemanticError("dot: give input_precision or allow_tf32, not both")
    if input_precision is None:
        if allow_tf32 is not None and not allow_tf32:
            return "ieee"
        return emit.options.default_dot_input_precision
    precision = str(input_precision).lower()
    if precision not in INPUT_PRECISIONS:
        raise SemanticError(
            f"dot: input_precision must be one of {INPUT_PRECISIONS}, got {input_precision!r}"
        )
    return precision


def _imprecise_sums(given: object, k: int) -> int:
    count = int_argument(given, "dot: max_num_imprecise_acc")
    if count > k:
        raise SemanticError(f"max_num_imprecise_acc ({count}) must be <= K ({k})")
    return count


def _dot_result_dtype(operand: dt.dtype, out_dtype: Any) -> dt.dtype:
    if operand.is_int():
        return dt.int32
    if operand == dt.float64:
        return dt.float64
    if out_dtype == dt.bfloat16:
        raise SemanticError("dot: out_dtype=bfloat16 is unsupported; use fp32 and cast the result")
    if operand in (dt.float32, dt.bfloat16):
        return dt.float32
    if out_dtype not in (dt.float32, dt.float16):
        raise SemanticError(f"dot: out_dtype must be fp32 or fp16, got {as_given(out_dtype)}")
    assert isinstance(out_dtype, dt.dtype)
    return out_dtype


_DTYPES = {"e4m3": dt.float8e4nv, "e5m2": dt.float8e5, "bf16": dt.bfloat16, "fp16": dt.float16}
_CARRIERS = {"e4m3": dt.uint8, "e5m2": dt.uint8, "bf16": dt.uint16, "fp16": dt.uint16}


def _format(value: object, side: str) -> str:
    if value not in tt.SCALED_FORMATS:
        raise SemanticError(
            f"dot_scaled: {side}_format must be one of {tt.SCALED_FORMATS}, got {value!r}"
        )
    return str(value)


def _operand(emit: Emitter, value: object, name: str, packed: bool, side: str) -> tensor:
    tile = tile_argument(value, f"dot_scaled: {side}")
    if len(tile.shape) not in (2, 3):
        raise SemanticError(f"dot_scaled: {side} must have 2 or 3 axes, got {list(tile.shape)}")
    if not packed and name != "e2m1":
        raise SemanticError(
            f"dot_scaled: {side}_k_pack=False is for e2m1, which packs two elements a byte; "
            f"got {name}"
        )
    if name == "e2m1":
        if tile.dtype != dt.uint8:
            raise SemanticError(
                f"dot_scaled: e2m1 must be packed as uint8, two a byte; {side} is {tile.dtype}"
            )
        return tile
    if tile.dtype == _DTYPES[name]:
        return tile
    if tile.dtype != _CARRIERS[name]:
        raise SemanticError(
            f"dot_scaled: {side} of format {name} must be {_DTYPES[name]} or {_CARRIERS[name]}, "
            f"got {tile.dtype}"
        )
    return conversion.cast(emit, tile, _DTYPES[name], bitcast=True)


def _scale(value: object, rows: int, k: int, side: str) -> tensor | None:
    if value is None:
        return None
    tile = tile_argument(value, f"dot_scaled: {side}_scale")
    element = scalar_dtype(tile)
    if element not in (dt.uint8, dt.int8, dt.float8e4nv):
        raise SemanticError(f"dot_scaled: {side}_scale must be uint8 (e8m0), got {element}")
    expected = (rows, k // (16 if element == dt.float8e4nv else 32))
    if tile.shape[-2:] != expected:
        raise SemanticError(
            f"dot_scaled: {side}_scale must be a tile of shape {list(expected)}, "
            f"got {list(tile.shape)}"
        )
    return tile


def _emit_dot_scaled(
    emit: Emitter,
    lhs: object,
    lhs_scale: object,
    lhs_format: object,
    rhs: object,
    rhs_scale: object,
    rhs_format: object,
    acc: object = None,
    fast_math: object = False,
    lhs_k_pack: object = True,
    rhs_k_pack: object = True,
    out_dtype: object = dt.float32,
) -> tensor:
    """Matrix product of tiles in microscaling formats, fp32.

    Args:
        emit: where to emit.
        lhs: tile (M, K); e2m1 has two elements a uint8, the first in the low bits; fp8 may come
            as uint8, and fp16 and bf16 as uint16.
        lhs_scale: uint8 or int8 tile (M, K // 32) of e8m0 scales, fp8e4nv tile (M, K // 16) of
            scales, or None.
        lhs_format: "e2m1", "e4m3", "e5m2", "bf16" or "fp16".
        rhs: tile (K, N).
        rhs_scale: as lhs_scale, with N rows: tile (N, K // 32) or (N, K // 16), not transposed.
        rhs_format: as lhs_format.
        acc: fp32 tile (M, N) added to the product.
        fast_math: whether a scale of 255 (NaN) may be taken for a number.
        lhs_k_pack: whether e2m1 is packed along K; along M otherwise.
        rhs_k_pack: whether e2m1 is packed along K; along N otherwise.
        out_dtype: must be fp32.
    """
    if out_dtype != dt.float32:
        raise SemanticError(f"dot_scaled: out_dtype must be fp32, got {out_dtype}")
    a_packed, b_packed = bool(lhs_k_pack), bool(rhs_k_pack)
    a_format, b_format = _format(lhs_format, "lhs"), _format(rhs_format, "rhs")
    a = _operand(emit, lhs, a_format, a_packed, "lhs")
    b = _operand(emit, rhs, b_format, b_packed, "rhs")
    a_step = 2 if a_format == "e2m1" else 1
    b_step = 2 if b_format == "e2m1" else 1
    m, k = a.shape[-2] * (1 if a_packed else a_step), a.shape[-1] * (a_step if a_packed else 1)
    other_k = b.shape[-2] * (b_step if b_packed else 1)
    n = b.shape[-1] * (1 if b_packed else b_step)
    if k != other_k or a.shape[:-2] != b.shape[:-2]:
        raise SemanticError(
            f"dot_scaled: lhs {list(a.shape)} and rhs {list(b.shape)} do not fit: "
            f"K is {k} against {other_k}"
        )
    scales = (_scale(lhs_scale, m, k, "lhs"), _scale(rhs_scale, n, k, "rhs"))
    shape = (*a.shape[:-2], m, n)
    total = acc
    if total is None:
        total = conversion.splat(emit, conversion.constant(emit, 0.0, dt.float32), shape)
    elif not isinstance(total, tensor) or total.type != block_type(dt.float32, shape):
        raise SemanticError(
            f"dot_scaled: acc must be an fp32 tile of shape {list(shape)}, got {as_given(total)}"
        )
    return emit.value(
        tt.DotScaled,
        [a, b, total, *(scale for scale in scales if scale is not None)],
        total.type,
        lhs_format=a_format,
        rhs_format=b_format,
        lhs_k_pack=a_packed,
        rhs_k_pack=b_packed,
        lhs_scaled=scales[0] is not None,
        rhs_scaled=scales[1] is not None,
        fast_math=bool(fast_math),
    )


_BUILTINS: tuple[Builtin, ...] = (
    Builtin("dot", dot),
    Builtin("dot_scaled", _emit_dot_scaled),
)
LANGUAGE = {builtin.name: builtin for builtin in _BUILTINS}
