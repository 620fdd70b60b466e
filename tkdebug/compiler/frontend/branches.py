"""`if` and the conditional expression: picked at compile time, or `scf.if` at run time.

A `return` under a run-time condition moves the statements after the `if` into the branch that goes
on (see `visitor.Rest`). Invariant: after an `if`, a name has a value only when every path gives it
one of the same type.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tkdebug.compiler.describe import describe
from tkdebug.compiler.dialects import scf
from tkdebug.compiler.dtypes import dtype, int64
from tkdebug.compiler.frontend.arguments import remake
from tkdebug.compiler.frontend.scope import Binding, Scope
from tkdebug.compiler.frontend.values import (
    MismatchError,
    flatten,
    has_runtime,
    is_number,
    kind,
    rebuild,
    same_constant,
    unify,
)
from tkdebug.compiler.frontend.visitor import MIXED, Flow, Outcome, Rest, Visitor, discard
from tkdebug.compiler.ir import Block, Operation, Region, Value
from tkdebug.compiler.ops import conversion, operators, table
from tkdebug.compiler.ops.spec import SemanticError
from tkdebug.compiler.tensor import is_runtime, tensor


@dataclass
class _Branch:
    """One side of a run-time `if`, compiled into a detached block."""

    statements: Sequence[ast.stmt]
    block: Block
    scope: Scope
    outcome: Outcome


def decide(value: Any) -> bool | None:
    """The truth of a condition known at compile time, None for a run-time one."""
    if isinstance(value, tensor):
        return None
    if not isinstance(value, bool | int | None):
        raise SemanticError(
            f"a condition must be a bool, an int, None or a run-time scalar, got {describe(value)};"
            " compare it with something"
        )
    return bool(value)


def condition(v: Visitor, node: ast.expr, value: tensor) -> Value:
    """A run-time condition as an i1; errors point at its expression."""
    with v.visiting(node):
        if value.type.is_block() and value.numel != 1:
            raise SemanticError(
                f"the condition is a tile ({describe(value)}), which has no single truth value; "
                "select elements with tl.where or a mask, or reduce it, e.g. tl.max(x, 0)"
            )
        return operators.to_condition(v.emit, value).value


def visit_if(v: Visitor, node: ast.If, rest: Rest) -> Outcome | None:
    """An `if` statement."""
    value = v.expression(node.test)
    with v.visiting(node.test):
        known = decide(value)
    if known is not None:
        taken = node.body if known else node.orelse
        if v.source.contains_return(taken):
            return v.run(taken, rest)
        v.run(taken, None)
        return None
    test = condition(v, node.test, value)
    before = v.scope
    branches = [_visit_branch(v, body, before, None) for body in (node.body, node.orelse)]
    for name, binding in before.names.items():
        if any(_rebinds(branch, name, binding) for branch in branches):
            v.note_rebound(name, binding, "`if`")
    if all(branch.outcome.flow is Flow.FALLS for branch in branches):
        _merge_names(v, node, test, before, branches[0], branches[1])
        return None
    finished = [_finish(v, branch, before, rest) for branch in branches]
    return _merge_returns(v, node, test, finished[0], finished[1])


def _visit_branch(
    v: Visitor, statements: Sequence[ast.stmt], before: Scope, rest: Rest | None
) -> _Branch:
    block = Block()
    v.scope = before.copy()
    with v.builder.inside(block):
        outcome = v.run(statements, rest)
        if v.program.recorder is not None and outcome.flow is Flow.FALLS and statements:
            v.program.recorder.branch_ends(v, statements[-1])
    return _Branch(statements, block, v.scope, outcome)


def _rebinds(branch: _Branch, name: str, binding: Binding) -> bool:
    """Whether a branch leaves `name` bound to another value, other than a constant."""
    now = branch.scope.names.get(name)
    return now is not binding and (now is None or has_runtime(now.value))


def _finish(v: Visitor, branch: _Branch, before: Scope, rest: Rest) -> _Branch:
    """Compile the statements after the `if` at the end of a branch that does not return."""
    match branch.outcome.flow:
        case Flow.RETURNS:
            return branch
        case Flow.FALLS:
            v.scope = branch.scope
            with v.builder.inside(branch.block):
                outcome = v.resume(rest)
            return _Branch(branch.statements, branch.block, v.scope, outcome)
        case Flow.MIXED:
            discard(branch.block)
            return _visit_branch(v, branch.statements, before, rest)


def _merge_returns(v: Visitor, node: ast.If, test: Value, then: _Branch, other: _Branch) -> Outcome:
    if then.outcome.flow is not Flow.RETURNS or other.outcome.flow is not Flow.RETURNS:
        discard(then.block)
        discard(other.block)
        return MIXED
    try:
        left, right = unify(
            _returned(v, then, other.outcome),
            _returned(v, other, then.outcome),
            v.number_to_tensor_in(then.block),
            v.number_to_tensor_in(other.block),
        )
    except MismatchError:
        raise _return_mismatch(v, node, then.outcome, other.outcome) from None
    op = _emit_if(v, test, then.block, other.block, flatten(left), flatten(right))
    value = rebuild(left, iter(op.results))
    return Outcome(Flow.RETURNS, value, then.outcome.node or other.outcome.node)


def _returned(v: Visitor, branch: _Branch, other: Outcome) -> Any:
    """The value that a branch returns; at the function's end it asserts that it never runs.

    Upstream leaves the result undefined there, so that `if`/`elif` that cover all cases work.
    """
    if branch.outcome.node is not None or other.value is None:
        return branch.outcome.value
    with v.builder.inside(branch.block), v.builder.at(v.locate(v.source.definition.body[-1])):
        text = f"`{v.source.name}` ended without a return"
        table.LANGUAGE["device_assert"].emit(v.emit, False, text)
        return _zeros_like(v, other.value)


def _zeros_like(v: Visitor, value: Any) -> Any:
    if isinstance(value, tuple):
        return remake(value, [_zeros_like(v, item) for item in value])
    if not isinstance(value, tensor):
        raise MismatchError
    element = value.type.scalar
    if isinstance(element, dtype):
        zero = conversion.constant(v.emit, 0, element)
    else:
        zero = conversion.cast(v.emit, conversion.constant(v.emit, 0, int64), element)
    return conversion.splat(v.emit, zero, value.shape)


def _return_mismatch(v: Visitor, node: ast.If, left: Outcome, right: Outcome) -> Exception:
    def shown(outcome: Outcome) -> str:
        if outcome.node is None:
            return "nothing at the end of the function"
        return f"{describe(outcome.value)} at line {outcome.node.lineno}"

    return v.error(
        right.node or left.node or node,
        f"Inconsistent return types: `{v.source.name}` returns {shown(left)} but {shown(right)}; "
        "every path must return values of the same type",
    )


def _emit_if(
    v: Visitor,
    test: Value,
    then: Block,
    other: Block,
    then_values: list[Value],
    other_values: list[Value],
) -> Operation:
    for block, values in ((then, then_values), (other, other_values)):
        with v.builder.inside(block):
            v.emit.op(scf.Yield, values)
    types = [value.type for value in then_values]
    return v.emit.op(scf.If, [test], types, [Region([then]), Region([other])])


def _merge_names(
    v: Visitor, node: ast.If, test: Value, before: Scope, then: _Branch, other: _Branch
) -> None:
    scope = before.copy()
    merged: list[tuple[str, Any, Any]] = []
    for name in {**before.names, **then.scope.names, **other.scope.names}:
        left, right = then.scope.names.get(name), other.scope.names.get(name)
        if left is None or right is None:
            scope.drop(name, _why_missing(name, node, left or right, then, other))
        elif left is right:
            scope.bind(name, left)
        else:
            pair = _merge_name(v, name, left, right, then, other)
            if flatten(pair[0]) == flatten(pair[1]):
                scope.bind(name, Binding(pair[0], left.line, left.is_constexpr))
            else:
                merged.append((name, *pair))
    for reasons in (then.scope.missing, other.scope.missing):
        for name, reason in reasons.items():
            if name not in scope.names:
                scope.missing.setdefault(name, reason)
    op = _emit_if(
        v,
        test,
        then.block,
        other.block,
        [leaf for _, left, _ in merged for leaf in flatten(left)],
        [leaf for _, _, right in merged for leaf in flatten(right)],
    )
    v.scope = scope
    results = iter(op.results)
    for name, left, _ in merged:
        v.bind(name, rebuild(left, results), node)


def _why_missing(
    name: str, node: ast.If, found: Binding | None, then: _Branch, other: _Branch
) -> str:
    for branch in (then, other):
        if name not in branch.scope.names and name in branch.scope.missing:
            return branch.scope.missing[name]
    line = found.line if found is not None else node.lineno
    return (
        f"it is bound at line {line}, in only one branch of the run-time `if` at line "
        f"{node.lineno}; bind it before the `if` or in both branches"
    )


def _merge_name(
    v: Visitor, name: str, left: Binding, right: Binding, then: _Branch, other: _Branch
) -> tuple[Any, Any]:
    if (left.is_constexpr or right.is_constexpr) and not has_runtime((left.value, right.value)):
        if not same_constant(left.value, right.value):
            raise SemanticError(
                f"constexpr `{name}` is {describe(left.value)} (line {left.line}) or "
                f"{describe(right.value)} (line {right.line}) by a run-time condition; "
                "make it a plain variable, or the condition a constant"
            )
    try:
        return unify(
            left.value,
            right.value,
            v.number_to_tensor_in(then.block),
            v.number_to_tensor_in(other.block),
        )
    except MismatchError:
        shown = [
            describe(v.number_to_tensor_in(branch.block)(binding.value))
            for branch, binding in ((then, left), (other, right))
        ]
        raise SemanticError(
            f"Mismatched type for {name}: {shown[0]} when the condition holds "
            f"(line {left.line}) but {shown[1]} otherwise (line {right.line}); "
            f"a variable must have one type after an `if`{_conversion_hint(left, right)}"
        ) from None


def _conversion_hint(left: Binding, right: Binding) -> str:
    a, b = left.value, right.value
    if isinstance(a, tensor) and isinstance(b, tensor) and a.shape == b.shape:
        return ", convert one of them with .to(...)"
    return ""


def visit_conditional(v: Visitor, node: ast.IfExp) -> Any:
    """`a if condition else b`."""
    value = v.expression(node.test)
    with v.visiting(node.test):
        known = decide(value)
    if known is not None:
        return v.expression(node.body if known else node.orelse)
    test = condition(v, node.test, value)
    blocks, values = [], []
    for part in (node.body, node.orelse):
        block = Block()
        with v.builder.inside(block):
            values.append(v.expression(part))
        blocks.append(block)
    left, right = _weak_to_other(v, values, blocks)
    try:
        left, right = unify(
            left, right, v.number_to_tensor_in(blocks[0]), v.number_to_tensor_in(blocks[1])
        )
    except MismatchError:
        raise SemanticError(
            f"Ternary expression with dynamic condition has inconsistent types: {describe(left)} "
            f"where it holds, {describe(right)} where not; both sides must have one type"
        ) from None
    op = _emit_if(v, test, blocks[0], blocks[1], flatten(left), flatten(right))
    return rebuild(left, iter(op.results))


def _weak_to_other(v: Visitor, values: list[Any], blocks: list[Block]) -> tuple[Any, Any]:
    """Give a constant number the type of the scalar on the other side, if that type can hold it."""
    result = list(values)
    for index, other in ((0, 1), (1, 0)):
        number, typed = values[index], values[other]
        if not is_number(number) or not is_runtime(typed) or not isinstance(typed, tensor):
            continue
        element = typed.type
        natural = conversion.natural_dtype(number)
        if element.is_block() or element.is_ptr() or kind(typed) == natural:
            continue
        if natural.is_floating() and not element.is_floating():  # type: ignore[attr-defined]
            continue
        with v.builder.inside(blocks[index]):
            result[index] = conversion.to_tensor(v.emit, number, element)  # type: ignore[arg-type]
    return result[0], result[1]
