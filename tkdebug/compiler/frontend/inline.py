"""Inlines jit functions at the call: no function but the kernel exists in Tile IR.

The callee's ops carry its own lines, with the call site as their caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tkdebug.compiler.frontend.arguments import JitCallable, Parameter, unwrap_deep
from tkdebug.compiler.frontend.values import has_runtime, kind
from tkdebug.compiler.frontend.visitor import END_OF_FUNCTION, Flow, Program, Visitor
from tkdebug.compiler.ir import Location
from tkdebug.compiler.ops.spec import SemanticError

MAX_DEPTH = 24


def inline(
    program: Program,
    call_site: Location | None,
    function: JitCallable,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
) -> Any:
    """Compile `function`'s body at the current point, and return its result.

    Raises:
        SemanticError: the arguments do not fit, or the function calls itself without end.
    """
    assert call_site is not None, "a call needs a location"
    bound = _bind(function, arguments, keywords)
    key = _call_key(bound)
    _check_recursion(program, function, key)
    source = program.sources.get(function.fn) or function.kernel_source
    visitor = Visitor(program, function.fn, source, call_site.primary, is_kernel=False)
    definition = visitor.source.definition
    for name, value in bound.items():
        visitor.bind_parameter(name, value)
    program.chain.append((function, key))
    recorder = program.recorder
    if recorder is not None:
        recorder.enter(visitor)
    try:
        outcome = visitor.run(definition.body, END_OF_FUNCTION)
    finally:
        program.chain.pop()
        if recorder is not None:
            recorder.leave()
    assert outcome.flow is Flow.RETURNS, f"{function.fn.__name__} ends in {outcome.flow}"
    return outcome.value


def _bind(
    function: JitCallable, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    name, params = function.fn.__name__, function.params
    names = [parameter.name for parameter in params]
    rest = next((parameter for parameter in params if parameter.is_variadic), None)
    written = [f"*{p.name}" if p is rest else p.name for p in params]
    signature = f"{name}({', '.join(written)})"
    places = [p.name for p in params if not p.is_keyword_only and p is not rest]
    if len(arguments) > len(places) and rest is None:
        how = " by position" if len(places) < len(params) else ""
        raise SemanticError(
            f"{name} takes {len(places)} arguments{how}, got {len(arguments)}; it is {signature}"
        )
    bound = dict(zip(places, arguments, strict=False))
    if rest is not None:
        bound[rest.name] = tuple(arguments[len(places) :])
    for keyword, value in keywords.items():
        if keyword not in names:
            raise SemanticError(f"{name} has no parameter `{keyword}`; it is {signature}")
        if keyword in bound:
            raise SemanticError(f"{name} got `{keyword}` twice; it is {signature}")
        bound[keyword] = value
    missing = [p.name for p in params if p.name not in bound and not p.has_default]
    if missing:
        shown = ", ".join(f"`{item}`" for item in missing)
        raise SemanticError(f"{name} needs {shown}; it is {signature}")
    return {p.name: bound[p.name] if p.name in bound else _default(p) for p in params}


def _default(parameter: Parameter) -> Any:
    return unwrap_deep(parameter.default)


def _call_key(bound: Mapping[str, Any]) -> object:
    """A key that is equal for two calls that would compile to the same code."""
    return tuple(
        (name, kind(value) if has_runtime(value) else repr(value)) for name, value in bound.items()
    )


def _check_recursion(program: Program, function: JitCallable, key: object) -> None:
    chain = [other.fn.__name__ for other, _ in program.chain] + [function.fn.__name__]
    if any(other.fn is function.fn and used == key for other, used in program.chain):
        raise SemanticError(
            f"recursion: `{function.fn.__name__}` calls itself ({' -> '.join(chain[-6:])}); "
            "device functions are inlined, so write a loop"
        )
    if len(program.chain) >= MAX_DEPTH:
        raise SemanticError(
            f"calls are nested more than {MAX_DEPTH} deep (… -> {' -> '.join(chain[-6:])}); "
            "device functions are inlined, so a recursion must end on a constant"
        )
