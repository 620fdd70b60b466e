"""Loops of Tile IR: work that iterations repeat, and loop-carried dependences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tkdebug.advice.facts import LoopFacts
from tkdebug.compiler.analysis.global_memory import Origin, may_meet, pointer_origin
from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.dialects.interfaces import ElementFunction, PointerAccess
from tkdebug.compiler.dialects.table import OPS, is_effect_free
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir.control_flow import (
    CONTROL_FLOW,
    IterArg,
    deciding,
    forwarded,
    iter_args,
)
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import ScalarType, element_of
from tkdebug.errors import Frame
from tkdebug.runtime.advising.executions import Executions, loops_around

# Terms of sums and extremes: their order does not matter.
_COMBINES = frozenset(
    name for name, view in OPS.items() if issubclass(view, arith.Binary) and view.combination
)
# Ops that pass a value on, changed in form alone.
_FORMS = names_of(tt.Splat, tt.Broadcast, tt.ExpandDims, tt.Reshape, tt.Trans, arith.Select)


class RepeatedWork:
    """Ops that compute the same again in iterations of loops around them.

    An op does so in a loop if none of its operands comes from the loop's counter or from carried
    values; a load only if the loop stores nothing that it may read.

    Args:
        tile: the kernel's Tile IR.
        executions: the executions of its ops.
    """

    def __init__(self, tile: Module, executions: Executions) -> None:
        self._rounds: dict[Operation, float] = {}
        for loop in tile.walk():
            if not scf.Loop.matches(loop):
                continue
            entered = executions.of_tile(loop)
            rounds = executions.rounds_of_tile(loop) / entered if entered else 0.0
            if rounds <= 1:
                continue
            varying = _Varying(loop)
            for op in varying.ops:
                if varying.is_repeated(op):
                    self._rounds[op] = self._rounds.get(op, 1.0) * rounds

    def rounds(self, op: Operation | None) -> float:
        """Return how many times each result of an op is computed; 1 where nothing is repeated."""
        while op is not None and (around := _combined_by(op)) is not None:
            op = around
        return 1.0 if op is None else self._rounds.get(op, 1.0)


def _combined_by(op: Operation) -> Operation | None:
    """Return the reduction, scan or map whose region an op is in, or None."""
    parent = op.block.parent_op if op.block is not None else None
    return parent if ElementFunction.matches(parent) else None


@dataclass
class _Varying:
    """The values that change from one iteration of a loop to the next.

    Attributes:
        values: all such values.
        ops: the ops of the loop, without those in the regions of reductions and the like.
    """

    loop: Operation
    values: set[Value] = field(default_factory=set)
    ops: list[Operation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stores = [
            op for op in self.loop.walk() if PointerAccess.matches(op) and not tt.Load.matches(op)
        ]
        if scf.For.matches(self.loop):
            self.values.add(scf.For(self.loop).induction_variable)
            carried = {a.argument: a for a in iter_args(self.loop)}
            self.values |= {v for v, a in carried.items() if a.yielded is not v}
        else:
            for region in self.loop.regions:
                self.values.update(region.block.arguments)
        self.ops = [
            op for op in self.loop.walk() if op is not self.loop and _combined_by(op) is None
        ]
        before = -1
        while before != len(self.values):
            before = len(self.values)
            for op in self.ops:
                self._follow(op)

    def _follow(self, op: Operation) -> None:
        """Add the results that change because an operand of an op does."""
        decides = any(value in self.values for value in deciding(op))
        for source, target in forwarded(op):
            if source in self.values or (decides and op.name in CONTROL_FLOW):
                self.values.add(target)
        if op.name in CONTROL_FLOW:
            if decides:
                self.values.update(op.results)
                for region in op.regions:
                    self.values.update(region.block.arguments)
        elif not self.is_repeated(op):
            self.values.update(op.results)

    def is_repeated(self, op: Operation) -> bool:
        """Whether an op computes in each iteration what it did in the one before."""
        if op.name in CONTROL_FLOW or any(value in self.values for value in op.operands):
            return False
        if tt.Load.matches(op):
            return not any(_may_change(store, op) for store in self._stores)
        return is_effect_free(op) and bool(op.results)


def _may_change(store: Operation, load: Operation) -> bool:
    """Whether a store may change what a load reads: tensors of different parameters are apart."""
    origins = [pointer_origin(PointerAccess(op).pointer) for op in (store, load)]
    if Origin.LOADED in origins:
        return True
    return may_meet(*origins)


def loops(tile: Module, executions: Executions) -> Iterator[LoopFacts]:
    """Yield the facts of the outermost loops that ran, loop-carried dependences among them."""
    for loop in tile.walk():
        if not scf.Loop.matches(loop) or loops_around(loop):
            continue
        entered = executions.of_tile(loop)
        if not entered:
            continue
        yield LoopFacts(
            frame=loop.location.frames[-1],
            op_ids=frozenset(op.id for op in loop.walk()),
            entries=entered,
            rounds=executions.rounds_of_tile(loop) / entered,
            needs_before=_needs_before(loop),
            is_counted=scf.For.matches(loop),
            frames=frozenset(op.location.frames[-1] for op in loop.walk() if op.location.frames),
        )


def _needs_before(loop: Operation) -> Frame | None:
    """Return the line of a loop-carried dependence, or None if there is none.

    Sums, minima and maxima do not count: their terms may be computed in any order, and combined
    after the loop. So may the parts of a loop with products, or of a softmax, whose iterations
    rescale the sums.
    """
    if not scf.For.matches(loop):
        return loop.location.frames[-1]
    if any(tt.Dot.matches(op) for op in loop.walk()) or _rescales(loop):
        return None
    carried = next((a for a in iter_args(loop) if _is_recurrence(a)), None)
    if carried is None:
        return None
    return (carried.yielded.defining_op or loop).location.frames[-1]


def _is_recurrence(carried: IterArg) -> bool:
    """Whether a carried number is more than a sum that is read after the loop."""
    if not _is_float(carried.argument):
        return False
    maker = carried.yielded.defining_op
    if maker is None or maker.block is None or carried.yielded is carried.argument:
        return False
    users = list(carried.argument.uses)
    if not users:
        return False
    inner = _carried_on(carried)
    if inner is not None:
        return _is_recurrence(inner)
    is_combined = users == [maker] and maker.name in _COMBINES
    used_after = [user for user in carried.yielded.uses if not scf.Yield.matches(user)]
    return not is_combined or bool(used_after)


def _carried_on(carried: IterArg) -> IterArg | None:
    """Return the inner loop's carried value that alone updates a carried value, or None."""
    inner = carried.yielded.defining_op
    if inner is None or not scf.For.matches(inner) or list(carried.argument.uses) != [inner]:
        return None
    number = inner.results.index(carried.yielded)
    found = list(iter_args(inner))[number]
    return found if found.initial is carried.argument else None


def _is_float(value: Value) -> bool:
    element = element_of(value.type)
    return isinstance(element, ScalarType) and element.name.startswith(("f", "bf"))


def _rescales(loop: Operation) -> bool:
    """Whether all floats that a loop carries are minima or maxima, and sums rescaled by these.

    Parts of such a loop are combined by rescaling each part's sums once, if nothing is stored
    before its end.
    """
    if any(PointerAccess.matches(op) and not tt.Load.matches(op) for op in loop.walk()):
        return False
    floats = [a for a in iter_args(loop) if _is_float(a.argument)]
    extremes = {a.argument for a in floats if _is_extreme(a)}
    sums = {a.argument for a in floats} - extremes
    return bool(extremes and sums) and all(
        _is_rescaled_sum(a, extremes, sums) for a in floats if a.argument in sums
    )


def _is_extreme(carried: IterArg) -> bool:
    maker = carried.yielded.defining_op
    if maker is None or not arith.FloatExtremum.matches(maker):
        return False
    return carried.argument in maker.operands


def _is_rescaled_sum(carried: IterArg, extremes: set[Value], sums: set[Value]) -> bool:
    """Whether a carried value is scaled by minima or maxima, not by sums, and then added to."""
    users = list(carried.argument.uses)
    if len(users) != 1 or not arith.MulF.matches(users[0]):
        return False
    scaled = users[0].result
    maker = carried.yielded.defining_op
    if maker is None or not arith.AddF.matches(maker) or scaled not in maker.operands:
        return False
    factors = [value for value in users[0].operands if value is not carried.argument]
    needed = _needed_by(factors)
    terms = _needed_by([value for value in maker.operands if value is not scaled])
    return not needed.isdisjoint(extremes) and sums.isdisjoint(needed | terms)


def _needed_by(values: list[Value]) -> set[Value]:
    """Return the values, and all that they are computed from."""
    found, left = set[Value](), list(values)
    while left:
        value = left.pop()
        if value in found:
            continue
        found.add(value)
        if value.defining_op is not None:
            left += value.defining_op.operands
    return found


def accumulated_reductions(tile: Module, executions: Executions) -> Mapping[int, float]:
    """Return, by op id, the trip count around each reduction that its loop only accumulates."""
    found = {}
    for op in tile.walk():
        if not tt.Reduce.matches(op) or len(op.results) != 1:
            continue
        loop = _loop_around(op)
        combined = {inner.name for inner in op.regions[0].block.operations} & _COMBINES
        if loop is None or not _is_accumulated(op.results[0], loop, combined):
            continue
        entered = executions.of_tile(loop)
        if entered:
            found[op.id] = executions.rounds_of_tile(loop) / entered
    return found


def _loop_around(op: Operation) -> Operation | None:
    parent = op.block.parent_op if op.block is not None else None
    return parent if parent is not None and scf.For.matches(parent) else None


def _is_accumulated(value: Value, loop: Operation, combined: set[str]) -> bool:
    """Whether a value is only combined with a carried value, which is only read after the loop.

    Args:
        value: a result of a reduction.
        loop: the loop around it.
        combined: the reduction's combination, which has to be the one done with its results.
    """
    while True:
        users = list(value.uses)
        if len(users) != 1 or not users[0].results:
            return False
        user = users[0]
        if user.name in combined:
            break
        if user.name not in _FORMS:
            return False
        value = user.results[0]
    for carried in iter_args(loop):
        if carried.yielded is user.results[0] and carried.argument in user.operands:
            return list(carried.argument.uses) == [user] and all(
                scf.Yield.matches(other) for other in user.results[0].uses
            )
    return False
