"""Python's builtins inside kernels: some have a run-time meaning, the rest work on constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tkdebug.compiler.describe import describe
from tkdebug.compiler.frontend import folding
from tkdebug.compiler.frontend.arguments import unwrap_deep
from tkdebug.compiler.frontend.arithmetic import apply_binary
from tkdebug.compiler.frontend.attributes import attribute, has_attribute
from tkdebug.compiler.frontend.limits import bounded, check_result
from tkdebug.compiler.frontend.values import has_runtime, known_constant
from tkdebug.compiler.frontend.visitor import Visitor
from tkdebug.compiler.ops import table
from tkdebug.compiler.ops.spec import SemanticError
from tkdebug.compiler.tensor import constexpr, is_runtime, tensor

_MISSING = object()


def _extremum(which: str, python: Callable[..., Any]) -> Callable[..., Any]:
    def call(v: Visitor, *arguments: Any) -> Any:
        values = arguments[0] if len(arguments) == 1 else arguments
        if not isinstance(values, tuple | range) or not values:
            raise SemanticError(
                f"{python.__name__} needs at least two values, got {len(arguments)}"
            )
        values = tuple(bounded(values, python.__name__))
        if not has_runtime(values):
            return folding.fold(python, python.__name__, values)
        result = values[0]
        for value in values[1:]:
            result = table.LANGUAGE[which].emit(v.emit, result, value)
        return result

    return call


def _abs(v: Visitor, value: Any) -> Any:
    if isinstance(value, tensor):
        return table.LANGUAGE["abs"].emit(v.emit, value)
    return folding.fold(abs, "abs", value)


def _sum(v: Visitor, values: Any, start: Any = 0) -> Any:
    if not isinstance(values, tuple | range):
        raise SemanticError(f"sum adds up a tuple, got {describe(values)}; for a tile use tl.sum")
    result = start
    for value in bounded(values, "sum"):
        result = apply_binary(v, "add", result, value)
    return result


def _print(v: Visitor, *values: Any, **keywords: Any) -> None:
    if not has_runtime(values):
        table.LANGUAGE["static_print"].emit(v.emit, *values, **keywords)
        return
    prefix = ""
    if isinstance(values[0], str):
        prefix, values = values[0], values[1:]
    keywords.pop("sep", None)
    keywords.pop("end", None)
    table.LANGUAGE["device_print"].emit(v.emit, prefix, *values, **keywords)


def _len(v: Visitor, value: Any) -> int:
    if is_runtime(value):
        raise SemanticError(f"{describe(value)} has no len(); use x.shape[0]")
    length: int = folding.fold(len, "len", value)
    return length


def _number(python: type, target: str) -> Callable[..., Any]:
    def call(v: Visitor, *arguments: Any) -> Any:
        values = tuple(known_constant(argument) for argument in arguments)
        if has_runtime(values):
            raise SemanticError(
                f"{python.__name__}() works on constants, got a run-time {describe(values[0])}; "
                f"use x.to(tl.{target})"
            )
        return check_result(python.__name__, folding.fold(python, python.__name__, *values))

    return call


def _isinstance(v: Visitor, value: Any, classes: Any) -> bool:
    options = classes if isinstance(classes, tuple) else (classes,)
    # Every compile-time value counts as a constexpr, and as what it is.
    if constexpr in options and not has_runtime(value):
        return True
    found: bool = folding.fold(isinstance, "isinstance", value, options)
    return found


def _getattr(v: Visitor, owner: Any, name: Any, default: Any = _MISSING) -> Any:
    if not isinstance(name, str):
        raise SemanticError(f"getattr: the name must be a constant string, got {describe(name)}")
    if default is not _MISSING and not has_attribute(v, owner, name):
        return default
    return attribute(v, owner, name)


def _hasattr(v: Visitor, owner: Any, name: Any) -> bool:
    if not isinstance(name, str):
        raise SemanticError(f"hasattr: the name must be a constant string, got {describe(name)}")
    return has_attribute(v, owner, name)


def _tuple(v: Visitor, values: Any = ()) -> tuple[Any, ...]:
    if is_runtime(values):
        raise SemanticError(f"{describe(values)} cannot become a tuple")
    items: tuple[Any, ...] = folding.fold(_spread, "tuple", values)
    return items


def _spread(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(bounded(values, "a tuple"))


CALLS: dict[Any, Callable[..., Any]] = {
    min: _extremum("minimum", min),
    max: _extremum("maximum", max),
    abs: _abs,
    sum: _sum,
    print: _print,
    len: _len,
    int: _number(int, "int32"),
    float: _number(float, "float32"),
    bool: _number(bool, "int1"),
    isinstance: _isinstance,
    getattr: _getattr,
    hasattr: _hasattr,
    tuple: _tuple,
    list: _tuple,
    constexpr: lambda v, value: unwrap_deep(value),
}
