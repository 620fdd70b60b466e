"""Which dtype an operation of two numbers has: upstream's promotion rules (docs/language.md).

Plain Python numbers are weak: they take the other operand's dtype when it is of their kind or a
wider one.
"""

from __future__ import annotations

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.describe import shown_int
from tkdebug.compiler.dtypes import dtype
from tkdebug.compiler.ops.spec import SemanticError


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
