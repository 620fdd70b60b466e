"""Elementwise mathematics: the math dialect's ops and the functions of `tl` and `tl.math`."""

from __future__ import annotations

from typing import Any

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.describe import as_given
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects import math as math_ops
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir.op_view import OpName
from tkdebug.compiler.ops import conversion, operators
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import scalar_dtype, tensor

_FLOAT_FUNCTIONS = [view for view in OPS.values() if issubclass(view, math_ops.FloatFunction)]


def float_math(emit: Emitter, op_name: OpName, x: object, caller: str) -> tensor:
    """Emit op `op_name` on fp32 or fp64; messages name the language's function `caller`."""
    value = conversion.to_tensor(emit, x)
    element = value.type.scalar
    if element not in (dt.float32, dt.float64):
        is_float = isinstance(element, dt.dtype) and element.is_floating()
        advice = f"write tl.{caller}(x.to(tl.float32))" if is_float else "cast with .to(...)"
        raise SemanticError(f"tl.{caller} expects fp32 or fp64, got {element}; {advice}")
    return emit.value(op_name, [value], value.type)


def _unary_float(name: str, op_name: OpName, doc: str) -> Builtin:
    def emit_unary(emit: Emitter, x: object) -> tensor:
        return float_math(emit, op_name, x, name)

    emit_unary.__doc__ = doc
    return Builtin(name, emit_unary, member=True, doc=doc, in_math=True)


def _emit_abs(emit: Emitter, x: object) -> tensor:
    """Absolute value of floats or integers; unsigned values are returned as they are."""
    value = conversion.to_tensor(emit, x)
    element = scalar_dtype(value)
    if element.is_floating():
        return emit.value(math_ops.AbsF, [value], value.type)
    if element.is_int_signed() and not element.is_bool():
        return emit.value(math_ops.AbsI, [value], value.type)
    return value


def _emit_fma(emit: Emitter, x: object, y: object, z: object) -> tensor:
    """`x * y + z` rounded once."""
    a, b, c = _ternary_operands(emit, x, y, z)
    if not scalar_dtype(a).is_floating():
        raise SemanticError(f"tl.fma expects floating-point operands, got {a.dtype}")
    return emit.value(math_ops.Fma, [a, b, c], a.type)


def _emit_fdiv(
    emit: Emitter, x: object, y: object, ieee_rounding: object = False, approx: object = False
) -> tensor:
    """`x / y` in floats; ieee_rounding asks for the nearest result, approx for the fastest one.

    `approx` is for fp32: natively the error is at most 2 ULP for 2**-126 <= |y| <= 2**126.
    """
    if ieee_rounding and approx:
        raise SemanticError("tl.fdiv: approx and ieee_rounding exclude each other; drop one")
    left, right = _weak(emit, x, y)
    for operand in (left, right) if emit.is_before(3, 9) else ():
        if isinstance(operand, tensor) and not scalar_dtype(operand).is_floating():
            raise SemanticError(
                f"tl.fdiv expects floating-point operands, got {operand.dtype}; write x / y"
            )
    is_integer = not (_is_float(left) or _is_float(right))
    a, b = operators.binary_operands(emit, left, right, divide=True)
    if is_integer:
        raise SemanticError(
            f"tl.fdiv expects a floating-point operand, got {_shown(left)} and {_shown(right)}; "
            "write x / y"
        )
    if approx:
        if a.dtype != dt.float32:
            raise SemanticError(f"tl.fdiv: approx=True is for fp32, got {a.dtype}")
        return emit.value(arith.DivF, [a, b], a.type, approx=True)
    return emit.value(tt.PreciseDivF if ieee_rounding else arith.DivF, [a, b], a.type)


def _is_float(value: object) -> bool:
    return scalar_dtype(value).is_floating() if isinstance(value, tensor) else type(value) is float


def _shown(value: object) -> str:
    return str(value.dtype) if isinstance(value, tensor) else as_given(value)


def _emit_div_rn(emit: Emitter, x: object, y: object) -> tensor:
    """`x / y` of fp32, rounded to nearest even."""
    a, b = operators.binary_operands(emit, *_weak(emit, x, y))
    if a.dtype != dt.float32:
        raise SemanticError(f"tl.div_rn expects fp32, got {a.dtype}; cast with .to(tl.float32)")
    return emit.value(tt.PreciseDivF, [a, b], a.type)


def _emit_umulhi(emit: Emitter, x: object, y: object) -> tensor:
    """High half of the product of two 32- or 64-bit integers, read as unsigned."""
    a, b = operators.binary_operands(emit, *_weak(emit, x, y))
    if scalar_dtype(a).primitive_bitwidth not in (32, 64) or not scalar_dtype(a).is_int():
        raise SemanticError(f"tl.umulhi expects 32- or 64-bit integers, got {a.dtype}")
    return emit.value(arith.MulHiUI, [a, b], a.type)


def _weak(emit: Emitter, *values: object) -> tuple[object, ...]:
    """Return the operands; before Triton 3.9, Python numbers become tensors of their own dtype."""
    if not emit.is_before(3, 9):
        return values
    return tuple(conversion.to_tensor(emit, value) for value in values)


def _comparable(emit: Emitter, *values: object) -> tuple[object, ...]:
    """Return the operands of a minimum or maximum; before Triton 3.9, bf16 widened to fp32."""
    values = _weak(emit, *values)
    if not emit.is_before(3, 9):
        return values
    return tuple(
        conversion.cast(emit, value, dt.float32)
        if isinstance(value, tensor) and value.dtype == dt.bfloat16
        else value
        for value in values
    )


def _ternary_operands(
    emit: Emitter, x: object, y: object, z: object
) -> tuple[tensor, tensor, tensor]:
    """Three operands at one dtype and shape.

    From 3.9 on the run-time operands are promoted first, and Python numbers take their type.
    """
    if emit.is_before(3, 9):
        values = [conversion.to_tensor(emit, value) for value in (x, y, z)]
    else:
        values = [value for value in (x, y, z) if isinstance(value, tensor)]
    common = None
    for value in values:
        element = scalar_dtype(value)
        common = element if common is None else conversion.promote(common, element)
    numbers = [value for value in (x, y, z) if not isinstance(value, tensor)]
    if common is None or not emit.is_before(3, 9):
        for number in numbers:
            assert isinstance(number, bool | int | float)
            natural = conversion.natural_dtype(number)
            common = natural if common is None else conversion.promote_weak(common, number)
    assert common is not None
    made = [
        conversion.cast(emit, value, common)
        if isinstance(value, tensor)
        else operators.weak_constant(emit, value, common)
        for value in (x, y, z)
    ]
    a, b, c = conversion.broadcast_all(emit, *made)
    return a, b, c


# Ops for signed and unsigned integers, and for floats: ignoring NaN, and propagating it.
_EXTREMA: dict[str, tuple[type[arith.Binary], ...]] = {
    "max": (arith.MaxSI, arith.MaxUI, arith.MaxNumF, arith.MaximumF),
    "min": (arith.MinSI, arith.MinUI, arith.MinNumF, arith.MinimumF),
}


def propagates_nan(value: object) -> bool:
    """Whether an argument `propagate_nan` asks for NaN if an operand is NaN."""
    text = str(getattr(value, "name", value)).upper()
    return text == "ALL"


def extremum_op(which: str, element: dt.dtype, propagate_nan: object) -> type[arith.Binary]:
    """The op for minima ("min") or maxima ("max") of elements of a type."""
    signed, unsigned, ignoring, propagating = _EXTREMA[which]
    if element.is_floating():
        return propagating if propagates_nan(propagate_nan) else ignoring
    return signed if element.is_int_signed() and not element.is_bool() else unsigned


def extremum(emit: Emitter, which: str, x: object, y: object, propagate_nan: object) -> tensor:
    """Minimum or maximum of two operands; NaN is ignored unless PropagateNan.ALL."""
    a, b = operators.binary_operands(emit, x, y)
    return emit.value(extremum_op(which, scalar_dtype(a), propagate_nan), [a, b], a.type)


def _emit_maximum(emit: Emitter, x: object, y: object, propagate_nan: object = None) -> tensor:
    """Elementwise maximum; NaN is ignored unless propagate_nan is tl.PropagateNan.ALL."""
    left, right = _comparable(emit, x, y)
    return extremum(emit, "max", left, right, propagate_nan)


def _emit_minimum(emit: Emitter, x: object, y: object, propagate_nan: object = None) -> tensor:
    """Elementwise minimum; NaN is ignored unless propagate_nan is tl.PropagateNan.ALL."""
    left, right = _comparable(emit, x, y)
    return extremum(emit, "min", left, right, propagate_nan)


def _emit_clamp(
    emit: Emitter, x: object, min: object, max: object, propagate_nan: object = None
) -> tensor:
    """`x` limited to [min, max]; floats only before Triton 3.9.

    A NaN in `x` gives `min`, or stays with propagate_nan=tl.PropagateNan.ALL.
    """
    value, low, high = _ternary_operands(emit, *_comparable(emit, x, min, max))
    if emit.is_before(3, 9) and not scalar_dtype(value).is_floating():
        raise SemanticError(
            f"tl.clamp expects floating-point operands, got {value.dtype}; "
            "write tl.minimum(tl.maximum(x, low), high)"
        )
    limited = extremum(emit, "max", value, low, propagate_nan)
    return extremum(emit, "min", limited, high, propagate_nan)


def _emit_sigmoid(emit: Emitter, x: object) -> tensor:
    """1 / (1 + exp(-x))."""
    negated = operators.unary(emit, "neg", x)
    exponential = float_math(emit, math_ops.Exp, negated, "sigmoid")
    return operators.binary(emit, "truediv", 1, operators.binary(emit, "add", 1, exponential))


def _emit_cdiv(emit: Emitter, x: Any, div: Any) -> object:
    """`(x + div - 1) // div`, at compile time when both are constants."""
    for value in (x, div):
        if not isinstance(value, tensor | int | float):
            raise SemanticError(f"cdiv: expected numbers, got {as_given(value)}")
    if not isinstance(x, tensor) and not isinstance(div, tensor):
        if div == 0:
            raise SemanticError(f"cdiv: {x} divided by 0")
        return (x + div - 1) // div
    less_one = operators.binary(emit, "sub", div, 1) if isinstance(div, tensor) else div - 1
    total = operators.binary(emit, "add", x, less_one)
    return operators.binary(emit, "floordiv", total, div)


def _operator(name: str, operator: str, doc: str) -> Builtin:
    def emit_operator(
        emit: Emitter, x: object, y: object, sanitize_overflow: object = True
    ) -> tensor:
        operation = operators.written_binary if sanitize_overflow else operators.binary
        return operation(emit, operator, x, y)

    emit_operator.__doc__ = doc
    return Builtin(name, emit_operator, doc=doc)


_BUILTINS: tuple[Builtin, ...] = (
    *(_unary_float(view.function, view, str(view.__doc__)) for view in _FLOAT_FUNCTIONS),
    _unary_float("sqrt_rn", tt.PreciseSqrt, "Square root to nearest even, fp32."),
    Builtin("abs", _emit_abs, member=True, in_math=True),
    Builtin("fma", _emit_fma, in_math=True),
    Builtin("fdiv", _emit_fdiv, in_math=True),
    Builtin("div_rn", _emit_div_rn, in_math=True),
    Builtin("umulhi", _emit_umulhi, in_math=True),
    Builtin("maximum", _emit_maximum),
    Builtin("minimum", _emit_minimum),
    Builtin("clamp", _emit_clamp),
    Builtin("sigmoid", _emit_sigmoid, member=True),
    Builtin("cdiv", _emit_cdiv, member=True),
    _operator("add", "add", "x + y."),
    _operator("sub", "sub", "x - y."),
    _operator("mul", "mul", "x * y."),
)
LANGUAGE = {builtin.name: builtin for builtin in _BUILTINS}
MATH_MODULE = tuple(builtin.name for builtin in _BUILTINS if builtin.in_math)
