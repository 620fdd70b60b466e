"""Matrix products."""

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
from tkdebug.compiler.ops.arguments import int_argument
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
        acc: tile (M, N) of out_dtype added to the product.
        input_precision: for fp32 inputs: "tf32" (default), "tf32x3" or "ieee".
        allow_tf32: older spelling; False means "ieee".
        max_num_imprecise_acc: fp8 only; how many sums may stay in the tensor core's precision.
        out_dtype: dtype of the result: fp32 (default), fp16; int32 for int8 inputs.
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
    if out_dtype == dt.float16 and operand not in (dt.float16,) and not operand.is_fp8():
        return dt.float32
    assert isinstance(out_dtype, dt.dtype)
    return out_dtype


_BUILTINS: tuple[Builtin, ...] = (Builtin("dot", dot),)
LANGUAGE = {builtin.name: builtin for builtin in _BUILTINS}
