"""Statements, except branches and loops: assignments, return, calls, assert, raise, pass.

A plain assignment makes run-time values of numbers, `x: tl.constexpr = …` keeps them.
"""

from __future__ import annotations

import ast
import inspect
from types import ModuleType
from typing import Any

from tkdebug.compiler.describe import describe
from tkdebug.compiler.frontend.arithmetic import BINARY_NAMES, apply_binary, is_true
from tkdebug.compiler.frontend.attributes import BoundMember
from tkdebug.compiler.frontend.values import has_runtime
from tkdebug.compiler.frontend.visitor import Flow, Outcome, Rest, StatementHandler, Visitor
from tkdebug.compiler.ops import table
from tkdebug.compiler.ops.spec import SemanticError
from tkdebug.compiler.tensor import constexpr, tensor
from tkdebug.terminal.text import visible_line


def assign(v: Visitor, target: ast.expr, value: Any) -> None:
    """Bind `target`, a name or names to unpack into, to `value` as it is."""
    match target:
        case ast.Name(id=name):
            v.bind(name, value, target)
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            for inner, item in zip(targets, _unpack(v, target, targets, value), strict=True):
                assign(v, inner, item)
        case ast.Subscript():
            raise v.error(
                target,
                "an element cannot be assigned: values are immutable; "
                "use tl.where(mask, new, old), or tl.store for memory",
            )
        case ast.Attribute(attr=name):
            raise v.error(target, f"attribute `{name}` cannot be assigned in a kernel")
        case ast.Starred():
            raise v.error(target, "`*` in an assignment is not supported; name each element")
        case _:
            raise v.error(target, f"cannot assign to {type(target).__name__}")


def _unpack(v: Visitor, node: ast.expr, targets: list[ast.expr], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, tuple | range):
        raise v.error(node, f"cannot unpack {describe(value)} into {len(targets)} names")
    starred = next((target for target in targets if isinstance(target, ast.Starred)), None)
    if starred is not None:
        raise v.error(starred, "`*` in an assignment is not supported; name each element")
    if len(value) != len(targets):
        raise v.error(node, f"cannot unpack {len(value)} values into {len(targets)} names")
    return tuple(value)


def visit_assign(v: Visitor, node: ast.Assign, rest: Rest) -> Outcome | None:
    """`x = value`, `x, y = value`, `x = y = value`."""
    value = v.expression(node.value)
    if len(node.targets) > 1:
        v.emit.warn(
            "Triton refuses an assignment with several `=`; tkdebug runs it. For Triton, write "
            "one assignment for each target"
        )
    if v.scope.declared:
        for target in node.targets:
            _assign_declared(v, target, value)
        return None
    with v.visiting(node.value):
        value = v.decay(value)
    for target in node.targets:
        assign(v, target, value)
    return None


def _assign_declared(v: Visitor, target: ast.expr, value: Any) -> None:
    """Bind `target`; names that were declared constants stay constants."""
    match target:
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            for inner, item in zip(targets, _unpack(v, target, targets, value), strict=True):
                _assign_declared(v, inner, item)
        case ast.Name(id=name) if name in v.scope.declared:
            v.scope.declared -= {name}
            v.bind(name, value, target, is_constexpr=True)
        case _:
            with v.visiting(target):
                value = v.decay(value)
            assign(v, target, value)


def visit_annotated(v: Visitor, node: ast.AnnAssign, rest: Rest) -> Outcome | None:
    """`x: tl.constexpr = value`; any other annotation is ignored, as upstream does.

    A run-time value may be annotated so, too: only the use of `x` as a constant is an error then.
    An annotation without a value holds for the next assignment to `x`, also by unpacking.
    """
    if node.value is None:
        if isinstance(node.target, ast.Name) and v.expression(node.annotation) is constexpr:
            v.scope.declared |= {node.target.id}
        return None
    if v.expression(node.annotation) is not constexpr:
        with v.visiting(node.value):
            value = v.decay(v.expression(node.value))
        assign(v, node.target, value)
        return None
    if not isinstance(node.target, ast.Name):
        raise v.error(node.target, "only a name can be annotated tl.constexpr")
    v.bind(node.target.id, v.expression(node.value), node.target, is_constexpr=True)
    return None


def visit_augmented(v: Visitor, node: ast.AugAssign, rest: Rest) -> Outcome | None:
    """`x += value`."""
    if not isinstance(node.target, ast.Name):
        assign(v, node.target, None)
        raise AssertionError("an augmented target is a name, a subscript or an attribute")
    with v.visiting(node.target):
        left = v.lookup(node.target.id)
    right = v.expression(node.value)
    try:
        value = v.decay(apply_binary(v, BINARY_NAMES[type(node.op)], left, right))
    except SemanticError as error:
        raise v.error(node, str(error)) from None
    v.bind(node.target.id, value, node.target)
    return None


def _visit_return(v: Visitor, node: ast.Return, rest: Rest) -> Outcome | None:
    if v.loops:
        loop = v.loops[-1]
        raise v.error(
            node,
            f"`return` inside the run-time loop at line {loop.lineno} cannot be compiled; "
            "mask the work, or use a `while` loop whose condition ends it",
        )
    if node.value is None:
        return _returned(v, node, None)
    value = v.expression(node.value)
    if value is not None and v.is_kernel:
        raise v.error(
            node, f"a kernel returns nothing, got {describe(value)}; store it with tl.store"
        )
    with v.visiting(node.value):
        value = v.decay(value)
    return _returned(v, node, value)


def _returned(v: Visitor, node: ast.Return, value: Any) -> Outcome:
    if v.program.recorder is not None:
        v.program.recorder.returns(v, node, value)
    return Outcome(Flow.RETURNS, value, node)


def _visit_expression(v: Visitor, node: ast.Expr, rest: Rest) -> Outcome | None:
    if isinstance(node.value, ast.Constant):
        return None
    if isinstance(node.value, ast.Call):
        _require_use(v, node.value)
    v.expression(node.value)
    return None


def _require_use(v: Visitor, node: ast.Call) -> None:
    """Refuse a call whose result is dropped, if its function declares that it must be used."""
    function: Any = node.func
    match function:
        case ast.Name(id=name):
            target = v.lookup(name)
        case ast.Attribute(value=ast.Name(id=name), attr=member):
            owner = v.lookup(name)
            holder = owner if isinstance(owner, ModuleType) else type(owner)
            target = inspect.getattr_static(holder, member, None)
        case _:
            return
    target = target.function if isinstance(target, BoundMember) else target
    demand = getattr(target, "_must_use_result", False)
    if demand:
        message = f"The result of {ast.unparse(function)} is not being used."
        raise v.error(node, f"{message} {demand}" if isinstance(demand, str) else message)


def _visit_assert(v: Visitor, node: ast.Assert, rest: Rest) -> Outcome | None:
    test = v.expression(node.test)
    message = "" if node.msg is None else v.expression(node.msg)
    if has_runtime(message):
        raise v.error(node, "the message of an assert must be a constant")
    if isinstance(test, tensor):
        table.LANGUAGE["device_assert"].emit(v.emit, test, str(message or ""))
    elif not is_true(test):
        text = f": {visible_line(str(message))}" if message else ""
        raise v.error(node, f"assertion failed{text}")
    return None


def _visit_raise(v: Visitor, node: ast.Raise, rest: Rest) -> Outcome | None:
    shown = "an error" if node.exc is None else ast.unparse(node.exc)
    if isinstance(node.exc, ast.Call):
        details = [str(v.expression(argument)) for argument in node.exc.args]
        shown = visible_line(": ".join([ast.unparse(node.exc.func), *details]))
    raise v.error(node, f"this `raise` is reached when the kernel is compiled: {shown}")


def _visit_pass(v: Visitor, node: ast.Pass, rest: Rest) -> Outcome | None:
    return None


STATEMENTS: dict[type[ast.stmt], StatementHandler] = {
    ast.Return: _visit_return,
    ast.Expr: _visit_expression,
    ast.Assert: _visit_assert,
    ast.Raise: _visit_raise,
    ast.Pass: _visit_pass,
}
