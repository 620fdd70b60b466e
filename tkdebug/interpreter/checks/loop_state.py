"""Reports loads that a loop is meant to move along a tensor, and that stay where they are.

A pointer that nobody advances loads the same in each iteration. That is no fault by itself: weights
may be loaded again for each row. Three shapes of it are certain:

- the load's mask moves by a tile an iteration, and its address by nothing;
- a product is added up in a loop, and one of its operands moves while the other does not;
- all that a loop loads and adds up is the same in each iteration, whose number nothing uses.

Kernels are looked at before they run; a fault is reported at the second iteration of such a loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tkdebug.compiler.analysis.data_flow import backward, traced
from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.dialects.interfaces import Cast, DotLike, Effects
from tkdebug.compiler.dialects.table import OPS, is_effect_free
from tkdebug.compiler.faults.messages import FaultText
from tkdebug.compiler.ir import Module, Operation, Region, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, IterArg, incoming, iter_args
from tkdebug.compiler.ir.core import fact_of
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.interpreter.tiles.values import TileValue

_HINT = (
    "advance the pointer at the end of the round, as in ptrs += BLOCK * stride, or add the loop's "
    "variable to the offsets"
)


class StandingLoads:
    """The loads of a module that stay where they are, with the text for each, by loop."""

    def __init__(self, module: Module) -> None:
        self.by_loop: dict[Operation, dict[Operation, str]] = {}
        for loop in module.walk():
            if scf.For.matches(loop) and (found := dict(_standing(_Rounds(loop)))):
                self.by_loop[loop] = found

    @classmethod
    def of(cls, module: Module) -> StandingLoads:
        """Return the standing loads of a module, found at the first call."""
        return fact_of(module, cls, cls)


class LoopStateCheck(Observer):
    """`--check loop-state`."""

    is_passive = True

    def __init__(self, module: Module, faults: FaultLog) -> None:
        self._by_loop = StandingLoads.of(module).by_loop
        self._faults = faults

    def moments(self, op: Operation) -> Moments:
        """Ask to be called before loops with such loads, and at each of their iterations."""
        return Moments.BEFORE | Moments.REGIONS if op in self._by_loop else Moments.NEVER

    def of_batch(self, run: Evaluator) -> Observer:
        """Return an observer that counts the iterations of one batch."""
        return _CountedRounds(self._by_loop, self._faults) if self._by_loop else self


class _CountedRounds(Observer):
    """Counts a batch's iterations of loops; the second one is the first to load the same again."""

    def __init__(
        self, by_loop: Mapping[Operation, Mapping[Operation, str]], faults: FaultLog
    ) -> None:
        self._by_loop = by_loop
        self._faults = faults
        self._rounds: dict[Operation, int] = {}

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Begin the count of a loop's iterations."""
        self._rounds[op] = 0

    def enters(self, run: Evaluator, region: Region, arguments: Sequence[TileValue]) -> None:
        """Count an iteration; report the loop's loads at the second one."""
        loop = region.parent
        if loop is None or loop not in self._by_loop:
            return
        self._rounds[loop] = self._rounds.get(loop, 0) + 1
        if self._rounds[loop] == 2:
            for load, message in self._by_loop[loop].items():
                text = FaultText("loop-state", message, "warning", hint=_HINT)
                self._faults.record(load, text)


class _Rounds:
    """Changes from one iteration of a loop to the next.

    Attributes:
        loads: its loads that are in no inner loop.
        moving: the counter, and the carried values that iterations change.
    """

    def __init__(self, loop: Operation) -> None:
        self.loop = loop
        self.carried = iter_args(loop)
        self.counter = scf.For(loop).induction_variable
        self.moving = {self.counter}
        self.moving |= {a.argument for a in self.carried if a.yielded is not a.argument}
        self.inside = set(loop.walk()) - {loop}
        self.loads = [op for op in loop.regions[0].block.operations if tt.Load.matches(op)]

    def needs(self, values: Iterable[Value]) -> set[Value]:
        """Return all values that `values` are computed from within an iteration."""
        own = set(self.loop.regions[0].block.arguments)

        def operands(value: Value) -> Sequence[Value]:
            maker = value.defining_op
            if value in own or (maker is not None and maker not in self.inside):
                return ()
            if maker is None or maker.name in CONTROL_FLOW:
                return tuple(incoming(value))
            return maker.operands

        return backward(values, operands)

    def changes(self, *values: Value) -> bool:
        """Whether values may differ from those of the previous iteration; memory may change."""
        return any(
            value in self.moving or _may_differ(value.defining_op, self.inside)
            for value in self.needs(values)
        )

    def step(self, value: Value) -> int | None:
        """Return how much an integer grows each iteration; None if unknown."""
        if value is self.counter:
            step = constant_value(scf.For(self.loop).step)
            return step if isinstance(step, int) else None
        if not self.changes(value):
            return 0
        op = value.defining_op
        if op is None:
            return self._step_of_carried(value)
        if tt.Rearrangement.matches(op) or arith.ExtSI.matches(op):
            (source,) = op.operands
            return self.step(source)
        if not arith.WrappingBinary.matches(op):
            return None
        left, right = (self.step(operand) for operand in op.operands)
        if left is None or right is None:
            return None
        if arith.MulI.matches(op):
            return self._step_of_product(op, left, right)
        return left + right if arith.AddI.matches(op) else left - right

    def _step_of_carried(self, value: Value) -> int | None:
        carried = next((a for a in self.carried if a.argument is value), None)
        maker = None if carried is None else carried.yielded.defining_op
        if maker is None or not arith.AddI.matches(maker):
            return None
        added = [operand for operand in maker.operands if operand is not value]
        return _constant(added[0]) if len(added) == 1 else None

    def _step_of_product(self, op: Operation, left: int, right: int) -> int | None:
        factors = arith.Binary(op)
        for step, other in ((left, factors.rhs), (right, factors.lhs)):
            factor = _constant(other)
            if factor is not None:
                return step * factor
        return None


def _may_differ(op: Operation | None, inside: set[Operation]) -> bool:
    """Whether an op may give another result in the next iteration for the same operands."""
    if op is None or op not in inside or op.name in CONTROL_FLOW:
        return op is not None and op in inside and scf.While.matches(op)
    return not (is_effect_free(op) or tt.Load.matches(op))


def _constant(value: Value) -> int | None:
    number = constant_value(traced(value, tt.Rearrangement.names))
    return number if isinstance(number, int) else None


def _standing(rounds: _Rounds) -> Iterator[tuple[Operation, str]]:
    stays = [op for op in rounds.loads if _stays(rounds, op)]
    if not stays or any(_may_write(op) for op in rounds.inside):
        return
    is_all = _adds_up_the_same(rounds)
    for load in stays:
        extent = _masked_along(rounds, load)
        if extent is not None:
            yield (
                load,
                "each round of the loop loads the same elements, while the mask moves on by "
                f"{extent}",
            )
        elif is_all:
            yield load, "each round of the loop loads the same elements, and adds them up again"
        elif (other := _other_operand(rounds, load)) is not None:
            line = other.location.frames[-1].line
            yield (
                load,
                "each round of the loop loads the same elements for its product, while those that "
                f"line {line} loads move on",
            )


def _stays(rounds: _Rounds, load: Operation) -> bool:
    pointer = tt.Load(load).pointer
    is_tile = bool(ir.shape_of(load.result.type))
    reads = any(tt.Load.matches(v.defining_op) for v in rounds.needs([pointer]))
    return is_tile and not reads and not rounds.changes(pointer)


def _may_write(op: Operation) -> bool:
    """Whether an op may write memory; then a load may stay in place to see the change."""
    return Effects.WRITE in OPS[op.name].effects or Effects.OTHER in OPS[op.name].effects


def _masked_along(rounds: _Rounds, load: Operation) -> int | None:
    """Return the extent of the tile by which a mask moves each iteration; None if it does not."""
    mask = tt.Load(load).mask
    if mask is None:
        return None
    lanes = {
        value: ir.shape_of(value.type)[0]
        for value in _all_needed([tt.Load(load).pointer])
        if tt.MakeRange.matches(value.defining_op)
    }
    for compare in _conditions(mask):
        steps = [rounds.step(side) for side in compare.operands]
        if steps[0] is None or steps[1] is None:
            continue
        moved = abs(steps[0] - steps[1])
        needed = _all_needed(compare.operands)
        if any(extent == moved and value in needed for value, extent in lanes.items() if moved > 1):
            return moved
    return None


def _conditions(mask: Value) -> Iterator[Operation]:
    """Yield the comparisons that a mask demands."""
    op = traced(mask, tt.Rearrangement.names).defining_op
    if op is None:
        return
    if arith.AndI.matches(op):
        for operand in op.operands:
            yield from _conditions(operand)
    elif arith.CmpI.matches(op):
        yield op


def _all_needed(values: Iterable[Value]) -> set[Value]:
    def operands(value: Value) -> Sequence[Value]:
        maker = value.defining_op
        if maker is None or maker.name in CONTROL_FLOW:
            return tuple(incoming(value))
        return maker.operands

    return backward(values, operands)


def _adds_up_the_same(rounds: _Rounds) -> bool:
    """Whether a loop adds the same terms in each iteration, and does not use its counter."""
    carried = [a for a in rounds.carried if a.yielded is not a.argument]
    if not carried or list(rounds.counter.uses) or len(rounds.loads) != len(_loads(rounds)):
        return False
    return all(
        _is_sum(a) and not rounds.changes(*(v for v in _added(a) if v is not a.argument))
        for a in carried
    )


def _loads(rounds: _Rounds) -> list[Operation]:
    return [op for op in rounds.inside if tt.Load.matches(op)]


def _is_sum(carried: IterArg) -> bool:
    maker = carried.yielded.defining_op
    is_sum = arith.AddF.matches(maker) or tt.Dot.matches(maker)
    return is_sum and carried.argument in _added(carried)


def _added(carried: IterArg) -> Sequence[Value]:
    maker = carried.yielded.defining_op
    return () if maker is None else maker.operands


def _other_operand(rounds: _Rounds, load: Operation) -> Operation | None:
    """Return the load of the other operand, if it moves, of a product that the loop adds up."""
    for op in rounds.loop.regions[0].block.operations:
        if not tt.Dot.matches(op) or not _is_added_up(rounds, op):
            continue
        sides = [_loaded(value) for value in (DotLike(op).a, DotLike(op).b)]
        if load not in sides:
            continue
        other = sides[1 - sides.index(load)]
        if other in rounds.loads and rounds.changes(tt.Load(other).pointer):
            return other
    return None


def _is_added_up(rounds: _Rounds, dot: Operation) -> bool:
    """Whether a product goes into a sum that the loop carries, and nowhere else."""
    for carried in rounds.carried:
        maker = carried.yielded.defining_op
        if maker is None:
            continue
        if not (maker is dot or (arith.AddF.matches(maker) and dot.result in maker.operands)):
            continue
        if carried.argument in maker.operands and list(carried.argument.uses) == [maker]:
            return maker is dot or list(dot.result.uses) == [maker]
    return False


def _loaded(value: Value) -> Operation | None:
    """Return the load that gives a product's operand, through casts and rearrangements, or None."""
    op = traced(value, names_of(tt.Rearrangement, Cast)).defining_op
    return op if tt.Load.matches(op) else None
