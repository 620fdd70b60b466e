"""Limits on the size of compile-time constants, checked before Python makes them.

`(0,) * 10**9` or `1 << (1 << 40)` in a kernel would take all memory, or never end. Python's own
functions on constants are limited, too; a plain Python function of the script's may do what it
likes, as anywhere in the script.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from types import BuiltinFunctionType, MethodWrapperType
from typing import Any

from tkdebug.compiler.ops.spec import SemanticError

# The widest type has 64 bits; reciprocals and products of constants are made in several times that.
MAX_INT_BITS = 8192
# The most items of a tuple, and the most iterations that are unrolled.
MAX_ITEMS = 65536
MAX_TEXT_CHARS = 1 << 20
# Larger factorials and binomials have more bits than an int may have.
_MAX_COMBINED = 1024

_PADDING_METHODS = ("ljust", "rjust", "center", "zfill", "expandtabs", "to_bytes")
_NUMBER = re.compile(r"\d+")
# "%(name)-8.3f", and where a width is a value, "%*d".
_CONVERSION = re.compile(r"%(?:\([^()]*\))?[-+ #0]*(\*|\d*)(?:\.(\*|\d*))?[hlL]?(.)", re.DOTALL)
# Functions that consume a whole iterable at once.
_CONSUMERS = (sorted, any, all, math.prod, math.fsum)


def check_binary(name: str, symbol: str, left: Any, right: Any) -> None:
    """Refuse a binary operator on constants whose result would be too large.

    Raises:
        SemanticError: the result would be too large.
    """
    if isinstance(left, int) and isinstance(right, int):
        _check_int_bits(f"`{symbol}` on constants", _result_bits(name, left, right))
    elif name == "mul":
        for sequence, count in ((left, right), (right, left)):
            if isinstance(count, int) and isinstance(sequence, str | bytes | tuple):
                _check_length(f"`{symbol}`", sequence, _size(sequence) * max(count, 0))
    elif name == "add" and any(
        isinstance(left, kind) and isinstance(right, kind) for kind in (str, bytes, tuple)
    ):
        _check_length(f"`{symbol}`", left, _size(left) + _size(right))
    elif name == "mod" and isinstance(left, str):
        _check_conversions(left, right)


def _result_bits(name: str, left: int, right: int) -> int:
    """Return a bound on the bits of an operator's result; 0 if the operator makes no int grow."""
    if name == "lshift":
        return left.bit_length() + right if left else 0
    if name == "pow":
        return left.bit_length() * right if left not in (-1, 0, 1) else 0
    if name == "mul":
        return left.bit_length() + right.bit_length()
    return 0


def _check_int_bits(what: str, bits: int) -> None:
    if bits > MAX_INT_BITS + 1:
        raise SemanticError(
            f"{what} gives an int of more than {MAX_INT_BITS} bits, the most that a constant of a "
            "kernel may have"
        )


def _check_length(what: str, sequence: str | bytes | tuple[Any, ...], length: int) -> None:
    is_tuple = isinstance(sequence, tuple)
    limit, items = (MAX_ITEMS, "items") if is_tuple else (MAX_TEXT_CHARS, "characters")
    if length > limit:
        kind = "a tuple" if is_tuple else "a string"
        raise SemanticError(
            f"{what} gives {kind} of {length} {items}; constants of a kernel may have at most "
            f"{limit}"
        )


def _size(value: Any) -> int:
    """Count a tuple's items, with those of tuples in it, as far as the limits need it."""
    if not isinstance(value, tuple):
        return len(value)
    count, open_tuples = 0, [value]
    while open_tuples and count <= MAX_ITEMS:
        items = open_tuples.pop()
        count += len(items)
        open_tuples.extend(item for item in items if isinstance(item, tuple))
    return count


def check_tuple(items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return `items`, a tuple that a kernel makes, after a check of its size.

    Raises:
        SemanticError: it has too many items, those of tuples in it included.
    """
    _check_length("this", items, _size(items))
    return items


def check_format(spec: str, padded: int = 0) -> int:
    """Refuse a format that, with those before it, pads by too much.

    Args:
        spec: the format of one value, with its width and precision.
        padded: characters that the formats before it may pad by.

    Returns:
        Characters that this format and those before it may pad by together.

    Raises:
        SemanticError: together they pad by too much.
    """
    padded += sum(int(number[:20]) for number in _NUMBER.findall(spec))
    _check_padding(padded)
    return padded


def _check_padding(characters: int) -> None:
    if characters > MAX_TEXT_CHARS:
        raise SemanticError(
            f"formatting gives a string of {characters} characters or more; constants of a "
            f"kernel may have at most {MAX_TEXT_CHARS}"
        )


def _check_conversions(template: str, values: Any) -> None:
    """Refuse `template % values` if that pads by too much."""
    given = iter(values if isinstance(values, tuple) else (values,))
    padded = 0
    for width, precision, kind in _CONVERSION.findall(template):
        for size in (width, precision):
            if size == "*":
                size = str(next(given, ""))
            padded = check_format(size, padded)
        if kind != "%":
            next(given, None)


class _PaddingCheck(string.Formatter):
    """Formats as `str.format` does, and refuses formats that together pad by too much."""

    def __init__(self) -> None:
        self._padded = 0

    def format_field(self, value: Any, format_spec: str) -> str:
        self._padded = check_format(format_spec, self._padded)
        return str(super().format_field(value, format_spec))


def bounded(values: Iterable[Any], what: str) -> list[Any]:
    """Return the items of an iterable of constants, at most `MAX_ITEMS`.

    Raises:
        SemanticError: there are too many items.
    """
    items = list(islice(values, MAX_ITEMS + 1))
    check_steps(len(items), what)
    return items


def check_steps(steps: int, what: str) -> None:
    """Refuse to work through more than `MAX_ITEMS` steps of `what` at compile time.

    Raises:
        SemanticError: there are too many steps.
    """
    if steps > MAX_ITEMS:
        raise SemanticError(
            f"{what} of more than {MAX_ITEMS} items, the most that is worked through at compile "
            "time; use a loop over tl.range"
        )


def check_call(
    function: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any] | None = None
) -> None:
    """Refuse a call of one of Python's own functions that would make something too large.

    Raises:
        SemanticError: the result would be too large.
    """
    if any(function is consumer for consumer in _CONSUMERS):
        for value in arguments:
            if isinstance(value, range):
                bounded(value, f"`{function.__name__}`")
    if isinstance(function, MethodWrapperType) and len(arguments) == 1:
        name = function.__name__.strip("_")
        check_binary(name, name, function.__self__, arguments[0])
    if not isinstance(function, BuiltinFunctionType):
        return
    name = function.__name__
    if (function is pow or function.__module__ == "_operator") and len(arguments) == 2:
        check_binary(name, name, *arguments)
    elif function in (math.factorial, math.comb, math.perm):
        if any(isinstance(value, int) and value > _MAX_COMBINED for value in arguments):
            _check_int_bits(f"`{name}`", MAX_INT_BITS + 2)
    elif function is format and arguments and isinstance(arguments[-1], str):
        check_format(arguments[-1])
    elif isinstance(function.__self__, str | bytes | int):
        _check_method(name, function.__self__, arguments, keywords or {})


def _check_method(
    name: str, owner: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> None:
    """Refuse a method of a string or an int whose result would be too large."""
    ints = [value for value in arguments if isinstance(value, int)]
    texts = [value for value in arguments if isinstance(value, str)]
    length = 0
    if name in _PADDING_METHODS:
        length = max(ints, default=0) * (owner.count("\t") if name == "expandtabs" else 1)
    elif name == "replace" and len(texts) == 2:
        length = len(owner) + owner.count(texts[0]) * len(texts[1])
    elif name == "join" and arguments and isinstance(arguments[0], tuple):
        length = sum(len(text) + len(owner) for text in arguments[0] if isinstance(text, str))
    elif name == "format":
        # The call reports other mistakes in it.
        with suppress(ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            _PaddingCheck().vformat(owner, arguments, keywords)
        length = len(owner) + owner.count("{") * max(map(len, texts), default=0)
    _check_length(f"`{name}`", "", length)


def check_result(function: str, value: Any) -> Any:
    """Return `value`, the result of one of Python's functions, after a check of its size.

    Raises:
        SemanticError: it is too large for a constant.
    """
    if isinstance(value, int):
        _check_int_bits(f"`{function}`", value.bit_length())
    elif isinstance(value, str | bytes | tuple):
        _check_length(f"`{function}`", value, _size(value))
    return value
