"""`for` and `while`: unrolled over constants, `scf.for` and `scf.while` at run time.

`carrying` finds the values that a run-time loop carries.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tkdebug.compiler.describe import describe
from tkdebug.compiler.dialects import scf
from tkdebug.compiler.dtypes import dtype
from tkdebug.compiler.frontend.branches import condition, decide
from tkdebug.compiler.frontend.calls import call_arguments
from tkdebug.compiler.frontend.carrying import (
    begin_round,
    decay_names,
    enter,
    enter_again,
    leave,
    leaves,
    retry,
    run_body,
    seal,
    split_unchanged,
)
from tkdebug.compiler.frontend.limits import MAX_ITEMS, bounded
from tkdebug.compiler.frontend.scope import Scope, stored_names
from tkdebug.compiler.frontend.statements import assign
from tkdebug.compiler.frontend.values import (
    is_number,
    known_constant,
    scalar_int_type,
)
from tkdebug.compiler.frontend.visitor import Flow, Outcome, Rest, Visitor, discard
from tkdebug.compiler.ir import Block, Region, Value
from tkdebug.compiler.ops import conversion, operators
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.ops.table import LANGUAGE
from tkdebug.compiler.tensor import tensor

MAX_UNROLLED_BY_FACTOR = 1024


@dataclass(frozen=True)
class Iteration:
    """The bounds of a run-time loop, and its hints to the compiler."""

    start: Any
    stop: Any
    step: Any
    attributes: dict[str, bool | int]


def visit_for(v: Visitor, node: ast.For, rest: Rest) -> Outcome | None:
    """A `for` statement."""
    if node.orelse:
        raise v.error(node.orelse[0], "`else` on a loop is not supported; put it after the loop")
    iterated = _iterated(v, node.iter)
    if isinstance(iterated, Iteration):
        _run_time_for(v, node, iterated)
        return None
    return _unrolled_for(v, node, iterated)


def _iterated(v: Visitor, node: ast.expr) -> Iteration | Sequence[Any]:
    """The iterated object of a `for`: a run-time range, or constants to unroll."""
    if isinstance(node, ast.Call):
        function = v.expression(node.func)
        name = function.name if isinstance(function, Builtin) else None
        if function is range or name in ("range", "static_range"):
            arguments, keywords = call_arguments(v, node)
            with v.visiting(node):
                if function is range:
                    keywords = _without_keywords(v, arguments, keywords)
                iteration = _iteration(function, arguments, keywords)
                return _static_range(iteration) if name == "static_range" else iteration
    value = v.expression(node)
    if isinstance(value, tuple | range | zip | enumerate | reversed):
        return bounded(value, "an unrolled loop")
    raise v.error(
        node,
        f"a `for` runs over range, tl.range, tl.static_range or a tuple, got {describe(value)}",
    )


def _without_keywords(
    v: Visitor, arguments: Sequence[Any], keywords: dict[str, Any]
) -> dict[str, Any]:
    """The keywords of Python's `range` that count: none, as Triton's compiler ignores them all."""
    if len(arguments) > 3:
        raise SemanticError("range takes 1 to 3 bounds; use tl.range for anything else")
    for name in keywords:
        meant = "the third argument is the step" if name == "step" else "tl.range takes it"
        v.emit.warn(f"range takes no keywords: `{name}=` is ignored, as Triton does; {meant}")
    return {}


def _iteration(function: Any, arguments: Sequence[Any], keywords: dict[str, Any]) -> Iteration:
    """The bounds and hints of a call of `range`, `tl.range` or `tl.static_range`."""
    signature = LANGUAGE["range" if function is range else function.name].__signature__
    try:
        named = dict(signature.bind(*arguments, **keywords).arguments)
    except TypeError as error:
        raise SemanticError(f"range: {error}") from None
    first, second = named.pop("arg1"), named.pop("arg2", None)
    step = named.pop("step", None)
    start, stop = (0, first) if second is None else (first, second)
    return Iteration(start, stop, 1 if step is None else step, _hints("range", named))


def _hints(function: str, named: dict[str, Any]) -> dict[str, bool | int]:
    attributes: dict[str, bool | int] = {}
    for name, given in named.items():
        value = known_constant(given)
        if value is None or value is False:
            continue
        if not isinstance(value, int):
            raise SemanticError(
                f"tl.{function}: `{name}` must be a constant, got {describe(value)}"
            )
        if name == "loop_unroll_factor" and value > MAX_UNROLLED_BY_FACTOR:
            raise SemanticError(
                f"tl.{function}: loop_unroll_factor {value} exceeds the limit of "
                f"{MAX_UNROLLED_BY_FACTOR}"
            )
        attributes[name] = value
    return attributes


def _static_range(iteration: Iteration) -> range:
    bounds = [known_constant(b) for b in (iteration.start, iteration.stop, iteration.step)]
    for bound in bounds:
        if not isinstance(bound, int):
            raise SemanticError(
                f"tl.static_range needs constant bounds, got {describe(bound)}; "
                "make it a tl.constexpr, or use range for a run-time loop"
            )
    if bounds[2] == 0:
        raise SemanticError("the step of a range must not be 0")
    unrolled = range(*bounds)
    if unrolled[MAX_ITEMS:]:
        start, stop, step = bounds
        count = -((start - stop) // step)
        raise SemanticError(
            f"tl.static_range of {count} iterations exceeds the limit of {MAX_ITEMS} "
            "that are unrolled; use tl.range"
        )
    return unrolled


def _unrolled_for(v: Visitor, node: ast.For, values: Sequence[Any]) -> Outcome | None:
    for value in values:
        v.program.unrolled += 1
        if v.program.unrolled > MAX_ITEMS:
            raise v.error(
                node.iter,
                f"loops of this kernel unroll to more than {MAX_ITEMS} iterations in all; "
                "use tl.range",
            )
        # The variables of an unrolled loop stay constants.
        assign(v, node.target, value)
        if v.program.watching is not None:
            v.program.watching.round_begins(v, node)
        outcome = v.run(node.body, None)
        match outcome.flow:
            case Flow.RETURNS:
                return outcome
            case Flow.MIXED:
                raise v.error(node, _RETURN_IN_LOOP)
            case Flow.FALLS:
                if v.program.recorder is not None:
                    v.program.recorder.next_round(v, node)
    return None


_RETURN_IN_LOOP = (
    "a `return` under a run-time condition inside a loop cannot be compiled; "
    "mask the work, or use a `while` loop whose condition ends it"
)


def _run_time_for(v: Visitor, node: ast.For, iteration: Iteration) -> None:
    if not isinstance(node.target, ast.Name):
        raise v.error(node.target, "the variable of a range loop must be a single name")
    step = known_constant(iteration.step)
    if isinstance(step, int) and step == 0:
        raise v.error(node.iter, "the step of a range must not be 0")
    descending = isinstance(step, int) and step < 0
    with v.visiting(node.iter):
        lower, upper, stride = _bounds(v, iteration, -step if descending else iteration.step)
    if descending:
        lower, upper = upper, lower
    name = node.target.id

    def bind_index(block: Block) -> None:
        index = tensor(block.arguments[0], lower.type)
        if descending:
            # Counting up from `stop` to `start`, mirrored: the trip count stays right.
            index = operators.binary(v.emit, "sub", upper, index)
            index = operators.binary(v.emit, "add", index, lower)
        v.bind(name, index, node.target)

    before = v.scope
    candidates = [n for n in stored_names(node.body) if n != name and n in before.names]
    while True:
        block = Block([lower.value.type])
        carried = enter(v, before, candidates, block)
        with v.builder.inside(block):
            begin_round(v, node)
            bind_index(block)
            decays = run_body(v, node, before, candidates, carried, block)
        if not decays:
            break
        retry(v, before, decays, [block])
    kept, dropped = split_unchanged(carried)
    with v.builder.inside(block):
        v.emit.op(scf.Yield, leaves(c.final for c in kept))
    seal(v, [block], kept, dropped, leading=1)
    initials = leaves(c.initial for c in kept)
    op = v.emit.op(
        scf.For,
        [lower, upper, stride, *initials],
        [leaf.type for leaf in initials],
        [Region([block])],
        **iteration.attributes,
    )
    leave(v, node, before, carried, kept, op.results)
    v.scope.drop(
        name,
        f"it is the variable of the loop at line {node.lineno} and has no value after it; "
        "assign it to another name in the body if you need it",
    )


def _bounds(v: Visitor, iteration: Iteration, step: Any) -> tuple[tensor, tensor, tensor]:
    """The bounds as scalars of the widest of their integer types."""
    bounds: list[tensor] = []
    common: dtype | None = None
    for what, value in (("start", iteration.start), ("stop", iteration.stop), ("step", step)):
        if not isinstance(value, tensor) and not is_number(value):
            raise SemanticError(f"range: {what} must be an integer, got {describe(value)}")
        bound = conversion.to_tensor(v.emit, value)
        found = scalar_int_type(bound)
        if found is None:
            hint = (
                "" if bound.type.is_block() else "; divide with //, or cast it with .to(tl.int32)"
            )
            raise SemanticError(
                f"range: {what} must be a scalar integer, got {describe(bound)}{hint}"
            )
        bounds.append(bound)
        common = found if common is None else conversion.promote(common, found)
    assert common is not None
    lower, upper, stride = (conversion.cast(v.emit, bound, common) for bound in bounds)
    return lower, upper, stride


def visit_while(v: Visitor, node: ast.While, rest: Rest) -> Outcome | None:
    """A `while` statement."""
    if node.orelse:
        raise v.error(node.orelse[0], "`else` on a loop is not supported; put it after the loop")
    before = v.scope
    candidates = [name for name in stored_names(node.body) if name in before.names]
    decay_names(v, before, _constants_tested(node, before, candidates))
    while True:
        test_block, block = Block(), Block()
        carried = enter(v, before, candidates, test_block)
        with v.builder.inside(test_block):
            begin_round(v, node)
            test, hints = _test(v, node)
        if test is None:
            discard(test_block)
            v.scope = before
            return None
        enter_again(v, before, carried, block)
        with v.builder.inside(block):
            decays = run_body(v, node, before, candidates, carried, block)
        if not decays:
            break
        retry(v, before, decays, [test_block, block])
    kept, dropped = split_unchanged(carried)
    with v.builder.inside(test_block):
        forwarded = [argument for c in kept for argument in c.arguments[0]]
        v.emit.op(scf.Condition, [test, *forwarded])
    with v.builder.inside(block):
        v.emit.op(scf.Yield, leaves(c.final for c in kept))
    seal(v, [test_block, block], kept, dropped)
    initials = leaves(c.initial for c in kept)
    types = [leaf.type for leaf in initials]
    regions = [Region([test_block]), Region([block])]
    op = v.emit.op(scf.While, initials, types, regions, **hints)
    leave(v, node, before, carried, kept, op.results)
    return None


def _test(v: Visitor, node: ast.While) -> tuple[Value | None, dict[str, bool | int]]:
    """The condition of a loop (None: it is never entered), and the hints of `tl.condition`."""
    value, hints = _condition(v, node.test)
    with v.visiting(node.test):
        known = decide(value)
    if known is None:
        return condition(v, node.test, value), hints
    if known:
        raise v.error(
            node.test, f"the loop never ends: its condition is {describe(value)} at compile time"
        )
    return None, hints


def _condition(v: Visitor, node: ast.expr) -> tuple[Any, dict[str, bool | int]]:
    if isinstance(node, ast.Call):
        function = v.expression(node.func)
        if isinstance(function, Builtin) and function.name == "condition":
            arguments, keywords = call_arguments(v, node)
            with v.visiting(node):
                try:
                    bound = function.__signature__.bind(*arguments, **keywords).arguments
                except TypeError as error:
                    raise SemanticError(f"condition: {error}") from None
                return bound.pop("arg1"), _hints("condition", bound)
    return v.expression(node), {}


def _constants_tested(node: ast.While, before: Scope, candidates: list[str]) -> set[str]:
    """Constants that the condition reads and the body re-binds: they are no constants here."""
    read = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
    return {name for name in candidates if name in read and is_number(before.names[name].value)}
