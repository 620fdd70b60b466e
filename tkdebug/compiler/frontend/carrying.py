"""Variables that a run-time loop carries from one iteration to the next.

A variable that the body re-binds and that had a value before becomes a region argument. Which
variables these are is known only after the body was compiled: if a constant turned out to change,
the body is compiled again with a tensor in its place; arguments that came back unchanged are taken
out. Invariant: a carried variable keeps its type.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tkdebug.compiler.describe import describe
from tkdebug.compiler.frontend.scope import Binding, Scope
from tkdebug.compiler.frontend.values import (
    MismatchError,
    flatten,
    has_number,
    has_runtime,
    rebuild,
    same_constant,
    unify,
)
from tkdebug.compiler.frontend.visitor import Visitor, discard, name_values
from tkdebug.compiler.ir import Block, Value
from tkdebug.compiler.ops.spec import SemanticError
from tkdebug.compiler.tensor import tensor

Loop = ast.For | ast.While


@dataclass
class Carried:
    """One carried variable.

    Attributes:
        initial: its value before the loop.
        final: its value at the end of the body; None if it has none there.
        arguments: its region arguments, a list per region.
    """

    name: str
    initial: Any
    line: int
    final: Any = None
    final_line: int = 0
    arguments: list[list[Value]] = field(default_factory=list)


def leaves(values: Iterable[Any]) -> list[Value]:
    """The IR values of several values."""
    return [leaf for value in values for leaf in flatten(value)]


def enter(v: Visitor, before: Scope, candidates: Sequence[str], block: Block) -> list[Carried]:
    """Begin a region of a loop: a fresh scope in which the candidates are region arguments."""
    carried = []
    for name in candidates:
        binding = before.names[name]
        if has_runtime(binding.value):
            carried.append(Carried(name, binding.value, binding.line))
    enter_again(v, before, carried, block)
    return carried


def enter_again(v: Visitor, before: Scope, carried: Sequence[Carried], block: Block) -> None:
    """Begin another region with the same carried variables."""
    v.scope = before.copy()
    for variable in carried:
        arguments = [block.add_argument(leaf.type) for leaf in flatten(variable.initial)]
        variable.arguments.append(arguments)
        value = rebuild(variable.initial, iter(arguments))
        name_values(variable.name, value)
        v.scope.bind(variable.name, Binding(value, variable.line))


def begin_round(v: Visitor, node: Loop) -> None:
    """Mark that the next ops belong to the loop's header, before any statement of its body."""
    if v.program.recorder is not None:
        v.program.recorder.round_begins(v, node)


def run_body(
    v: Visitor,
    node: Loop,
    before: Scope,
    candidates: Sequence[str],
    carried: Sequence[Carried],
    block: Block,
) -> set[str]:
    """Compile the body at the end of `block` and set each variable's final value.

    Returns:
        Constants that changed: they must be carried, so the body must be compiled again.
    """
    v.loops.append(node)
    try:
        if v.program.watching is not None:
            v.program.watching.round_begins(v, node)
        v.run(node.body, None)
        if v.program.recorder is not None:
            v.program.recorder.next_round(v, node)
    finally:
        v.loops.pop()
    decays = {name for name in candidates if _constant_changed(v, node, before, name)}
    for variable in carried:
        binding = v.scope.names.get(variable.name)
        if binding is not None:
            _set_final(v, node, variable, binding, block, decays)
    return decays


def _constant_changed(v: Visitor, node: Loop, before: Scope, name: str) -> bool:
    initial, after = before.names[name], v.scope.names.get(name)
    if has_runtime(initial.value) or after is None or after is initial:
        return False
    if not has_runtime(after.value) and same_constant(initial.value, after.value):
        return False
    if initial.is_constexpr or not has_number(initial.value):
        raise v.error(
            node,
            f"constexpr `{name}` ({describe(initial.value)}, line {initial.line}) is re-bound to "
            f"{describe(after.value)} at line {after.line} inside a run-time loop; "
            "start with a plain variable of the same type",
        )
    return True


def _set_final(
    v: Visitor, node: Loop, variable: Carried, binding: Binding, block: Block, decays: set[str]
) -> None:
    in_body = v.number_to_tensor_in(block)

    def initial_to_tensor(number: Any) -> Any:
        decays.add(variable.name)
        return in_body(number)

    try:
        _, variable.final = unify(variable.initial, binding.value, initial_to_tensor, in_body)
    except MismatchError:
        raise _type_changed(v, node, variable, binding, block) from None
    variable.final_line = binding.line


def _type_changed(
    v: Visitor, node: Loop, variable: Carried, binding: Binding, block: Block
) -> Exception:
    initial, final = variable.initial, v.number_to_tensor_in(block)(binding.value)
    hint = "give it one type"
    if isinstance(initial, tensor) and isinstance(final, tensor):
        element = initial.type.scalar
        if initial.shape == final.shape:
            hint = f"convert it with .to(tl.{_member_name(element)}), or start with {final.dtype}"
        elif not initial.shape:
            hint = f"start with tl.zeros({list(final.shape)}, tl.{_member_name(final.dtype)})"
    return v.error(
        _at_line(node, binding.line),
        f"loop-carried variable `{variable.name}` is {describe(initial)} before the loop "
        f"(line {variable.line}) but {describe(final)} after its body (line {binding.line}); "
        f"{hint}",
    )


def _member_name(type_: object) -> str:
    return repr(type_).rpartition(".")[2]


def _at_line(node: Loop, line: int) -> ast.AST:
    for statement in ast.walk(node):
        if isinstance(statement, ast.stmt) and statement.lineno == line and statement is not node:
            return statement
    return node


def retry(v: Visitor, before: Scope, decays: Iterable[str], blocks: Sequence[Block]) -> None:
    """Drop a compiled body and make run-time values of the constants that it changes."""
    for block in blocks:
        discard(block)
    decay_names(v, before, decays)


def decay_names(v: Visitor, scope: Scope, names: Iterable[str]) -> None:
    """Make run-time values of constants, before the loop."""
    for name in names:
        binding = scope.names[name]
        v.note_rebound(name, binding, "loop")
        value = v.decay(binding.value)
        name_values(name, value)
        scope.names[name] = Binding(value, binding.line)


def split_unchanged(carried: Sequence[Carried]) -> tuple[list[Carried], list[Carried]]:
    """The variables that the body changes, and those whose value is unchanged at the end."""
    kept: list[Carried] = []
    dropped: list[Carried] = []
    for variable in carried:
        unchanged = flatten(variable.final) == variable.arguments[-1]
        (dropped if unchanged or variable.final is None else kept).append(variable)
    return kept, dropped


def seal(
    v: Visitor,
    blocks: Sequence[Block],
    kept: Sequence[Carried],
    dropped: Sequence[Carried],
    leading: int = 0,
) -> None:
    """Take the arguments of `dropped` variables out of finished regions.

    Args:
        v: the visitor, inside the loop body's scope.
        blocks: one per region, in the order they were entered.
        kept: variables that stay carried.
        dropped: variables that do not.
        leading: block arguments before the carried ones (the loop index).
    """
    for variable in dropped:
        for arguments in variable.arguments:
            for argument, initial in zip(arguments, flatten(variable.initial), strict=True):
                if variable.final is None and v.program.watching is not None:
                    v.program.watching.forget(argument)
                if variable.final is None and argument.uses:
                    raise SemanticError(_read_without_value(v, variable))
                argument.replace_all_uses_with(initial)
                if v.program.recorder is not None:
                    known = None if variable.final is None else initial
                    v.program.recorder.replaced(argument, known)
    for region, block in enumerate(blocks):
        own = [argument for variable in kept for argument in variable.arguments[region]]
        block.arguments[leading:] = own
        for index, argument in enumerate(block.arguments):
            argument.index = index


def _read_without_value(v: Visitor, variable: Carried) -> str:
    reason = v.scope.missing.get(variable.name, "it is bound in one branch only")
    return f"`{variable.name}` is read in the loop body but has no value at the end of it: {reason}"


def leave(
    v: Visitor,
    node: Loop,
    before: Scope,
    carried: Sequence[Carried],
    kept: Sequence[Carried],
    results: Sequence[Value],
) -> None:
    """Set the scope after the loop: results for carried variables, nothing new from the body."""
    body = v.scope
    v.scope = before.copy()
    for name, binding in body.names.items():
        if name not in before.names:
            v.scope.missing[name] = (
                f"it is first bound at line {binding.line}, inside the loop at line "
                f"{node.lineno}, which may run no iteration; bind it before the loop"
            )
    for name, reason in body.missing.items():
        if name not in before.names:
            v.scope.missing.setdefault(name, reason)
    for variable in carried:
        if variable.final is None:
            v.scope.drop(variable.name, body.missing.get(variable.name, "the loop leaves it open"))
    values = iter(results)
    for variable in kept:
        value = rebuild(variable.initial, values)
        name_values(variable.name, value)
        v.scope.bind(variable.name, Binding(value, variable.final_line))
