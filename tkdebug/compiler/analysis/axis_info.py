"""How the elements of a tile follow each other: contiguity, divisibility and constancy per axis.

`analyse` finds these facts for every value of a function, by forward dataflow to a fixed point over
loops and branches. They decide the layout of each memory access and how wide it can be. What each
op does to them stands in `axis_rules` and `axis_shapes`, what they mean in `axis_facts`.

All numbers are powers of two. A fact holds for every program and every launch whose arguments
satisfy the function's `arg_divisibility`, the promises in the source (`tt.hint`, `tt.assume`), and:

- the integer arithmetic that makes an index does not overflow as signed numbers, and the divisor
  of a signed division is positive. Overflow in offsets is a fault of its own.

Without the former, runs still hold as far as they are aligned (`AxisInfo.run`), for no power of two
lets an aligned run cross a wrap, and that is the part that wide accesses rely on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tkdebug.compiler.analysis.assumptions import Promise, promises
from tkdebug.compiler.analysis.axis_facts import (
    AxisInfo,
    join,
    largest_divisor,
    unit_of,
    unknown,
)
from tkdebug.compiler.analysis.axis_rules import infer
from tkdebug.compiler.analysis.counters import first_count
from tkdebug.compiler.dialects import scf, tt
from tkdebug.compiler.ir.core import Block, Operation, Value

__all__ = ["AxisInfo", "analyse"]


def analyse(function: Operation, non_negative: Collection[Value] = ()) -> Mapping[Value, AxisInfo]:
    """The facts about every value of a `tt.func`.

    Its attribute `arg_divisibility`, if there is one, gives a divisor of each argument (bytes for
    pointers).

    Args:
        function: what is analysed.
        non_negative: arguments of which it is assumed.
    """
    analysis = _Analysis(promises(function))
    body = function.regions[0].block
    divisors = tt.Func(function).arg_divisibility
    known = divisors if isinstance(divisors, tuple) else (1,) * len(body.arguments)
    for argument, divisor in zip(body.arguments, known, strict=True):
        assert isinstance(divisor, int)
        info = unknown(argument.type, largest_divisor(divisor), argument in non_negative)
        analysis.set(argument, info)
    analysis.run_block(body)
    return analysis.infos


class _Analysis:
    """One walk over a function; loops are walked until nothing changes."""

    def __init__(self, promised: Mapping[Value, Promise]) -> None:
        self.infos: dict[Value, AxisInfo] = {}
        self._promised = promised

    def set(self, value: Value, info: AxisInfo) -> bool:
        """Note the facts of `value`; whether they are others than before."""
        promise = self._promised.get(value)
        if promise is not None:
            info = replace(
                info,
                divisibility=tuple(max(d, promise.divisor) for d in info.divisibility),
                non_negative=info.non_negative or promise.non_negative,
            )
        changed = self.infos.get(value) != info
        self.infos[value] = info
        return changed

    def _weaken(self, value: Value, info: AxisInfo) -> bool:
        """`value` may also be what `info` describes; whether less is known than before."""
        old = self.infos.get(value)
        return self.set(value, info if old is None else join(old, info, unit_of(value.type)))

    def _hand_on(self, sources: Sequence[Value], targets: Sequence[Value]) -> bool:
        changed = [
            self._weaken(target, self.infos[source])
            for source, target in zip(sources, targets, strict=True)
        ]
        return any(changed)

    def run_block(self, block: Block) -> None:
        """Work through the ops of a block whose arguments are known."""
        for op in block.operations:
            match op.name:
                case scf.For.name:
                    self._run_for(op)
                case scf.While.name:
                    self._run_while(op)
                case scf.If.name:
                    self._run_if(op)
                case _:
                    self._run_op(op)

    def _run_op(self, op: Operation) -> None:
        if op.results:
            info = infer(op, [self.infos[value] for value in op.operands])
            if info is not None and (first := first_count(op)) is not None:
                info = replace(info, non_negative=self.infos[first].non_negative)
            for result in op.results:
                self.set(result, info if info is not None else unknown(result.type))
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    self.set(argument, unknown(argument.type))
                self.run_block(block)

    def _run_for(self, op: Operation) -> None:
        lower, _, step = (self.infos[value] for value in op.operands[:3])
        body = op.regions[0].block
        position, *carried = body.arguments
        divisor = min(lower.every_divisor(), step.every_divisor())
        self.set(position, unknown(position.type, divisor, lower.non_negative))
        self._hand_on(op.operands[3:], carried)
        while True:
            self.run_block(body)
            if not self._hand_on(body.terminator.operands, carried):
                break
        for argument, result in zip(carried, op.results, strict=True):
            self.set(result, self.infos[argument])

    def _run_while(self, op: Operation) -> None:
        before, after = (region.block for region in op.regions)
        self._hand_on(op.operands, before.arguments)
        while True:
            self.run_block(before)
            handed_on = before.terminator.operands[1:]
            self._hand_on(handed_on, after.arguments)
            self._hand_on(handed_on, op.results)
            self.run_block(after)
            if not self._hand_on(after.terminator.operands, before.arguments):
                break

    def _run_if(self, op: Operation) -> None:
        for region in op.regions:
            self.run_block(region.block)
        branches = [region.block.terminator.operands for region in op.regions]
        for result, yes, no in zip(op.results, *branches, strict=True):
            self.set(result, join(self.infos[yes], self.infos[no], unit_of(result.type)))
