"""What `+`, `<`, `x[:, None]` and implicit conversions mean: broadcasting, casts, operators.

Responsible for which ops they become; which dtype two operands meet in is `promotion`'s.
"""

from __future__ import annotations

from typing import Any

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.dtypes import LanguageType, block_type, dtype, pointer_type
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ops import promotion
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import SemanticError
from tkdebug.compiler.tensor import scalar_dtype, tensor


def with_scalar(type_: LanguageType, element: LanguageType) -> LanguageType:
    """`type_` with its element type replaced."""
    return block_type(element, type_.shape) if type_.is_block() else element


def constant(emit: Emitter, value: bool | int | float, element: dtype) -> tensor:
    """A scalar constant of type `element`; the value must be in its range."""
    if element.is_int():
        value = int(value)
        if element.is_bool():
            value = int(bool(value))
        elif not element.get_int_min_value() <= value <= element.get_int_max_value():
            raise SemanticError(f"constant {value} does not fit {element}")
    else:
        value = float(value)
    op = emit.op("arith.constant", (), [element.to_ir()], value=_signless(value, element))
    return tensor(op.result, element)


def _signless(value: bool | int | float, element: dtype) -> int | float:
    if isinstance(value, int) and element.is_int_unsigned():
        bits = element.primitive_bitwidth
        return value - (1 << bits) if value >> (bits - 1) else value
    return value


def to_tensor(emit: Emitter, value: object, element: dtype | None = None) -> tensor:
    """`value` as a run-time value: a Python number becomes a scalar constant."""
    if isinstance(value, tensor):
        return value
    natural = promotion.natural_dtype(value)
    if isinstance(value, float) and element is None and abs(value) not in (0.0, float("inf")):
        # A double that single precision cannot hold at all stays a double, as upstream does.
        if value == value and not 2.0**-126 <= abs(value) <= (2.0 - 2.0**-23) * 2.0**127:
            natural = dt.float64
    assert isinstance(value, bool | int | float)
    return constant(emit, value, element or natural)


def splat(emit: Emitter, value: tensor, shape: tuple[int, ...]) -> tensor:
    """A scalar broadcast to `shape`; () leaves it a scalar."""
    if not shape:
        return value
    element = value.type.to_ir()
    assert isinstance(element, ir.ScalarType | ir.PointerType)
    op = emit.op("tt.splat", [value], [ir.tile(shape, element)])
    return tensor(op.result, block_type(value.type, shape))


def broadcast_to(emit: Emitter, value: tensor, shape: tuple[int, ...]) -> tensor:
    """`value` broadcast to `shape` by the language's rules (trailing axes align)."""
    if value.shape == shape:
        return value
    if not value.type.is_block():
        return splat(emit, value, shape)
    if len(value.shape) > len(shape):
        raise SemanticError(f"cannot broadcast {list(value.shape)} to {list(shape)}")
    while len(value.shape) < len(shape):
        value = expand_dims(emit, value, 0)
    for axis, (have, want) in enumerate(zip(value.shape, shape, strict=True)):
        if have not in (want, 1):
            raise SemanticError(
                f"cannot broadcast {list(value.shape)} to {list(shape)}: "
                f"axis {axis} has {have}, expected {want} or 1"
            )
    if value.shape == shape:
        return value
    op = emit.op("tt.broadcast", [value], [ir.tile(shape, ir.element_of(value.value.type))])
    return tensor(op.result, block_type(value.type.scalar, shape))


def expand_dims(emit: Emitter, value: tensor, axis: int) -> tensor:
    """A new axis of extent 1 before `axis`."""
    if not value.type.is_block():
        return splat(emit, value, (1,))
    axis = axis + len(value.shape) + 1 if axis < 0 else axis
    op = emit.op("tt.expand_dims", [value], axis=axis)
    return tensor(op.result, block_type(value.type.scalar, ir.shape_of(op.result.type)))


def broadcast_pair(emit: Emitter, left: tensor, right: tensor) -> tuple[tensor, tensor]:
    """Both operands at their common shape."""
    if left.shape == right.shape and left.type.is_block() == right.type.is_block():
        return left, right
    shape = broadcast_shape(left.shape, right.shape)
    return broadcast_to(emit, left, shape), broadcast_to(emit, right, shape)


def broadcast_shape(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape of two shapes."""
    rank = max(len(left), len(right))
    a = (1,) * (rank - len(left)) + left
    b = (1,) * (rank - len(right)) + right
    out = []
    for axis, (x, y) in enumerate(zip(a, b, strict=True)):
        if x != y and 1 not in (x, y):
            raise SemanticError(
                f"shapes {list(left)} and {list(right)} do not broadcast: "
                f"axis {axis} has {x} against {y}"
            )
        out.append(max(x, y) if min(x, y) else 0)
    return tuple(out)


def broadcast_all(emit: Emitter, *values: tensor) -> tuple[tensor, ...]:
    """All operands at their common shape."""
    shape: tuple[int, ...] = ()
    for value in values:
        shape = broadcast_shape(shape, value.shape)
    return tuple(broadcast_to(emit, value, shape) for value in values)


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
    common = promotion.promote(a, b, divide)
    if mixed_sign_error and both_run_time and a.is_int() and b.is_int():
        if _is_signed(a) != _is_signed(b):
            raise SemanticError(
                f"Cannot use {mixed_sign_error} with {a} and {b} because they have different "
                "signedness; cast one of them with .to(...)"
            )
    return broadcast_pair(emit, cast(emit, lhs, common), cast(emit, rhs, common))


def _is_signed(element: dtype) -> bool:
    # Upstream counts int1 among the unsigned types.
    return element.is_int_signed() and not element.is_bool()


def _weak_to_strong(
    emit: Emitter, left: object, right: object, divide: bool
) -> tuple[tensor, tensor]:
    if isinstance(left, tensor) and isinstance(right, tensor):
        return left, right
    if isinstance(left, tensor):
        element = _weak_dtype(left, right, divide)
        return cast(emit, left, element), _weak_constant(emit, right, element, scalar_dtype(left))
    if isinstance(right, tensor):
        element = _weak_dtype(right, left, divide)
        return _weak_constant(emit, left, element, scalar_dtype(right)), cast(emit, right, element)
    return to_tensor(emit, left), to_tensor(emit, right)


def _weak_dtype(strong: tensor, weak: object, divide: bool) -> dtype:
    if not isinstance(weak, bool | int | float):
        raise SemanticError(f"unsupported operand {weak!r} beside a tensor of {strong.dtype}")
    return promotion.promote_weak(scalar_dtype(strong), weak, divide)


def _weak_constant(emit: Emitter, value: Any, element: dtype, strong: dtype) -> tensor:
    if element.is_int() and not element.is_bool() and not isinstance(value, float):
        low, high = element.get_int_min_value(), element.get_int_max_value()
        if not low <= value <= high:
            raise SemanticError(f"scalar {value} is out of range for type {strong}")
    return constant(emit, value, element)


def cast(
    emit: Emitter,
    value: tensor,
    target: LanguageType,
    rounding: str | None = None,
    bitcast: bool = False,
) -> tensor:
    """`value` converted to element type `target`."""
    source, target = value.type.scalar, target.scalar
    if source == target:
        return value
    if bitcast or (source.is_ptr() and target.is_ptr()):
        return _bitcast(emit, value, target)
    if source.is_ptr():
        return _pointer_to_integer(emit, value, target)
    if target.is_ptr():
        return _emit_cast(emit, "tt.int_to_ptr", cast(emit, value, dt.int64), target)
    assert isinstance(source, dtype)
    assert isinstance(target, dtype)
    if target.is_bool():
        return _is_not_zero(emit, value, source)
    if source.is_floating() and target.is_floating():
        return _cast_float(emit, value, target, rounding)
    if source.is_fp8() or target.is_fp8():
        # Integers and fp8 meet in fp32, which holds every fp8 number.
        return cast(emit, cast(emit, value, dt.float32), target)
    if source.is_floating():
        name = "arith.fptosi" if target.is_int_signed() else "arith.fptoui"
        return _emit_cast(emit, name, value, target)
    signed = _is_signed(source)
    if target.is_floating():
        return _emit_cast(emit, "arith.sitofp" if signed else "arith.uitofp", value, target)
    if target.primitive_bitwidth == source.primitive_bitwidth:
        return tensor(value.value, with_scalar(value.type, target))
    if target.primitive_bitwidth < source.primitive_bitwidth:
        return _emit_cast(emit, "arith.trunci", value, target)
    return _emit_cast(emit, "arith.extsi" if signed else "arith.extui", value, target)


def _emit_cast(
    emit: Emitter, name: str, value: tensor, target: LanguageType, **attributes: Any
) -> tensor:
    """Op `name`, which gives `value` with elements of type `target`."""
    element = target.to_ir()
    assert isinstance(element, ir.ScalarType | ir.PointerType)
    op = emit.op(name, [value], [ir.with_element(value.value.type, element)], **attributes)
    return tensor(op.result, with_scalar(value.type, target))


def _is_not_zero(emit: Emitter, value: tensor, source: dtype) -> tensor:
    zero = splat(emit, constant(emit, 0, source), value.shape)
    name, predicate = ("arith.cmpf", "une") if source.is_floating() else ("arith.cmpi", "ne")
    result = with_scalar(value.type, dt.int1)
    return tensor(emit.op(name, [value, zero], predicate=predicate).result, result)


def _cast_float(emit: Emitter, value: tensor, target: dtype, rounding: str | None) -> tensor:
    source = scalar_dtype(value)
    if source.is_fp8() or target.is_fp8() or rounding is not None:
        return _emit_cast(emit, "tt.fp_to_fp", value, target, rounding=rounding or "rtne")
    if target.primitive_bitwidth == source.primitive_bitwidth:
        # fp16 and bf16: neither holds the other.
        return cast(emit, cast(emit, value, dt.float32), target)
    wider = target.primitive_bitwidth > source.primitive_bitwidth
    return _emit_cast(emit, "arith.extf" if wider else "arith.truncf", value, target)


def _bitcast(emit: Emitter, value: tensor, target: LanguageType) -> tensor:
    source = value.type.scalar
    if not (source.is_ptr() and target.is_ptr()):
        have = 64 if source.is_ptr() else source.primitive_bitwidth  # type: ignore[attr-defined]
        want = 64 if target.is_ptr() else target.primitive_bitwidth  # type: ignore[attr-defined]
        if have != want:
            raise SemanticError(f"cannot bitcast {source} ({have} bits) to {target} ({want} bits)")
    if source.to_ir() == target.to_ir():
        return tensor(value.value, with_scalar(value.type, target))
    return _emit_cast(emit, "tt.bitcast", value, target)


def _pointer_to_integer(emit: Emitter, value: tensor, target: LanguageType) -> tensor:
    if target not in (dt.int64, dt.uint64, dt.int1):
        raise SemanticError(f"cannot cast {value.dtype} to {target}; pointers cast to int64")
    return cast(emit, _emit_cast(emit, "tt.ptr_to_int", value, dt.int64), target)


_INTEGER_OPS = {
    "add": ("arith.addi", "arith.addi"),
    "sub": ("arith.subi", "arith.subi"),
    "mul": ("arith.muli", "arith.muli"),
    "floordiv": ("arith.divsi", "arith.divui"),
    "mod": ("arith.remsi", "arith.remui"),
    "and": ("arith.andi", "arith.andi"),
    "or": ("arith.ori", "arith.ori"),
    "xor": ("arith.xori", "arith.xori"),
    "lshift": ("arith.shli", "arith.shli"),
    "rshift": ("arith.shrsi", "arith.shrui"),
}
_FLOAT_OPS = {
    "add": "arith.addf",
    "sub": "arith.subf",
    "mul": "arith.mulf",
    "mod": "arith.remf",
}
_SYMBOLS = {
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


def binary(emit: Emitter, name: str, left: object, right: object) -> tensor:
    """The Python binary operator `name` on run-time operands."""
    if is_pointer(left) or is_pointer(right):
        return _pointer_arithmetic(emit, name, left, right)
    if name == "truediv":
        a, b = binary_operands(emit, left, right, divide=True, mixed_sign_error="/")
        return emit.value("arith.divf", [a, b], a.type)
    if name == "pow":
        return _power(emit, left, right)
    if name == "matmul":
        raise SemanticError("unsupported operator @ on tensors; write tl.dot(a, b)")
    mixed = _SYMBOLS[name] if name in ("floordiv", "mod") else None
    # PTX has no remainder of halves: like quotients they are taken in fp32.
    divide = name == "mod" and (_is_float(left) or _is_float(right))
    a, b = binary_operands(emit, left, right, divide=divide, mixed_sign_error=mixed)
    element = scalar_dtype(a)
    if element.is_floating():
        if name not in _FLOAT_OPS:
            raise SemanticError(
                f"invalid operands of type {_type_name(left)} and {_type_name(right)}: "
                f"operator {_SYMBOLS[name]} needs integers"
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
        raise SemanticError(f"unsupported operator {_SYMBOLS[name]} on pointers; only p + offset")
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
    return emit.value("tt.addptr", [pointer, index], pointer.type)


def unary(emit: Emitter, name: str, value: object) -> tensor:
    """The Python unary operator `name`: neg, pos or invert."""
    x = to_tensor(emit, value)
    if x.type.scalar.is_ptr():
        raise SemanticError(f"unary {name} is not defined on pointers")
    element = scalar_dtype(x)
    if name == "pos":
        return x
    if name == "neg":
        if element.is_floating():
            return emit.value("arith.negf", [x], x.type)
        zero = splat(emit, constant(emit, 0, element), x.shape)
        return emit.value("arith.subi", [zero, x], x.type)
    if element.is_floating():
        raise SemanticError(f"operator ~ needs integers, got {element}")
    ones = constant(emit, 1 if element.is_bool() else -1, _signed(element))
    mask = tensor(splat(emit, ones, x.shape).value, x.type)
    return emit.value("arith.xori", [x, mask], x.type)


def _signed(element: dtype) -> dtype:
    return dtype(element.name.lstrip("u")) if element.is_int_unsigned() else element


_PREDICATES = {"lt", "le", "gt", "ge", "eq", "ne"}


def compare(emit: Emitter, name: str, left: object, right: object) -> tensor:
    """The Python comparison `name` on run-time operands; gives int1."""
    assert name in _PREDICATES, name
    if is_pointer(left) or is_pointer(right):
        a = cast(emit, to_tensor(emit, left), dt.int64) if is_pointer(left) else left
        b = cast(emit, to_tensor(emit, right), dt.int64) if is_pointer(right) else right
        return compare(emit, name, a, b)
    a, b = binary_operands(emit, left, right)
    result = with_scalar(a.type, dt.int1)
    element = scalar_dtype(a)
    if element.is_floating():
        predicate = "une" if name == "ne" else "o" + name
        return emit.value("arith.cmpf", [a, b], result, predicate=predicate)
    if name not in ("eq", "ne"):
        unsigned = element.is_int_unsigned() or element.is_bool()
        name = ("u" if unsigned else "s") + name
    return emit.value("arith.cmpi", [a, b], result, predicate=name)


def to_condition(emit: Emitter, value: object) -> tensor:
    """`value` as a scalar int1, for `if` and `while`."""
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


def unsplat(emit: Emitter, value: tensor) -> tensor:
    """The only element of a one-element tile, as a scalar."""
    op = emit.op("tt.unsplat", [value])
    return tensor(op.result, value.type.scalar)


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
