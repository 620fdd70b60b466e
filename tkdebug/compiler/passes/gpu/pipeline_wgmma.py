"""`PipelineWgmma`: a loop's warpgroup dots run while other work of the loop goes on.

A dot becomes asynchronous, and its result is waited for where it is first used. Dots end in the
order in which they began, so a wait names how many of the last ones may still run.

An accumulator that is carried by the loop and used for nothing else needs no wait inside of it: the
dot that adds to it next begins after the one before has ended. It may run on into the next
iteration, if that leaves its operands alone: rings are filled again only after a wait of the next
iteration, which ends it. After the loop everything is waited for.

Invariants: a wait comes between an asynchronous dot and any use of its result other than carrying
it. The dot's operands are not written before that wait.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis.data_flow import traced
from tkdebug.compiler.analysis.layout_inference import is_elementwise
from tkdebug.compiler.dialects import scf, ttg, ttng
from tkdebug.compiler.dialects.interfaces import DotLike
from tkdebug.compiler.dialects.table import is_effect_free
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir.control_flow import IterArg, iter_args
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import MemDescType
from tkdebug.compiler.rewriting.rewriter import Rewriter

DOT = ttng.WarpGroupDot.name
_VIEWS = names_of(ttg.MemDescIndex, ttg.MemDescTrans, ttg.MemDescSubslice)
# Their results are made in the iteration; they write the buffer of an operand.
_WRITERS = (ttg.LocalStore, ttg.AsyncCopyGlobalToLocal, ttng.AsyncTmaCopyGlobalToLocal)


@dataclass(frozen=True, slots=True)
class PipelineWgmma:
    """Makes the warpgroup dots of loops asynchronous."""

    name: ClassVar[str] = "pipeline-wgmma"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Look at every loop."""
        for loop in [op for op in module.walk() if scf.For.matches(op)]:
            dots = [op for op in loop.regions[0].block.operations if op.name == DOT]
            # Dots whose partial sums are added outside the tensor core wait for each at once.
            if not dots or any(DotLike(dot).max_num_imprecise_acc is not None for dot in dots):
                continue
            plan = _planned(loop, dots)
            if plan is not None and rewriter.begins(loop, "make-asynchronous"):
                _make_asynchronous(loop, dots, plan, rewriter)
                rewriter.commit()


@dataclass(frozen=True, slots=True)
class _Wait:
    """A wait that is to be put into a loop.

    Attributes:
        anchor: the op that it is put before.
        values: the values that pass through it.
        pendings: how many dots may still run.
    """

    anchor: Operation
    values: tuple[Value, ...]
    pendings: int

    def joined(self, values: Sequence[Value], pendings: int) -> _Wait:
        """The wait extended by `values`, after which at most `pendings` dots may run."""
        return _Wait(self.anchor, (*self.values, *values), min(self.pendings, pendings))


@dataclass(frozen=True, slots=True)
class _Plan:
    """The waits of a loop, and the dots that run on into its next iteration."""

    waits: list[_Wait]
    across: list[Operation]


def _planned(loop: Operation, dots: Sequence[Operation]) -> _Plan | None:
    """The plan that makes the dots of a loop asynchronous, or None to leave them as they are."""
    body = loop.regions[0].block
    place = {op: index for index, op in enumerate(body.operations)}
    carried = [dot for dot in dots if is_carried(loop, dot) and _reads_lasting(loop, dot)]
    if len(dots) == 1:
        return _planned_alone(loop, dots[0], place) if carried else None
    waits = _waits_inside([dot for dot in dots if dot not in carried], dots, place)
    emptying = next((wait for wait in waits if wait.pendings == 0), None)
    across = []
    for dot in carried:
        if emptying is not None and _is_left_alone(loop, dot, emptying.anchor, place):
            across.append(dot)
    waits = _waits_inside([dot for dot in dots if dot not in across], dots, place)
    for dot in across:
        assert emptying is not None
        if rescaling(loop, dot):
            # The rescaling may use the sums of the last iteration's dot only after this wait.
            index = next(i for i, wait in enumerate(waits) if wait.anchor is emptying.anchor)
            waits[index] = waits[index].joined([_carried(loop, dot).argument], 0)
    return _Plan(waits, across)


def _planned_alone(loop: Operation, dot: Operation, place: Mapping[Operation, int]) -> _Plan | None:
    """The plan for a loop's only dot: it is waited for when the next iteration's has begun.

    None if an operand is in registers, or the accumulator is rescaled.
    """
    in_memory = all(isinstance(value.type, MemDescType) for value in _factors(dot))
    if not in_memory or rescaling(loop, dot):
        return None
    following = loop.regions[0].block.operations[place[dot] + 1]
    return _Plan([_Wait(following, (dot.result,), 1)], [dot])


def _waits_inside(
    awaited: Sequence[Operation], dots: Sequence[Operation], place: Mapping[Operation, int]
) -> list[_Wait]:
    """The waits for the results of `awaited` inside the loop's body, in program order."""
    waits: dict[Operation, _Wait] = {}
    for dot in awaited:
        if _is_chained(dot, dots):
            continue
        anchor = _deadline(dot, place)
        later = sum(place[dot] < place[other] < place[anchor] for other in dots)
        waits[anchor] = waits.get(anchor, _Wait(anchor, (), later)).joined([dot.result], later)
    return sorted(waits.values(), key=lambda wait: place[wait.anchor])


def rescaling(loop: Operation, dot: Operation) -> tuple[Operation, ...] | None:
    """The elementwise ops between a carried value and the accumulator of the dot that yields it.

    Returns:
        The ops in order, () if there are none. None if the dot's result is not only yielded, or
        if the carried value is used for anything but the dot's accumulator.
    """
    block = loop.regions[0].block
    if dot.result.uses != {block.terminator: 1}:
        return None
    carried = _carried(loop, dot).argument
    found: set[Operation] = set()
    worklist = [carried]
    while worklist:
        for user in worklist.pop().uses:
            if user is dot or user in found:
                continue
            if user.block is not block or not is_elementwise(user) or not is_effect_free(user):
                return None
            found.add(user)
            worklist += user.results
    made = {carried, *(result for op in found for result in op.results)}
    if DotLike(dot).accumulator not in made or any(value in made for value in _factors(dot)):
        return None
    return tuple(op for op in block.operations if op in found)


def is_carried(loop: Operation, dot: Operation) -> bool:
    """Whether the dot adds to a carried value whose only other use is its rescaling."""
    return rescaling(loop, dot) is not None


def _carried(loop: Operation, dot: Operation) -> IterArg:
    return next(each for each in iter_args(loop) if each.yielded is dot.result)


def _is_left_alone(
    loop: Operation, dot: Operation, wait: Operation, place: Mapping[Operation, int]
) -> bool:
    """Whether no op before `wait` uses the carried value, or writes the dot's buffers."""
    if any(
        user is not dot and place[user] < place[wait] for user in _carried(loop, dot).argument.uses
    ):
        return False
    before = loop.regions[0].block.operations[: place[wait]]
    return not any(_writes(op, _roots(dot)) for op in before)


def _is_chained(dot: Operation, dots: Sequence[Operation]) -> bool:
    """Whether the only use of the dot's result is as an accumulator of `dots`; it needs no wait."""
    return any(
        dot.result.uses == {other: 1} and DotLike(other).accumulator is dot.result for other in dots
    )


def _reads_lasting(loop: Operation, dot: Operation) -> bool:
    """Whether the dot's buffers are made outside the loop, as rings are, and so outlast iterations.

    A buffer made in the loop is the same memory in each iteration, so the next one overwrites it.
    The assembler keeps operands in registers intact.
    """
    inside = set(loop.walk())
    buffers = [value for value in _factors(dot) if isinstance(value.type, MemDescType)]
    return all(_root(value) not in inside for value in buffers)


def _root(buffer: Value) -> Operation | None:
    """The op that made a buffer's memory."""
    return traced(buffer, _VIEWS).defining_op


def _deadline(dot: Operation, place: Mapping[Operation, int]) -> Operation:
    """The first op of the body that uses the dot's result, or writes its buffers."""
    assert dot.block is not None
    body = dot.block
    roots, users = _roots(dot), set(dot.result.uses)
    for op in body.operations[place[dot] + 1 :]:
        if _writes(op, roots) or any(inner in users for inner in op.walk()):
            return op
    return body.terminator


def _factors(dot: Operation) -> tuple[Value, Value]:
    return DotLike(dot).a, DotLike(dot).b


def _roots(dot: Operation) -> set[Operation | None]:
    """The ops that made the buffers that a dot reads."""
    return {_root(value) for value in _factors(dot) if isinstance(value.type, MemDescType)}


def _writes(op: Operation, roots: Collection[Operation | None]) -> bool:
    """Whether an op, or one inside it, writes a buffer that one of `roots` made."""
    return any(
        _root(writer(inner).buffer) in roots
        for inner in op.walk()
        for writer in _WRITERS
        if writer.matches(inner)
    )


def _make_asynchronous(
    loop: Operation, dots: Sequence[Operation], plan: _Plan, rewriter: Rewriter
) -> None:
    # First, as it finds the loop's result by the dot's, which the waits inside replace.
    for dot in plan.across:
        _drain(loop, dot, rewriter)
    for dot in dots:
        ttng.WarpGroupDot(dot).is_async = True
        rewriter.record_change(dot, "make-asynchronous")
    for wait in plan.waits:
        waited = _wait(rewriter, wait.anchor, wait.values, wait.pendings, dots[0])
        for value, after in zip(wait.values, waited, strict=True):
            _use_waited(value, after, rewriter)


def _drain(loop: Operation, dot: Operation, rewriter: Rewriter) -> None:
    """Wait after the loop for the dot whose sums the loop returns."""
    assert loop.block is not None
    after = loop.block.operations[loop.block.operations.index(loop) + 1]
    result = _carried(loop, dot).result
    (drained,) = _wait(rewriter, after, [result], 0, dot)
    _use_waited(result, drained, rewriter)


def _wait(
    rewriter: Rewriter, anchor: Operation, values: Sequence[Value], pendings: int, dot: Operation
) -> Sequence[Value]:
    wait = rewriter.build_before(
        anchor,
        ttng.WarpGroupDotWait,
        values,
        [value.type for value in values],
        {"pendings": pendings},
        location=dot.location,
    )
    rewriter.record_new(wait, "wait-for-dots")
    return wait.results


def _use_waited(value: Value, waited: Value, rewriter: Rewriter) -> None:
    """Let every use of `value` but the wait's use the wait's result instead."""
    for user in list(value.uses):
        if user is not waited.owner:
            user.replace_operand(value, waited)
            rewriter.record_change(user, "use-waited")
    rewriter.note_replaced(value, waited)
