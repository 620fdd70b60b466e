"""Fields of requests, checked: a wrong one is refused by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from tkdebug.errors import UsageError

T = TypeVar("T", int, str, bool, list[Any], dict[str, Any])
_NAMES = {int: "a number", str: "text", bool: "true or false", list: "a list", dict: "an object"}


def required(arguments: Mapping[str, Any], name: str, type_: type[T]) -> T:
    """A field that has to be there.

    Raises:
        UsageError: it is not, or has another type.
    """
    if name not in arguments:
        raise UsageError(f"`{name}` is missing, expected {_NAMES[type_]}")
    return _checked(name, arguments[name], type_)


def optional(arguments: Mapping[str, Any], name: str, default: T) -> T:
    """A field, or `default` where it is left out or null.

    Raises:
        UsageError: it has another type than `default`.
    """
    value = arguments.get(name)
    return default if value is None else _checked(name, value, type(default))


def _checked(name: str, value: Any, type_: type[T]) -> T:
    if type(value) is not type_:
        shown = repr(value)
        shown = shown if len(shown) <= 40 else f"{shown[:40]}…"
        raise UsageError(f"`{name}` is {shown}, expected {_NAMES[type_]}")
    found: T = value
    return found


def texts(arguments: Mapping[str, Any], name: str) -> list[str]:
    """A list of texts; empty where it is left out.

    Raises:
        UsageError: it holds something else.
    """
    empty: list[Any] = []
    found = optional(arguments, name, empty)
    return [_checked(f"{name}[{place}]", item, str) for place, item in enumerate(found)]
