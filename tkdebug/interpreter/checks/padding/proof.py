"""Shows for some modules that no padding can change a result, so that it need not be followed.

Padding is known by the condition that a load's mask is made of: the elements of a tile where the
condition does not hold. If all of those elements are one number, that is known, too. Sums of zeros,
maxima of -inf and choices by the same condition (`tl.where`) are right whatever was loaded.

Invariant: a proof holds for every launch. If there is no simple proof, the padding is followed
while the kernel runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from tkdebug.compiler.analysis.data_flow import ForwardAnalysis, traced
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects import math as math_ops
from tkdebug.compiler.dialects.interfaces import Moving
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Block, Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, incoming, iter_arg
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.interpreter.checks.padding.combinations import combination, neutral_of
from tkdebug.interpreter.checks.padding.conditions import (
    MOVED,
    Condition,
    conditions_of,
    holds_at,
    orders_of,
)
from tkdebug.interpreter.checks.shadow_values import ANNIHILATED_BY_ZERO, is_elementwise

Axes = frozenset[int]
_IDEMPOTENT = ("maxnum", "maximum", "maxsi", "maxui", "minnum", "minimum", "minsi", "minui")


@dataclass(frozen=True, slots=True)
class Padding:
    """The padding that a value may have.

    Attributes:
        numbers: by condition, the number that the padding's elements are; None: not one number.
        is_blank: whether it may come from no data yet, as the value that a loop begins with.
    """

    numbers: Mapping[Condition, float | None] = field(default_factory=dict)
    is_blank: bool = False


_NOTHING = Padding()


def is_certainly_right(
    block: Block,
    loads: frozenset[Operation],
    data: Callable[[Value], Axes],
    accumulations: Mapping[Operation, int],
) -> bool:
    """Whether no reduction, scan, product or loop can take in padding that matters.

    Args:
        block: the block of the kernel.
        loads: loads that pad.
        data: along which axes a value has data of its own.
        accumulations: ops that take elements into a value that a loop carries, with that operand's
            number.
    """
    proof = _Proof(loads, data, accumulations)
    proof.run(block)
    return not proof.has_failed


def constant_everywhere(value: Value) -> object:
    """Return the number that all elements of a value are, or None if it is no constant."""
    return constant_value(traced(value, names_of(tt.Splat, tt.Broadcast)))


class _Proof(ForwardAnalysis[Padding]):
    def __init__(
        self,
        loads: frozenset[Operation],
        data: Callable[[Value], Axes],
        accumulations: Mapping[Operation, int],
    ) -> None:
        super().__init__()
        self._loads = loads
        self._data = data
        self._accumulations = accumulations
        self.has_failed = False

    def visit(self, op: Operation) -> None:
        """Set the padding of an op's results."""
        if op.name in CONTROL_FLOW:
            return
        numbers = self._numbers(op)
        if _is_plain_load(op):
            # Its pointers may be padding, where they were made of what was masked off.
            numbers = {c: number for c, number in numbers.items() if not holds_at(op, c)}
        is_blank = not OPS[op.name].effects and all(map(self._is_blank, op.operands))
        for value in op.results:
            self.set(value, Padding(numbers, is_blank))

    def set(self, value: Value, fact: Padding) -> None:
        """Set a value's padding; conditions made inside a loop or branch get new names after it."""
        owner = value.owner
        op = owner if isinstance(owner, Operation) else owner.parent_op
        if op is not None and op.name in CONTROL_FLOW:
            numbers: dict[Condition, float | None] = {}
            for condition, number in fact.numbers.items():
                if any(op in block.ancestors() for block in condition.blocks):
                    condition = Condition((value, condition.axes), condition.axes)
                    number = _both(numbers.get(condition, number), number)
                numbers[condition] = number
            is_blank = fact.is_blank or any(not self._data(source) for source in incoming(value))
            fact = Padding(numbers, is_blank)
        super().set(value, fact)

    def join(self, value: Value, known: Padding, fact: Padding) -> Padding:
        """Return the padding that either may have."""
        return Padding(_united([known.numbers, fact.numbers]), known.is_blank or fact.is_blank)

    def _of(self, value: Value) -> Padding:
        return self.facts.get(value, _NOTHING)

    def _is_blank(self, value: Value) -> bool:
        return not self._data(value) or self._of(value).is_blank

    def _numbers(self, op: Operation) -> Mapping[Condition, float | None]:
        if op in self._loads:
            return _of_load(op)
        each = [self._of(value).numbers for value in op.operands]
        if not any(each) or not op.results:
            return {}
        if tt.Reduce.matches(op) or tt.Scan.matches(op):
            return self._reduced(op, each[0])
        if tt.Dot.matches(op):
            return self._multiplied(op, each)
        if tt.Histogram.matches(op):
            return self._binned(tt.Histogram(op), each[0])
        if arith.Select.matches(op):
            return _selected(arith.Select(op), each)
        if any(view.matches(op) for view in MOVED):
            return _moved(op, each[0])
        if Moving.matches(op):
            return {Condition((op,), _axes(op.results[0])): _one_number(each)}
        if not is_elementwise(op):
            return {}  # nobody follows it further
        return self._combined(op, each)

    def _combined(
        self, op: Operation, each: Sequence[Mapping[Condition, float | None]]
    ) -> Mapping[Condition, float | None]:
        place = self._accumulations.get(op)
        if place is not None:
            return self._accumulated(op, each, place)
        counting = [
            numbers
            for value, numbers in zip(op.operands, each, strict=True)
            if not any(
                self._data(value) < self._data(other) and not self._is_blank(other)
                for other in op.operands
            )
        ]
        return {
            condition: _computed(op, [numbers.get(condition) for numbers in each])
            for numbers in counting
            for condition in numbers
        }

    def _accumulated(
        self, op: Operation, each: Sequence[Mapping[Condition, float | None]], place: int
    ) -> Mapping[Condition, float | None]:
        """Return an accumulated value's padding; fail unless only neutral numbers are added."""
        carried = op.operands[place]
        combiner, arg = combination(op), iter_arg(carried)
        assert arg is not None
        initial = _constant(arg.initial)
        neutral = None if combiner is None else _neutral(combiner, carried)
        found = _taken(op, [numbers for at, numbers in enumerate(each) if at != place])
        if any(number is None or number != neutral for number in found.values()):
            self.has_failed = True
        return {condition: _both(number, initial) for condition, number in found.items()}

    def _reduced(
        self, op: Operation, numbers: Mapping[Condition, float | None]
    ) -> Mapping[Condition, float | None]:
        combiner = combination(op)
        if combiner is None:
            return {}
        view = tt.Combining(op)
        axis, neutral = view.axis, _neutral(combiner, view.sources[0])
        is_scan = tt.Scan.matches(op)
        places = {a: a - (a > axis) for a in _axes(view.sources[0]) if a != axis}
        found: dict[Condition, float | None] = {}
        for condition, number in numbers.items():
            if axis in condition.axes:
                if number is None or number != neutral:
                    self.has_failed = True
                result = None if is_scan or combiner.startswith("arg") else neutral
            else:
                keeps = combiner in _IDEMPOTENT or number == neutral
                result = number if keeps and not is_scan else None
            if is_scan:
                found[condition] = result
            elif axis in condition.axes:
                axes = tuple(places[a] for a in condition.axes if a != axis)
                name = ("all", condition.text, condition.axes, axis)
                found[Condition(name, axes, condition.blocks)] = result
            else:
                found[condition.moved(places)] = result
        return found

    def _binned(
        self, view: tt.Histogram, numbers: Mapping[Condition, float | None]
    ) -> Mapping[Condition, float | None]:
        """Fail if a histogram may count padding: neither outside all bins nor masked; return {}."""
        masked = set() if view.mask is None else conditions_of(view.mask)
        for condition, number in numbers.items():
            is_outside = number is not None and (number >= view.bins or number < 0)
            if condition not in masked and (view.unsigned or not is_outside):
                self.has_failed = True
        return {}

    def _multiplied(
        self, op: Operation, each: Sequence[Mapping[Condition, float | None]]
    ) -> Mapping[Condition, float | None]:
        found: dict[Condition, float | None] = {}
        for numbers, value, is_first in (
            (each[0], tt.Dot(op).a, True),
            (each[1], tt.Dot(op).b, False),
        ):
            rank = len(ir.shape_of(value.type))
            inner = rank - 1 if is_first else rank - 2
            for condition, number in numbers.items():
                if inner not in condition.axes:
                    is_zero = number == 0 and _constant(tt.Dot(op).accumulator) == 0
                    found[condition] = 0.0 if is_zero else None
                    continue
                if number != 0:
                    self.has_failed = True
                rest = tuple(axis for axis in condition.axes if axis != inner)
                if rest:  # rows that are padding as a whole
                    name = ("all", condition.text, condition.axes, inner)
                    found[Condition(name, rest, condition.blocks)] = None
        return {**dict.fromkeys(each[2]), **found}


def _is_plain_load(op: Operation) -> bool:
    load = tt.Load.cast(op)
    return load is not None and load.mask is None


def _of_load(op: Operation) -> Mapping[Condition, float | None]:
    load = tt.Load.cast(op)
    if load is None:
        # Outside of a block is what is outside along any of its axes.
        block = op.block
        assert block is not None
        name, blocks = (op.result,), frozenset([block])
        return {Condition((*name, axis), (axis,), blocks): 0.0 for axis in _axes(op.result)}
    assert load.mask is not None
    number: float | None = 0.0
    if load.other is not None:
        number = _constant(load.other)
    return dict.fromkeys(conditions_of(load.mask), number)


# Numbers


def _axes(value: Value) -> tuple[int, ...]:
    return tuple(range(len(ir.shape_of(value.type))))


_INTEGERS = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}


def _neutral(combiner: str, value: Value) -> float | int | None:
    element = ir.element_of(value.type)
    if not isinstance(element, ir.ScalarType) or element.bits not in _INTEGERS:
        return None
    return neutral_of(combiner, torch.float32 if element.is_float else _INTEGERS[element.bits])


def _constant(value: Value) -> float | None:
    number = constant_everywhere(value)
    return float(number) if isinstance(number, (int, float)) else None


def _both(one: float | None, other: float | None) -> float | None:
    return one if one is not None and one == other else None


def _united(each: Iterable[Mapping[Condition, float | None]]) -> Mapping[Condition, float | None]:
    found: dict[Condition, float | None] = {}
    for numbers in each:
        for condition, number in numbers.items():
            found[condition] = _both(found.get(condition, number), number)
    return found


def _one_number(each: Sequence[Mapping[Condition, float | None]]) -> float | None:
    found = {number for numbers in each for number in numbers.values()}
    return found.pop() if len(found) == 1 else None


def _taken(
    op: Operation, others: Sequence[Mapping[Condition, float | None]]
) -> Mapping[Condition, float | None]:
    """Return the padding's numbers that an op adds to a value that a loop carries."""
    if len(others) == 1:
        return others[0]
    return {
        condition: 0.0 if any(numbers.get(condition) == 0 for numbers in others) else None
        for numbers in others
        for condition in numbers
    }


def _moved(
    op: Operation, numbers: Mapping[Condition, float | None]
) -> Mapping[Condition, float | None]:
    places = {axis: axis for axis in _axes(tt.Rearrangement(op).source)}
    if tt.ExpandDims.matches(op):
        new = tt.ExpandDims(op).axis
        places = {axis: axis + (axis >= new) for axis in places}
    elif tt.Trans.matches(op):
        places = {old: place for place, old in enumerate(tt.Trans(op).order)}
    return {condition.moved(places): number for condition, number in numbers.items()}


def _selected(
    select: arith.Select, each: Sequence[Mapping[Condition, float | None]]
) -> Mapping[Condition, float | None]:
    """Return the numbers of a select; where its condition fails, those of the second value."""
    chosen, first, second = each
    known, orders = conditions_of(select.condition), orders_of(select.condition)
    constants = _constant(select.true_value), _constant(select.false_value)
    found: dict[Condition, float | None] = dict.fromkeys(chosen)
    for condition in {*first, *second}:
        if condition in known:
            if condition in second:
                found[condition] = second[condition]
            continue
        if condition not in second and any(one.covers(condition, first) for one in orders):
            continue
        numbers = first.get(condition, constants[0]), second.get(condition, constants[1])
        found[condition] = None if condition in chosen else _both(*numbers)
    return found


def _computed(op: Operation, numbers: Sequence[float | None]) -> float | None:
    """Compute an elementwise op on numbers; None if the result is not known."""
    known = [
        _constant(value) if number is None else number
        for value, number in zip(op.operands, numbers, strict=True)
    ]
    if op.name in _EXACT_CASTS:
        return known[0]
    if len(known) == 1 and known[0] is not None and op.name in _FUNCTIONS:
        return _FUNCTIONS[op.name](known[0])
    if len(known) != 2:
        return None
    one, other = known
    if op.name in ANNIHILATED_BY_ZERO and 0 in known:
        return 0.0
    if arith.DivF.matches(op) and one == 0 and other != 0:
        return 0.0
    if op.name in _SUMS:
        sign = _SUMS[op.name]
        if one is not None and other is not None:
            total = one + sign * other
            return None if math.isnan(total) else total
        return one if one is not None and math.isinf(one) else None
    return None


_EXACT_CASTS = names_of(arith.ExtF, arith.TruncF, arith.SIToFP, arith.ExtSI)
_SUMS = {arith.AddF.name: 1, arith.SubF.name: -1, arith.AddI.name: 1, arith.SubI.name: -1}
_FUNCTIONS: Mapping[str, Callable[[float], float | None]] = {
    math_ops.Exp.name: lambda x: {0.0: 1.0, -math.inf: 0.0}.get(x),
    math_ops.Exp2.name: lambda x: {0.0: 1.0, -math.inf: 0.0}.get(x),
    math_ops.Sqrt.name: lambda x: 0.0 if x == 0 else None,
    math_ops.AbsF.name: abs,
    math_ops.AbsI.name: abs,
    arith.NegF.name: lambda x: -x,
}
