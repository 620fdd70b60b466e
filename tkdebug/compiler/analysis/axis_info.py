"""How the elements of a tile follow each other: contiguity, divisibility and constancy per axis.

`analyse` finds these facts for every value of a function, by forward dataflow to a fixed point over
loops and branches. They decide the layout of each memory access and how wide it can be. What each
op does to them is in `axis_rules` and `axis_shapes`, what they mean in `axis_facts`.

All numbers are powers of two. A fact holds for every program and every launch whose arguments
satisfy the function's `arg_divisibility`, the assumptions in the source (`tt.hint`, `tt.assume`),
and:

- the integer arithmetic that makes an index does not overflow as signed numbers, and the divisor
  of a signed division is positive. Overflow in offsets is a fault of its own.

Without the former, runs still hold as far as they are aligned (`AxisInfo.run`), for no power of two
lets an aligned run cross a wrap, and that is the part that wide accesses rely on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tkdebug.compiler.analysis.assumptions import Assumption, assumptions
from tkdebug.compiler.analysis.axis_facts import (
    AxisInfo,
    join,
    largest_divisor,
    unit_of,
    unknown,
)
from tkdebug.compiler.analysis.axis_rules import infer
from tkdebug.compiler.analysis.counters import first_count
from tkdebug.compiler.analysis.data_flow import ForwardAnalysis
from tkdebug.compiler.dialects import scf, tt
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, deciding
from tkdebug.compiler.ir.core import Operation, Value

__all__ = ["AxisInfo", "analyse"]


def analyse(function: Operation, non_negative: Collection[Value] = ()) -> Mapping[Value, AxisInfo]:
    """The facts about every value of a `tt.func`.

    Its attribute `arg_divisibility`, if there is one, gives a divisor of each argument (bytes for
    pointers).

    Args:
        function: what is analysed.
        non_negative: arguments of which it is assumed.
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
        # The facts that an op was visited with last, but for sums that go by others' facts, too.
        self._visited: dict[Operation, list[AxisInfo]] = {}

    def set(self, value: Value, fact: AxisInfo) -> None:
        """Note the facts of `value`, with what is assumed of it."""
        assumption = self._assumed.get(value)
        if assumption is not None:
            fact = replace(
                fact,
                divisibility=tuple(max(d, assumption.divisor) for d in fact.divisibility),
                non_negative=fact.non_negative or assumption.non_negative,
            )
        self.facts[value] = fact

    def join(self, value: Value, known: AxisInfo, fact: AxisInfo) -> AxisInfo:
        """What holds of `value` if either may."""
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
        # Most of a loop is as it was when it is walked once more.
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
