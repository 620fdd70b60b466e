"""Operators on run-time values: the ops that `+`, `<`, `and` and `x[:, None]` become.

`conversion` finds the common dtype of two operands, and converts them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.describe import describe
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dtypes import LanguageType, dtype, pointer_type
from tkdebug.compiler.ops import conversion
from tkdebug.compiler.ops.conversion import (
    broadcast_pair,
    cast,
    constant,
    expand_dims,
    is_signed,
    splat,
    to_tensor,
    unsplat,
    with_scalar,
)
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import scalar_dtype, tensor


def binary_operands(
    emit: Emitter,
    left: object,
    right: object,
    *,
    divide: bool = False,
    mixed_sign_error: str | None = None,
) -> tuple[tensor, tensor]:
    """Both operands promoted to one dtype and broadcast to one shape."""
    lhs, rhs = _weak_to_strong(emit, left, right, divide)
    a, b = scalar_dtype(lhs), scalar_dtype(rhs)
    both_run_time = isinstance(left, tensor) and isinstance(right, tensor)
    common = conversion.promote(a, b, divide)
    if mixed_sign_error and both_run_time and a.is_int() and b.is_int():
        if is_signed(a) != is_signed(b):
            raise SemanticError(
                f"Cannot use {mixed_sign_error} with {a} and {b} because they have different "
                "signedness; cast one of them with .to(...)"
            )
    return broadcast_pair(emit, cast(emit, lhs, common), cast(emit, rhs, common))


def _weak_to_strong(
    emit: Emitter, left: object, right: object, divide: bool
) -> tuple[tensor, tensor]:
    if isinstance(left, tensor) and isinstance(right, tensor):
        return left, right
    if isinstance(left, tensor):
        element = _weak_dtype(left, right, divide)
        return cast(emit, left, element), weak_constant(emit, right, element, scalar_dtype(left))
    if isinstance(right, tensor):
        element = _weak_dtype(right, left, divide)
        return weak_constant(emit, left, element, scalar_dtype(right)), cast(emit, right, element)
    return to_tensor(emit, left), to_tensor(emit, right)


def _weak_dtype(strong: tensor, weak: object, divide: bool) -> dtype:
    if not isinstance(weak, bool | int | float):
        raise SemanticError(f"unsupported operand {weak!r} beside a tensor of {strong.dtype}")
    return conversion.promote_weak(scalar_dtype(strong), weak, divide)


def weak_constant(emit: Emitter, value: Any, element: dtype, strong: dtype | None = None) -> tensor:
    """A Python number as `element`; `strong` is the other operand's dtype, for messages."""
    if element.is_int() and not element.is_bool() and not isinstance(value, float):
        low, high = element.get_int_min_value(), element.get_int_max_value()
        if not low <= value <= high:
            raise SemanticError(f"scalar {value} is out of range for type {strong or element}")
    return constant(emit, value, element)


_INTEGER_OPS = {
    "add": (arith.AddI, arith.AddI),
    "sub": (arith.SubI, arith.SubI),
    "mul": (arith.MulI, arith.MulI),
    "floordiv": (arith.DivSI, arith.DivUI),
    "mod": (arith.RemSI, arith.RemUI),
    "and": (arith.AndI, arith.AndI),
    "or": (arith.OrI, arith.OrI),
    "xor": (arith.XOrI, arith.XOrI),
    "lshift": (arith.ShLI, arith.ShLI),
    "rshift": (arith.ShRSI, arith.ShRUI),
}
_FLOAT_OPS = {
    "add": arith.AddF,
    "sub": arith.SubF,
    "mul": arith.MulF,
    "mod": arith.RemF,
}
# How Python writes the binary operators.
SYMBOLS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "and": "&",
    "or": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
    "pow": "**",
    "matmul": "@",
}


def is_pointer(value: object) -> bool:
    """Whether `value` is a pointer or a tile of pointers."""
    return isinstance(value, tensor) and value.type.scalar.is_ptr()


def _is_float(value: object) -> bool:
    return scalar_dtype(value).is_floating() if isinstance(value, tensor) else type(value) is float


def written_binary(emit: Emitter, name: str, left: object, right: object) -> tensor:
    """Emit a binary operator of a kernel's source, after an assertion if overflow is checked.

    As in upstream, the assertion covers sums, differences and products of less than 64 bits, but
    none in combine functions, whose regions only compute.
    """
    if emit.options.sanitize_overflow and name in ("add", "sub", "mul") and not emit.is_combining:
        if not is_pointer(left) and not is_pointer(right):
            _assert_no_overflow(emit, name, left, right)
    return binary(emit, name, left, right)


def _assert_no_overflow(emit: Emitter, name: str, left: object, right: object) -> None:
    a, b = binary_operands(emit, left, right)
    element = scalar_dtype(a)
    if not element.is_int() or element.is_bool() or element.primitive_bitwidth >= 64:
        return
    bits = element.primitive_bitwidth
    is_unsigned = element.is_int_unsigned()
    least = 0 if is_unsigned else -(1 << (bits - 1))
    most = (1 << (bits if is_unsigned else bits - 1)) - 1
    wide = binary(emit, name, cast(emit, a, dt.int64), cast(emit, b, dt.int64))
    fits = binary(emit, "and", compare(emit, "le", wide, most), compare(emit, "ge", wide, least))
    emit.op(tt.Assert, [fits], message=f"int{bits} overflow detected for operation {name}")


def binary(emit: Emitter, name: str, left: object, right: object) -> tensor:
    """Emit the Python binary operator `name` on run-time operands, without an overflow check."""
    if is_pointer(left) or is_pointer(right):
        return _pointer_arithmetic(emit, name, left, right)
    if name == "truediv":
        a, b = binary_operands(emit, left, right, divide=True, mixed_sign_error="/")
        return emit.value(arith.DivF, [a, b], a.type)
    if name == "pow":
        return _power(emit, left, right)
    if name == "matmul":
        raise SemanticError("unsupported operator @ on tensors; write tl.dot(a, b)")
    mixed = SYMBOLS[name] if name in ("floordiv", "mod") else None
    # PTX has no remainder of halves: like quotients they are taken in fp32.
    divide = name == "mod" and (_is_float(left) or _is_float(right))
    a, b = binary_operands(emit, left, right, divide=divide, mixed_sign_error=mixed)
    element = scalar_dtype(a)
    if element.is_floating():
        if name not in _FLOAT_OPS:
            raise SemanticError(
                f"invalid operands of type {_type_name(left)} and {_type_name(right)}: "
                f"operator {SYMBOLS[name]} needs integers"
                + ("; use tl.floor(x / y)" if name == "floordiv" else "")
            )
        return emit.value(_FLOAT_OPS[name], [a, b], a.type)
    if element.is_bool() and name in ("add", "sub", "mul"):
        name = {"add": "add", "sub": "sub", "mul": "and"}[name]
    signed_op, unsigned_op = _INTEGER_OPS[name]
    if name == "rshift":
        # Arithmetic iff the shifted operand, as written, is signed.
        element = scalar_dtype(left if isinstance(left, tensor) else b)
    return emit.value(unsigned_op if element.is_int_unsigned() else signed_op, [a, b], a.type)


def _type_name(operand: object) -> str:
    return str(operand.dtype if isinstance(operand, tensor) else type(operand).__name__)


def _power(emit: Emitter, base: object, exponent: object) -> tensor:
    if not isinstance(exponent, int) or isinstance(exponent, bool) or not 0 <= exponent <= 16:
        raise SemanticError(
            "operator ** on tensors takes a constant exponent from 0 to 16; "
            "use tl.extra.libdevice.pow(x, y) or tl.exp2(y * tl.log2(x))"
        )
    x = to_tensor(emit, base)
    result = splat(emit, constant(emit, 1, scalar_dtype(x)), x.shape)
    for _ in range(exponent):
        result = binary(emit, "mul", result, x)
    return result


def _pointer_arithmetic(emit: Emitter, name: str, left: object, right: object) -> tensor:
    if name == "sub" and is_pointer(left) and not is_pointer(right):
        offset = unary(emit, "neg", right) if isinstance(right, tensor) else -right  # type: ignore[operator]
        return _pointer_arithmetic(emit, "add", left, offset)
    if name != "add" or (is_pointer(left) and is_pointer(right)):
        raise SemanticError(
            f"unsupported operator {SYMBOLS[name]} on pointers, only p + offset; "
            "tl.load reads what one points to"
        )
    pointer, offset = (left, right) if is_pointer(left) else (right, left)
    assert isinstance(pointer, tensor)
    index = to_tensor(emit, offset)
    if not scalar_dtype(index).is_int():
        raise SemanticError(f"a pointer offset must be an integer, got {index.dtype}")
    element = scalar_dtype(index)
    if element.is_int_unsigned() and element.primitive_bitwidth < 64:
        # Offsets are signed in addptr; an unsigned one keeps its value only when widened.
        index = cast(emit, index, dt.int64)
    if element.is_bool():
        index = cast(emit, index, dt.int32)
    pointer, index = broadcast_pair(emit, pointer, index)
    return emit.value(tt.AddPtr, [pointer, index], pointer.type)


def unary(emit: Emitter, name: str, value: object) -> tensor:
    """The Python unary operator `name`: neg, pos or invert."""
    x = to_tensor(emit, value)
    if x.type.scalar.is_ptr():
        raise SemanticError(f"unary {name} is not defined on pointers")
    element = scalar_dtype(x)
    if name == "pos":
        return x
    if name == "neg":
        if element.is_floating() and not emit.is_before(3, 8):
            return emit.value(arith.NegF, [x], x.type)
        zero = splat(emit, constant(emit, 0, element), x.shape)
        subtract = arith.SubF if element.is_floating() else arith.SubI
        return emit.value(subtract, [zero, x], x.type)
    if element.is_floating():
        raise SemanticError(f"operator ~ needs integers, got {element}")
    ones = constant(emit, 1 if element.is_bool() else -1, _signed(element))
    mask = tensor(splat(emit, ones, x.shape).value, x.type)
    return emit.value(arith.XOrI, [x, mask], x.type)


def _signed(element: dtype) -> dtype:
    return dtype(element.name.lstrip("u")) if element.is_int_unsigned() else element


_PREDICATES = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def compare(emit: Emitter, name: str, left: object, right: object) -> tensor:
    """The Python comparison `name` on run-time operands, int1."""
    assert name in _PREDICATES, name
    if is_pointer(left) or is_pointer(right):
        pointer, other = (left, right) if is_pointer(left) else (right, left)
        raise SemanticError(
            f"`{_PREDICATES[name]}` compares {describe(pointer)} with {describe(other)}; "
            "an argument that is a tensor is a pointer: tl.load it, or pass a number"
        )
    if emit.is_before(3, 9):
        # Before Triton 3.9, a Python number was fp32 or int32, and widened the other operand.
        left, right = to_tensor(emit, left), to_tensor(emit, right)
    a, b = binary_operands(emit, left, right)
    result = with_scalar(a.type, dt.int1)
    element = scalar_dtype(a)
    if element.is_floating():
        predicate = "une" if name == "ne" else "o" + name
        return emit.value(arith.CmpF, [a, b], result, predicate=predicate)
    if name not in ("eq", "ne"):
        unsigned = element.is_int_unsigned() or element.is_bool()
        name = ("u" if unsigned else "s") + name
    return emit.value(arith.CmpI, [a, b], result, predicate=name)


def to_condition(emit: Emitter, value: object) -> tensor:
    """`value`, a scalar or a tile of one element, as a scalar int1, for `if` and `while`."""
    x = to_tensor(emit, value)
    if x.type.is_block():
        if x.numel == 1:
            x = unsplat(emit, x)
        else:
            raise SemanticError(
                f"a condition must be a scalar, got a tile of shape {list(x.shape)}; "
                "reduce it first, or use tl.where"
            )
    return cast(emit, x, dt.int1)


def _as_bool(emit: Emitter, value: object) -> tensor:
    return cast(emit, to_tensor(emit, value), dt.int1)


def logical_and(emit: Emitter, left: object, right: object) -> tensor:
    """`left and right` on run-time values, element by element."""
    return binary(emit, "and", _as_bool(emit, left), _as_bool(emit, right))


def logical_or(emit: Emitter, left: object, right: object) -> tensor:
    """`left or right` on run-time values, element by element."""
    return binary(emit, "or", _as_bool(emit, left), _as_bool(emit, right))


def logical_not(emit: Emitter, value: object) -> tensor:
    """`not value` on a run-time value, element by element."""
    return unary(emit, "invert", _as_bool(emit, value))


def subscript(emit: Emitter, value: tensor, indices: tuple[object, ...]) -> tensor:
    """`value[:, None]`: full slices keep an axis, None adds one."""
    if not value.type.is_block():
        new_axes = sum(index is None for index in indices)
        if new_axes and indices.count(slice(None)) == len(indices) - new_axes:
            return splat(emit, value, (1,) * new_axes)
        raise SemanticError("unsupported tensor index: a scalar takes only None, as in x[None]")
    if indices.count(slice(None)) > len(value.shape):
        raise SemanticError(
            f"too many ':' for a tile of shape {list(value.shape)}: got {len(indices)} indices"
        )
    axis = 0
    for index in indices:
        if index is None:
            value = expand_dims(emit, value, axis)
        elif not (isinstance(index, slice) and index == slice(None)):
            raise SemanticError(
                f"unsupported tensor index {index!r}; only ':' and None "
                "(use tl.gather, a reduction with a mask, or a pointer load)"
            )
        axis += 1
    return value


def require_pointer(value: object, what: str) -> tensor:
    """`value` checked to be a pointer or a tile of pointers."""
    if not is_pointer(value):
        got = value.type if isinstance(value, tensor) else repr(value)
        if isinstance(value, tuple):
            count = f"{len(value)} value{'s' * (len(value) != 1)}"
            got = f"a tuple of {count}; is there a comma too many where it was made?"
        elif isinstance(value, tensor):
            got = f"{got}; add offsets to a pointer argument, as in x_ptr + offsets"
        raise SemanticError(f"{what} needs a pointer, got {got}")
    assert isinstance(value, tensor)
    return value


def pointee(pointer: tensor) -> LanguageType:
    """Element type a pointer (or tile of pointers) points to."""
    type_ = pointer.type.scalar
    assert isinstance(type_, pointer_type)
    return type_.element_ty


_BINARY = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod"),
    *("lshift", "rshift", "and", "or", "xor"),
)
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_UNARY = ("neg", "invert")


def _binary(name: str) -> Callable[..., tensor]:
    def emit_binary(emit: Emitter, self: tensor, other: object) -> tensor:
        return written_binary(emit, name, self, other)

    return emit_binary


def _reflected(name: str) -> Callable[..., tensor]:
    def emit_reflected(emit: Emitter, self: tensor, other: object) -> tensor:
        return written_binary(emit, name, other, self)

    return emit_reflected


def _comparison(name: str) -> Callable[..., tensor]:
    def emit_comparison(emit: Emitter, self: tensor, other: object) -> tensor:
        return compare(emit, name, self, other)

    return emit_comparison


def _unary(name: str) -> Callable[..., tensor]:
    def emit_unary(emit: Emitter, self: tensor) -> tensor:
        return unary(emit, name, self)

    return emit_unary


_EMITTERS = {
    **{f"__{name}__": _binary(name) for name in _BINARY},
    **{f"__r{name}__": _reflected(name) for name in _BINARY},
    **{f"__{name}__": _comparison(name) for name in _COMPARISONS},
    **{f"__{name}__": _unary(name) for name in _UNARY},
    "logical_and": logical_and,
    "logical_or": logical_or,
}
OPERATOR_METHODS = {name: Builtin(name, emit, member=True) for name, emit in _EMITTERS.items()}
