"""Contiguity, divisibility and constancy of the elements of a tile along each axis.

`analyse` finds these facts for every value of a function, by forward dataflow to a fixed point over
loops and branches. They decide the layout of each memory access and how wide it can be. The rule of
each op is in `axis_rules`, the meaning of the facts in `axis_facts`.

All numbers are powers of two. A fact holds for every program and every launch whose arguments
satisfy the function's `arg_divisibility`, the assumptions in the source (`tt.hint`, `tt.assume`),
and:

- the integer arithmetic that makes an index does not overflow as signed numbers, and the divisor
  of a signed division is positive. Overflow in offsets is a fault of its own.

If index arithmetic may overflow, runs still hold as far as they are aligned (`AxisInfo.run`): no
power of two lets an aligned run cross a wrap. Wide accesses rely on this part alone.

Assumptions about scalar integers are read: divisors and signs. One holds wherever its
value is defined, if that is in the block of the assume, and in the whole function if the assume
always runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from tkdebug.compiler.analysis.axis_facts import (
    AxisInfo,
    join,
    largest_divisor,
    unit_of,
    unknown,
)
from tkdebug.compiler.analysis.axis_rules import infer
from tkdebug.compiler.analysis.data_flow import ForwardAnalysis
from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, deciding, iter_arg
from tkdebug.compiler.ir.core import Operation, Value
from tkdebug.compiler.ir.types import shape_of

_SIGNS = {arith.AddI.name: 1, arith.SubI.name: -1}


def first_count(op: Operation) -> Value | None:
    """The value of `op` in the first iteration, if it increments a loop-carried value.

    None if `op` is something else, or the initial value is not defined as a value minus the step.
    """
    if not arith.AddI.matches(op):
        return None
    for carried, step in arith.AddI(op).both_orders:
        count = constant_value(step)
        argument = iter_arg(carried)
        if argument is None or not isinstance(count, int) or count <= 0:
            continue
        if argument.yielded is op.result:
            return _below(argument.initial, count)
    return None


def _below(value: Value, count: int) -> Value | None:
    """The x for which `value` is defined as x - `count`, or None."""
    op = value.defining_op
    if op is None or op.name not in _SIGNS:
        return None
    number = constant_value(arith.Binary(op).rhs)
    if not isinstance(number, int) or _SIGNS[op.name] * number != -count:
        return None
    return arith.Binary(op).lhs


_MIRRORED = {"slt": "sgt", "sle": "sge", "sgt": "slt", "sge": "sle", "eq": "eq"}


@dataclass(frozen=True, slots=True)
class Assumption:
    """A fact about a scalar integer that `tt.assume` ops of the kernel state.

    Attributes:
        divisor: a power of two that divides it.
        non_negative: it is not negative.
    """

    divisor: int = 1
    non_negative: bool = False

    def __and__(self, other: Assumption) -> Assumption:
        return Assumption(max(self.divisor, other.divisor), self.non_negative or other.non_negative)


def assumptions(function: Operation) -> Mapping[Value, Assumption]:
    """The assumptions about each value of a `tt.func`."""
    found: dict[Value, Assumption] = {}
    body = function.regions[0].block
    for op in function.walk():
        if not tt.Assume.matches(op):
            continue
        for value, assumption in _facts(tt.Assume(op).condition):
            if op.block is body or op.block is value.parent_block:
                found[value] = found.get(value, Assumption()) & assumption
    return found


def _facts(condition: Value) -> Iterator[tuple[Value, Assumption]]:
    op = condition.defining_op
    if op is None or shape_of(condition.type):
        return
    if arith.AndI.matches(op):
        for part in op.operands:
            yield from _facts(part)
    if not arith.CmpI.matches(op):
        return
    left, right = op.operands
    predicate = arith.CmpI(op).predicate
    yield from _comparison(left, predicate, constant_value(right))
    if predicate in _MIRRORED:
        yield from _comparison(right, _MIRRORED[predicate], constant_value(left))


def _comparison(
    value: Value, predicate: str, bound: int | float | bool | None
) -> Iterator[tuple[Value, Assumption]]:
    """Yield what a true comparison of `value` with the constant `bound` says about values."""
    if bound is None or isinstance(bound, float):
        return
    if (predicate == "sge" and bound >= 0) or (predicate == "sgt" and bound >= -1):
        yield value, Assumption(non_negative=True)
    part = arith.IntegerBinary.defining(value)
    if predicate != "eq" or bound != 0 or part is None:
        return
    number = constant_value(part.rhs)
    if not isinstance(number, int) or number <= 0:
        return
    if arith.IntegerRemainder.matches(part.op):
        yield part.lhs, Assumption(divisor=number & -number)
    elif arith.AndI.matches(part.op) and number & (number + 1) == 0:
        yield part.lhs, Assumption(divisor=number + 1)


__all__ = ["AxisInfo", "analyse"]


def analyse(function: Operation, non_negative: Collection[Value] = ()) -> Mapping[Value, AxisInfo]:
    """The facts about every value of a `tt.func`.

    The function's attribute `arg_divisibility`, if set, gives a divisor of each argument (bytes for
    pointers).

    Args:
        function: the analysed function.
        non_negative: arguments that are assumed not to be negative.
    """
    analysis = _Analysis(assumptions(function))
    body = function.regions[0].block
    divisors = tt.Func(function).arg_divisibility
    known = divisors if isinstance(divisors, tuple) else (1,) * len(body.arguments)
    for argument, divisor in zip(body.arguments, known, strict=True):
        assert isinstance(divisor, int)
        info = unknown(argument.type, largest_divisor(divisor), argument in non_negative)
        analysis.set(argument, info)
    analysis.run(body)
    return analysis.facts


class _Analysis(ForwardAnalysis[AxisInfo]):
    def __init__(self, assumed: Mapping[Value, Assumption]) -> None:
        super().__init__()
        self._assumed = assumed
        # The operands' facts at an op's last visit; sums that `first_count` finds are left out.
        self._visited: dict[Operation, list[AxisInfo]] = {}

    def set(self, value: Value, fact: AxisInfo) -> None:
        """Set the facts of `value`: `fact`, sharpened by the assumptions about it."""
        assumption = self._assumed.get(value)
        if assumption is not None:
            fact = replace(
                fact,
                divisibility=tuple(max(d, assumption.divisor) for d in fact.divisibility),
                non_negative=fact.non_negative or assumption.non_negative,
            )
        self.facts[value] = fact

    def join(self, value: Value, known: AxisInfo, fact: AxisInfo) -> AxisInfo:
        """Return the facts that hold in both cases."""
        return join(known, fact, unit_of(value.type))

    def visit(self, op: Operation) -> None:
        """Set the facts of an op's results and of the arguments that nothing is forwarded to."""
        if scf.For.matches(op):
            lower, _, step = (self.facts[value] for value in deciding(op))
            counter = op.regions[0].block.arguments[0]
            divisor = min(lower.every_divisor(), step.every_divisor())
            self.set(counter, unknown(counter.type, divisor, lower.non_negative))
        elif op.name not in CONTROL_FLOW:
            self._visit_other(op)

    def _visit_other(self, op: Operation) -> None:
        known = [self.facts[value] for value in op.operands]
        # When a loop is walked again, the operands of most ops have the same facts as before.
        if self._visited.get(op) == known:
            return
        self._visited[op] = known
        if op.results:
            info = infer(op, known)
            if info is not None and (first := first_count(op)) is not None:
                del self._visited[op]
                info = replace(info, non_negative=self.facts[first].non_negative)
            for result in op.results:
                self.set(result, info if info is not None else unknown(result.type))
        for region in op.regions:
            for argument in region.block.arguments:
                self.set(argument, unknown(argument.type))
