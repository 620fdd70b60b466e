"""`for` and `while`: unrolled over constants, `scf.for` and `scf.while` at run time.

A run-time loop carries variables from one iteration to the next. A variable that the body re-binds
and that had a value before becomes a region argument. Which variables these are is known only after
the body was compiled: if a constant turned out to change, the body is compiled again with a tensor
in its place; arguments that came back unchanged are taken out. Invariant: a carried variable keeps
its type.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tkdebug.compiler.describe import describe
from tkdebug.compiler.dialects import scf
from tkdebug.compiler.dtypes import dtype
from tkdebug.compiler.frontend.branches import condition, decide
from tkdebug.compiler.frontend.calls import call_arguments
from tkdebug.compiler.frontend.limits import MAX_ITEMS, bounded
from tkdebug.compiler.frontend.scope import Binding, Scope, stored_names
from tkdebug.compiler.frontend.statements import assign
from tkdebug.compiler.frontend.values import (
    MismatchError,
    flatten,
    has_number,
    has_runtime,
    is_number,
    known_constant,
    rebuild,
    same_constant,
    scalar_int_type,
    unify,
)
from tkdebug.compiler.frontend.visitor import Flow, Outcome, Rest, Visitor, discard, name_values
from tkdebug.compiler.ir import Block, Region, Value
from tkdebug.compiler.ops import conversion, operators
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.ops.table import LANGUAGE
from tkdebug.compiler.tensor import tensor

Loop = ast.For | ast.While
MAX_UNROLLED_BY_FACTOR = 1024


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
    """Return no keywords for Python's `range`, after a warning: Triton's compiler ignores them."""
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
    """Number constants that the condition reads and the body re-binds: they must become tensors."""
    read = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
    return {name for name in candidates if name in read and is_number(before.names[name].value)}
