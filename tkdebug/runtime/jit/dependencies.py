"""What a kernel depends on besides its own text: functions it calls, globals it reads.

Found by reading the AST, without compiling: names that the function does not bind itself, looked
up in its closure and its module. Not responsible for noticing that a global changed after a
compile: the front end says which ones it really used.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache, lru_cache
from types import FunctionType, ModuleType
from typing import Any

from tkdebug.compiler.dtypes import LanguageType
from tkdebug.compiler.frontend.source import KernelSource
from tkdebug.compiler.tensor import constexpr, unwrap
from tkdebug.runtime.arguments.specialize import constant_key

_UNBOUND = object()
_WITHOUT_NAMES = ("ctx", "op", "ops", "type_comment", "kind", "simple", "is_async", "conversion")
_PLAIN = (bool, int, float, str, tuple, constexpr, LanguageType)


def content_key(fn: FunctionType, source: KernelSource) -> str:
    """A hash of the text of `fn`, of what it calls, and of the constants it refers to."""
    line = source.definition.lineno
    # From `def` on, as an edited source has no decorators.
    text = "".join(source.text.splitlines(keepends=True)[line - source.first_line :])
    hasher = hashlib.sha256(f"{source.file}:{line}\n{text}".encode())
    for name, value in _references(fn, source):
        if hasattr(value, "cache_key"):
            hasher.update(f"{name}={value.cache_key}{getattr(value, 'noinline', '')}".encode())
        elif isinstance(value, _PLAIN):
            hasher.update(f"{name}={constant_key(unwrap(value))!r}".encode())
    return hasher.hexdigest()


def files_of(function: Any) -> frozenset[str]:
    """The source files of a jit function and of those that it calls."""
    found: dict[int, Any] = {}
    pending = [function]
    while pending:
        one = pending.pop()
        if id(one) not in found:
            found[id(one)] = one
            references = _references(one.fn, one.kernel_source)
            pending += (value for _, value in references if hasattr(value, "kernel_source"))
    return frozenset(one.kernel_source.file for one in found.values())


def _references(fn: FunctionType, source: KernelSource) -> Iterator[tuple[str, Any]]:
    """What `fn` refers to outside itself, by dotted name, sorted so that keys are stable."""
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    for dotted in _free_names(source.definition):
        first, *attributes = dotted.split(".")
        if first in cells:
            value = _cell_value(cells[first])
        else:
            value = fn.__globals__.get(first, _UNBOUND)
        for attribute in attributes:
            if not isinstance(value, ModuleType):
                break
            value = getattr(value, attribute, _UNBOUND)
        if value is not _UNBOUND:
            yield dotted, value


def _cell_value(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _UNBOUND


# By the AST, which functions of one text share.
@lru_cache(maxsize=64)
def _free_names(definition: ast.FunctionDef) -> tuple[str, ...]:
    """Sorted names, dotted where attributes are read off them, that the body does not bind."""
    parameters = definition.args
    bound = {p.arg for p in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)}
    bound.update(p.arg for p in (parameters.vararg, parameters.kwarg) if p is not None)
    names: list[str] = []
    pending: list[Any] = list(definition.body)
    # `ast.walk` also visits operators and contexts, and takes a third of a small kernel's compile.
    while pending:
        node = pending.pop()
        kind: Any = type(node)
        if kind is ast.Name:
            (bound.add if type(node.ctx) is ast.Store else names.append)(node.id)
        elif kind is ast.Attribute:
            names.append(_dotted(node))
            pending.append(node.value)
        elif kind is ast.arg:
            bound.add(node.arg)
        else:
            for field in _inner_fields(kind):
                value = getattr(node, field, None)
                if type(value) is list:
                    pending += value
                elif value is not None:
                    pending.append(value)
    return tuple(sorted({n for n in names if n and n.partition(".")[0] not in bound}))


@cache
def _inner_fields(kind: type) -> tuple[str, ...]:
    """The fields of a kind of node that can hold names; () for what is no node."""
    fields: tuple[str, ...] = getattr(kind, "_fields", ())
    return () if kind is ast.Constant else tuple(f for f in fields if f not in _WITHOUT_NAMES)


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""
