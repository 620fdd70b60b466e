"""Calls: functions of the language, jit functions (inlined), Python's builtins on constants."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from types import BuiltinFunctionType
from typing import Any

from tkdebug.compiler.describe import describe
from tkdebug.compiler.dtypes import LanguageType
from tkdebug.compiler.frontend import arithmetic
from tkdebug.compiler.frontend.arguments import unwrap_deep
from tkdebug.compiler.frontend.arithmetic import apply_binary
from tkdebug.compiler.frontend.attributes import BoundMember, attribute, has_attribute
from tkdebug.compiler.frontend.expressions import expand_starred
from tkdebug.compiler.frontend.inline import inline
from tkdebug.compiler.frontend.limits import bounded, check_call, check_result, check_tuple
from tkdebug.compiler.frontend.scope import is_breakpoint
from tkdebug.compiler.frontend.values import has_runtime, known_constant
from tkdebug.compiler.frontend.visitor import Visitor
from tkdebug.compiler.ops import table
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import constexpr, is_jit_function, is_runtime, tensor


def call_arguments(v: Visitor, node: ast.Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The values of a call's arguments."""
    arguments = expand_starred(v, node.args)
    keywords: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise v.error(keyword.value, "`**` in a call is not supported; name each argument")
        keywords[keyword.arg] = v.expression(keyword.value)
    return arguments, keywords


def visit_call(v: Visitor, node: ast.Call) -> Any:
    """A call."""
    function = v.expression(node.func)
    arguments, keywords = call_arguments(v, node)
    return call(v, function, arguments, keywords)


def call(v: Visitor, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Call `function` at the current point."""
    if isinstance(function, BoundMember):
        arguments, function = (function.owner, *arguments), function.function
    if isinstance(function, Builtin):
        return _call_builtin(v, function, arguments, keywords)
    if is_breakpoint(function):
        return _break(v)
    if is_jit_function(function):
        return inline(v.program, v.builder.location, function, arguments, keywords)
    if isinstance(function, type | BuiltinFunctionType) and function in CALLS:
        return _call_python_builtin(v, function, arguments, keywords)
    if getattr(function, "is_constexpr_function", False):
        return _call_constexpr_function(v, function, arguments, keywords)
    if isinstance(function, type) and issubclass(function, tuple):
        return _make_tuple(function, arguments, keywords)
    return _call_python(function, arguments, keywords)


def _break(v: Visitor) -> None:
    """Note a call of `breakpoint()`, whatever its arguments, as a place where a debugger stops."""
    location = v.builder.location
    assert location is not None, "a call needs a location"
    v.program.breakpoints.append(location.primary)
    if v.program.recorder is not None:
        v.program.recorder.breaks(v)


def _call_python_builtin(
    v: Visitor, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> Any:
    try:
        return CALLS[function](v, *arguments, **keywords)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            # Raised by the call itself: the arguments do not fit the handler.
            count = len(arguments) + len(keywords)
            raise SemanticError(
                f"`{function.__name__}` cannot be called with {count} such arguments in a kernel"
            ) from None
        raise


def _call_builtin(
    v: Visitor, function: Builtin, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> Any:
    try:
        result = function.emit(v.emit, *arguments, **keywords)
    except (TypeError, AttributeError) as error:
        # Raised by the call itself, not inside it: the arguments do not fit the signature.
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            raise SemanticError(_misfit(function, arguments, keywords)) from None
        wrong = _no_tensor(function, arguments, keywords)
        if wrong is not None:
            raise SemanticError(wrong) from None
        raise
    return tuple(result) if isinstance(result, list) else result


def _misfit(function: Builtin, arguments: Sequence[Any], keywords: dict[str, Any]) -> str:
    signature = function.__signature__
    try:
        signature.bind(*arguments, **keywords)
    except TypeError as error:
        plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        shown = ", ".join(str(parameter) for parameter in plain)
        return f"tl.{function.name}: {error}; it is tl.{function.name}({shown})"
    raise AssertionError(f"tl.{function.name} refused arguments that fit its signature")


def _no_tensor(function: Builtin, arguments: Sequence[Any], keywords: dict[str, Any]) -> str | None:
    """The message for an argument that had to be a tensor and is none; None when all fit."""
    signature = function.__signature__
    for name, value in signature.bind(*arguments, **keywords).arguments.items():
        if signature.parameters[name].annotation in (tensor, "tensor"):
            if not isinstance(value, tensor):
                return f"tl.{function.name}: `{name}` must be a tensor, got {describe(value)}"
    return None


def _call_constexpr_function(
    v: Visitor, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> Any:
    if not has_runtime((*arguments, *keywords.values())):
        return _call_python(function, arguments, keywords)
    name = getattr(function, "__name__", "")
    if name in table.LANGUAGE:
        return _call_builtin(v, table.LANGUAGE[name], arguments, keywords)
    raise SemanticError(
        f"`{name}` is a constexpr_function and was given a run-time value; "
        "pass constants only, or make it a @triton.jit function"
    )


def _make_tuple(
    class_: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> Any:
    try:
        # Defaults of the class may be constexpr.
        made = unwrap_deep(class_(*arguments, **keywords))
    except TypeError as error:
        raise SemanticError(str(error)) from None
    return check_tuple(made)


def _call_python(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    name = getattr(function, "__name__", None) or describe(function)
    if not callable(function) or isinstance(function, LanguageType):
        hint = "; convert with x.to(dtype)" if isinstance(function, LanguageType) else ""
        raise SemanticError(f"{describe(function)} cannot be called{hint}")
    if has_runtime((*arguments, *keywords.values())):
        near = f"; use tl.{name}" if name in table.LANGUAGE else ""
        raise SemanticError(
            f"`{name}` is a plain Python function and was given a run-time value"
            f"{near or '; decorate it with @triton.jit to call it from a kernel'}"
        )
    check_call(function, arguments, keywords)
    try:
        result = unwrap_deep(function(*arguments, **keywords))
    except Exception as error:
        shown = f"{type(error).__name__}: {error}"
        raise SemanticError(f"`{name}` failed when it was called at compile time: {shown}") from (
            error
        )
    # By its name, as a kernel compiles without torch too.
    if type(result).__module__.partition(".")[0] == "torch" and hasattr(result, "data_ptr"):
        near = f"; use tl.{name}" if name in table.LANGUAGE else "; pass it as an argument"
        raise SemanticError(f"`{name}` gives a torch tensor, which no kernel can use{near}")
    return check_result(name, result) if isinstance(function, BuiltinFunctionType) else result


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
            return arithmetic.fold(python, python.__name__, values)
        result = values[0]
        for value in values[1:]:
            result = table.LANGUAGE[which].emit(v.emit, result, value)
        return result

    return call


def _abs(v: Visitor, value: Any) -> Any:
    if isinstance(value, tensor):
        return table.LANGUAGE["abs"].emit(v.emit, value)
    return arithmetic.fold(abs, "abs", value)


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
    length: int = arithmetic.fold(len, "len", value)
    return length


def _number(python: type, target: str) -> Callable[..., Any]:
    def call(v: Visitor, *arguments: Any) -> Any:
        values = tuple(known_constant(argument) for argument in arguments)
        if has_runtime(values):
            raise SemanticError(
                f"{python.__name__}() works on constants, got a run-time {describe(values[0])}; "
                f"use x.to(tl.{target})"
            )
        return check_result(python.__name__, arithmetic.fold(python, python.__name__, *values))

    return call


def _isinstance(v: Visitor, value: Any, classes: Any) -> bool:
    options = classes if isinstance(classes, tuple) else (classes,)
    # Every compile-time value counts as a constexpr, and as its own type.
    if constexpr in options and not has_runtime(value):
        return True
    found: bool = arithmetic.fold(isinstance, "isinstance", value, options)
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
    items: tuple[Any, ...] = arithmetic.fold(_spread, "tuple", values)
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
