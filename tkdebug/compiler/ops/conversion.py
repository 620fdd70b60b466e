"""Conversions: values become an op's operands, by promotion, casts and broadcasting.

The rules of promotion are upstream's (docs/language.md). Plain Python numbers are weak: they take
the other operand's dtype when it is of their kind or a wider one. What the operators do with the
converted operands is in `operators`.
"""

from __future__ import annotations

import math
from typing import Any

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.describe import shown_int
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dtypes import LanguageType, block_type, dtype
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.op_view import OpName
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import scalar_dtype, tensor


def natural_dtype(value: object) -> dtype:
    """The dtype a Python number gets when it becomes a run-time value."""
    match value:
        case bool():
            return dt.int1
        case int():
            for candidate in (dt.int32, dt.uint32, dt.int64, dt.uint64):
                low, high = candidate.get_int_min_value(), candidate.get_int_max_value()
                if low <= value <= high:
                    return candidate
            raise SemanticError(f"integer {shown_int(value)} does not fit 64 bits")
        case float():
            return dt.float32
        case _:
            raise SemanticError(
                f"cannot make a run-time value of {value!r} ({type(value).__name__}); "
                "expected a number or a tensor"
            )


def promote(left: dtype, right: dtype, divide: bool = False) -> dtype:
    """Common dtype of two run-time operands (LLVM-like rules of upstream's semantic layer)."""
    for wide in (dt.float64, dt.float32):
        if wide in (left, right):
            return wide
    if dt.float16 in (left, right):
        return dt.float32 if divide else dt.float16
    if dt.bfloat16 in (left, right):
        if divide or left != right:
            return dt.float32
        return dt.bfloat16
    if left.is_fp8() or right.is_fp8():
        if left == right:
            return left
        return dt.float16 if left.is_fp8() and right.is_fp8() else dt.float32
    if divide and left.is_int() and right.is_int():
        return dt.float32
    if left.is_int_signed() == right.is_int_signed():
        return left if left.primitive_bitwidth >= right.primitive_bitwidth else right
    unsigned, signed = (left, right) if left.is_int_unsigned() else (right, left)
    return unsigned if unsigned.primitive_bitwidth >= signed.primitive_bitwidth else signed


def promote_weak(strong: dtype, value: bool | int | float, divide: bool = False) -> dtype:
    """Dtype of an operation between a run-time operand and a Python number."""
    if isinstance(value, bool):
        kind_of_value = 0
    elif isinstance(value, int):
        kind_of_value = 1
    else:
        kind_of_value = 2
    kind_of_strong = 0 if strong.is_bool() else 1 if strong.is_int() else 2
    if kind_of_strong >= kind_of_value:
        halves_or_integers = strong in (dt.float16, dt.bfloat16) or strong.is_int()
        return dt.float32 if divide and halves_or_integers else strong
    natural = natural_dtype(value)
    return promote(strong, natural, divide)


def with_scalar(type_: LanguageType, element: LanguageType) -> LanguageType:
    """`type_` with its element type replaced."""
    return block_type(element, type_.shape) if type_.is_block() else element


def constant(emit: Emitter, value: bool | int | float, element: dtype) -> tensor:
    """A scalar constant of type `element`; the value must be in its range."""
    if element.is_int():
        if isinstance(value, float) and not math.isfinite(value):
            raise SemanticError(f"constant {value} does not fit {element}")
        value = int(value)
        if element.is_bool():
            value = int(bool(value))
        elif not element.get_int_min_value() <= value <= element.get_int_max_value():
            raise SemanticError(f"constant {value} does not fit {element}")
    else:
        value = float(value)
    op = emit.op(arith.Constant, (), [element.to_ir()], value=_signless(value, element))
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
    natural = natural_dtype(value)
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
    op = emit.op(tt.Splat, [value], [ir.tile(shape, element)])
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
    op = emit.op(tt.Broadcast, [value], [ir.tile(shape, ir.element_of(value.value.type))])
    return tensor(op.result, block_type(value.type.scalar, shape))


def expand_dims(emit: Emitter, value: tensor, axis: int) -> tensor:
    """`value` with a new axis of extent 1 before `axis`; a scalar becomes a tile of one element."""
    if not value.type.is_block():
        return splat(emit, value, (1,))
    axis = axis + len(value.shape) + 1 if axis < 0 else axis
    op = emit.op(tt.ExpandDims, [value], axis=axis)
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


def shape_of_pointers(what: str, pointers: tensor, **tiles: object) -> tuple[int, ...]:
    """The pointers' shape, which values stored through them have to broadcast to.

    Args:
        what: the name of the op, for the message.
        pointers: a tile of pointers, or one.
        tiles: the value and the mask by name; scalars and numbers among them fit any shape.

    Raises:
        SemanticError: a tile fits the pointers only if these are broadcast, too.
    """
    shape = pointers.shape
    for name, tile in tiles.items():
        if isinstance(tile, tensor) and tile.type.is_block() and pointers.type.is_block():
            shared = broadcast_shape(shape, tile.shape)
            if shared != shape:
                raise SemanticError(
                    f"{what}: the {name} {list(tile.shape)} does not broadcast to the pointers' "
                    f"shape {list(shape)}, but both to {list(shared)}; give the pointers the "
                    "shape that is meant, as by offsets[:, None]"
                )
    return shape


def broadcast_all(emit: Emitter, *values: tensor) -> tuple[tensor, ...]:
    """All operands at their common shape."""
    shape: tuple[int, ...] = ()
    for value in values:
        shape = broadcast_shape(shape, value.shape)
    return tuple(broadcast_to(emit, value, shape) for value in values)


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
        return _emit_cast(emit, tt.IntToPtr, cast(emit, value, dt.int64), target)
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
        name = arith.FPToSI if target.is_int_signed() else arith.FPToUI
        return _emit_cast(emit, name, value, target)
    signed = is_signed(source)
    if target.is_floating():
        return _emit_cast(emit, arith.SIToFP if signed else arith.UIToFP, value, target)
    if target.primitive_bitwidth == source.primitive_bitwidth:
        return tensor(value.value, with_scalar(value.type, target))
    if target.primitive_bitwidth < source.primitive_bitwidth:
        return _emit_cast(emit, arith.TruncI, value, target)
    return _emit_cast(emit, arith.ExtSI if signed else arith.ExtUI, value, target)


def _emit_cast(
    emit: Emitter, name: OpName, value: tensor, target: LanguageType, **attributes: Any
) -> tensor:
    """The result of op `name`: `value` with elements of type `target`."""
    element = target.to_ir()
    assert isinstance(element, ir.ScalarType | ir.PointerType)
    op = emit.op(name, [value], [ir.with_element(value.value.type, element)], **attributes)
    return tensor(op.result, with_scalar(value.type, target))


def _is_not_zero(emit: Emitter, value: tensor, source: dtype) -> tensor:
    zero = splat(emit, constant(emit, 0, source), value.shape)
    name, predicate = (arith.CmpF, "une") if source.is_floating() else (arith.CmpI, "ne")
    result = with_scalar(value.type, dt.int1)
    return tensor(emit.op(name, [value, zero], predicate=predicate).result, result)


def _cast_float(emit: Emitter, value: tensor, target: dtype, rounding: str | None) -> tensor:
    source = scalar_dtype(value)
    if source.is_fp8() or target.is_fp8() or rounding is not None:
        return _emit_cast(emit, tt.FpToFp, value, target, rounding=rounding or "rtne")
    if target.primitive_bitwidth == source.primitive_bitwidth:
        # fp16 and bf16: neither holds the other.
        return cast(emit, cast(emit, value, dt.float32), target)
    wider = target.primitive_bitwidth > source.primitive_bitwidth
    return _emit_cast(emit, arith.ExtF if wider else arith.TruncF, value, target)


def _bitcast(emit: Emitter, value: tensor, target: LanguageType) -> tensor:
    source = value.type.scalar
    if not (source.is_ptr() and target.is_ptr()):
        have = 64 if source.is_ptr() else source.primitive_bitwidth  # type: ignore[attr-defined]
        want = 64 if target.is_ptr() else target.primitive_bitwidth  # type: ignore[attr-defined]
        if have != want:
            raise SemanticError(f"cannot bitcast {source} ({have} bits) to {target} ({want} bits)")
    if source.to_ir() == target.to_ir():
        return tensor(value.value, with_scalar(value.type, target))
    return _emit_cast(emit, tt.Bitcast, value, target)


def _pointer_to_integer(emit: Emitter, value: tensor, target: LanguageType) -> tensor:
    if target not in (dt.int64, dt.uint64, dt.int1):
        raise SemanticError(
            f"cannot cast {value.dtype} to {target}; tl.load reads what it points to, "
            ".to(tl.int64) gives the address"
        )
    return cast(emit, _emit_cast(emit, tt.PtrToInt, value, dt.int64), target)


def is_signed(element: dtype) -> bool:
    """Whether conversions from `element` extend its sign."""
    # Upstream counts int1 among the unsigned types.
    return element.is_int_signed() and not element.is_bool()


def unsplat(emit: Emitter, value: tensor) -> tensor:
    """The only element of a one-element tile, as a scalar."""
    op = emit.op(tt.Unsplat, [value])
    return tensor(op.result, value.type.scalar)


def _emit_to_tensor(emit: Emitter, value: object) -> tensor:
    """A Python number as a scalar; a tensor as it is.

    A bool becomes int1, an int the first of int32, uint32, int64 and uint64 that holds it, and a
    float fp32, or fp64 where it is outside the range of normal fp32 numbers.
    """
    return to_tensor(emit, value)


def _emit_item(emit: Emitter, input: object) -> tensor:
    """The only element of a one-element tile, as a scalar; a scalar as it is."""
    value = to_tensor(emit, input)
    if not value.type.is_block():
        return value
    if value.numel != 1:
        raise SemanticError(
            f"item: the tile must have one element, got shape {list(value.shape)}; reduce it first"
        )
    return unsplat(emit, value)


LANGUAGE: dict[str, Builtin] = {"item": Builtin("item", _emit_item, member=True)}
# Functions that upstream keeps in `tl.core`.
BUILTINS = {"to_tensor": Builtin("core.to_tensor", _emit_to_tensor)}
