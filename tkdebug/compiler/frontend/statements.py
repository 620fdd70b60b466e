"""Statements but for assignments, branches and loops: return, calls, assert, raise, pass."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType
from typing import Any

from tkdebug.compiler.describe import describe
from tkdebug.compiler.frontend.arithmetic import is_true
from tkdebug.compiler.frontend.attributes import BoundMember
from tkdebug.compiler.frontend.flow import Flow, Outcome, Rest
from tkdebug.compiler.frontend.values import has_runtime
from tkdebug.compiler.frontend.visitor import StatementHandler, Visitor
from tkdebug.compiler.ops import table
from tkdebug.compiler.tensor import tensor
from tkdebug.terminal.text import visible_line


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
    """Some functions say that a call whose result is dropped is a mistake."""
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
