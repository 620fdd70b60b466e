"""Names of a kernel's values in error messages."""

from __future__ import annotations

from typing import Any

from tkdebug.compiler.aggregates import Aggregate
from tkdebug.compiler.dtypes import LanguageType, describe_type
from tkdebug.compiler.tensor import block_pointer, is_jit_function, tensor, tensor_descriptor

_MAX_CONSTANT_CHARS = 60
_MAX_ITEMS = 16
# Python refuses to write ints of more than some 14,000 bits.
_MAX_SHOWN_BITS = 8192


def describe(value: Any) -> str:
    """A value in words: a run-time one by its type, a constant by its value."""
    if isinstance(value, tensor):
        return describe_type(value.type)
    if isinstance(value, tensor_descriptor):
        return f"a tensor descriptor of {describe_type(value.block_type)}"
    if isinstance(value, block_pointer):
        return f"a block pointer to {describe_type(value.type.element_ty)}"
    if isinstance(value, Aggregate):
        return f"a {type(value).__name__}"
    if isinstance(value, tuple):
        inner = ", ".join(describe(item) for item in value[:_MAX_ITEMS])
        more = f", … ({len(value)} in all)" if len(value) > _MAX_ITEMS else ""
        return f"a tuple of ({inner}{more})"
    if is_jit_function(value):
        return f"the jit function {value.fn.__name__}"
    if isinstance(value, LanguageType):
        return f"the type {describe_type(value)}"
    if value is None:
        return "None"
    return f"the constant {_shortened(value)}"


def as_given(value: object) -> str:
    """A wrong argument, for messages that name the right one: a constant by its value alone."""
    if isinstance(value, tensor):
        return f"a run-time {describe(value)}"
    if isinstance(value, tuple):
        return f"({', '.join(map(as_given, value))})"
    if isinstance(value, bool | int | float | str):
        return _shortened(value)
    return describe(value)


def shown_int(value: int) -> str:
    """An int by its digits, or by its size where Python would refuse to write it."""
    bits = value.bit_length()
    return str(value) if bits <= _MAX_SHOWN_BITS else f"of {bits} bits"


def _shortened(constant: object) -> str:
    shown = shown_int(constant) if type(constant) is int else repr(constant)
    return shown if len(shown) <= _MAX_CONSTANT_CHARS else f"{shown[:_MAX_CONSTANT_CHARS]}…"
