"""Expressions, except operators, attributes and calls: names, literals, subscripts, f-strings."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable
from typing import Any

from tkdebug.compiler.describe import describe
from tkdebug.compiler.frontend import arithmetic
from tkdebug.compiler.frontend.arithmetic import is_true
from tkdebug.compiler.frontend.limits import bounded, check_format, check_steps, check_tuple
from tkdebug.compiler.frontend.statements import assign
from tkdebug.compiler.frontend.values import has_runtime, known_constant
from tkdebug.compiler.frontend.visitor import ExpressionHandler, Visitor
from tkdebug.compiler.ops import operators
from tkdebug.compiler.ops.spec import SemanticError
from tkdebug.compiler.tensor import is_runtime, tensor


def _visit_constant(v: Visitor, node: ast.Constant) -> Any:
    if isinstance(node.value, complex | bytes):
        raise SemanticError(f"a {type(node.value).__name__} literal has no meaning in a kernel")
    return node.value


def _visit_name(v: Visitor, node: ast.Name) -> Any:
    return v.lookup(node.id)


def _visit_sequence(v: Visitor, node: ast.Tuple | ast.List) -> tuple[Any, ...]:
    return check_tuple(expand_starred(v, node.elts))


def expand_starred(v: Visitor, nodes: list[ast.expr]) -> tuple[Any, ...]:
    """The values of `nodes`, with `*tuple` spread."""
    items: list[Any] = []
    for node in nodes:
        if not isinstance(node, ast.Starred):
            items.append(v.expression(node))
            continue
        value = v.expression(node.value)
        if not isinstance(value, tuple | range):
            raise v.error(node, f"only a tuple can be unpacked with `*`, got {describe(value)}")
        items.extend(bounded(value, "`*`"))
    return tuple(items)


def _visit_subscript(v: Visitor, node: ast.Subscript) -> Any:
    value = v.expression(node.value)
    index = v.expression(node.slice)
    if isinstance(value, tensor):
        indices = index if isinstance(index, tuple) else (index,)
        return operators.subscript(v.emit, value, indices)
    if is_runtime(value):
        raise SemanticError(f"{describe(value)} cannot be indexed; use its load method")
    return index_constant(value, index)


def index_constant(value: Any, index: Any) -> Any:
    """`value[index]` on a tuple, string or other compile-time container."""
    index = known_constant(index)
    if is_runtime(index):
        raise SemanticError(
            f"a tuple can only be indexed with constants, got a run-time {describe(index)}; "
            "loop with tl.static_range, or select with tl.where"
        )
    is_place = isinstance(value, tuple) and isinstance(index, int)
    if is_place and not -len(value) <= index < len(value):
        raise SemanticError(f"index {index} is out of range for a tuple of {len(value)}")
    return arithmetic.fold(lambda a, b: a[b], "indexing", value, index)


def _visit_slice(v: Visitor, node: ast.Slice) -> slice:
    parts = [node.lower, node.upper, node.step]
    bounds = [None if part is None else known_constant(v.expression(part)) for part in parts]
    if any(is_runtime(bound) for bound in bounds):
        raise SemanticError(
            "a slice needs constant bounds; a tile cannot be sliced at run time: load the part "
            "you need, or mask it with tl.where"
        )
    return slice(*bounds)


def _visit_comprehension(v: Visitor, node: ast.ListComp | ast.GeneratorExp) -> tuple[Any, ...]:
    outer = v.scope
    v.scope = outer.copy()
    items: list[Any] = []
    steps = itertools.count(1)

    def visit(generators: list[ast.comprehension]) -> None:
        if not generators:
            items.append(v.expression(node.elt))
            return
        first, *others = generators
        values = v.expression(first.iter)
        if not isinstance(values, tuple | range):
            raise v.error(
                first.iter,
                f"a comprehension runs over a tuple of constants, got {describe(values)}",
            )
        for value in bounded(values, "a comprehension"):
            check_steps(next(steps), "a comprehension")
            assign(v, first.target, value)
            conditions = [v.expression(test) for test in first.ifs]
            if all(is_true(condition) for condition in conditions):
                visit(others)

    try:
        visit(node.generators)
    finally:
        v.scope = outer
    return tuple(items)


# `{x!s}`, `{x!r}`, `{x!a}` as the AST encodes them.
_CONVERSIONS: dict[int, Callable[[object], str]] = {ord("s"): str, ord("r"): repr, ord("a"): ascii}


def _visit_f_string(v: Visitor, node: ast.JoinedStr) -> str:
    parts = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
            continue
        assert isinstance(part, ast.FormattedValue)
        value = v.expression(part.value)
        if has_runtime(value):
            raise v.error(
                part.value,
                f"an f-string can only hold constants, got a run-time {describe(value)}; "
                "print it with tl.device_print(prefix, value)",
            )
        if part.conversion in _CONVERSIONS:
            value = _CONVERSIONS[part.conversion](value)
        spec = "" if part.format_spec is None else v.expression(part.format_spec)
        check_format(spec)
        parts.append(arithmetic.fold(format, "formatting", value, spec))
    return "".join(parts)


EXPRESSIONS: dict[type[ast.expr], ExpressionHandler] = {
    ast.Constant: _visit_constant,
    ast.Name: _visit_name,
    ast.Tuple: _visit_sequence,
    ast.List: _visit_sequence,
    ast.Subscript: _visit_subscript,
    ast.Slice: _visit_slice,
    ast.ListComp: _visit_comprehension,
    ast.GeneratorExp: _visit_comprehension,
    ast.JoinedStr: _visit_f_string,
}
