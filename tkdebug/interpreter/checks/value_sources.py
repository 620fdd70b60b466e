"""Sources of a kernel's values: program ids, lanes, loops, arguments, and memory.

A fact is a set of the names below; a constant has the empty set. Values that decide a branch are
not part of the branch's results.
"""

from __future__ import annotations

from collections.abc import Iterator

from tkdebug.compiler.analysis.data_flow import ForwardAnalysis, traced
from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.dialects.interfaces import Effects
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Module, Operation, PointerType, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW
from tkdebug.compiler.ir.core import fact_of

Sources = frozenset[str]
ARGUMENT, LANES, LOOP, MEMORY = "argument", "lanes", "loop", "memory"
PROGRAM_IDS = ("program id 0", "program id 1", "program id 2")
NOTHING: Sources = frozenset()
_READERS = frozenset(name for name, spec in OPS.items() if Effects.READ in spec.effects)
# Ops that give their operand's elements again, in another shape or width.
_RESHAPING = frozenset().union(
    *(
        view.names
        for view in (tt.Splat, tt.Broadcast, tt.ExpandDims, tt.Reshape, arith.ExtSI, arith.ExtUI)
    )
)


class ValueSources(ForwardAnalysis[Sources]):
    """The sources of every value of a module."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        body = module.function.regions[0].block
        for parameter in body.arguments:
            is_number = not isinstance(parameter.type, PointerType | ir.DescriptorType)
            self.set(parameter, frozenset([ARGUMENT]) if is_number else NOTHING)
        self.run(body)

    def visit(self, op: Operation) -> None:
        """Join the sources of the operands."""
        if scf.For.matches(op):
            loop = scf.For(op)
            counted = self.of(loop.lower) | self.of(loop.step) | {LOOP}
            self.set(loop.induction_variable, counted)
        if op.name in CONTROL_FLOW:
            return
        if op.name in _READERS:
            found = frozenset([MEMORY])
        elif tt.MakeRange.matches(op):
            found = frozenset([LANES])
        elif tt.GetProgramId.matches(op):
            found = frozenset([PROGRAM_IDS[tt.GetProgramId(op).axis]])
        else:
            found = frozenset().union(*map(self.of, op.operands))
        for result in op.results:
            self.set(result, found)

    def join(self, value: Value, known: Sources, fact: Sources) -> Sources:
        """Return the union of both sets of sources."""
        return known | fact

    def of(self, value: Value | None) -> Sources:
        """Return the sources of a value; the empty set for None."""
        return NOTHING if value is None else self.facts.get(value, NOTHING)


def terms(value: Value) -> Iterator[Value]:
    """Yield the terms that `value` is a sum of."""
    value = traced(value, _RESHAPING)
    op = value.defining_op
    if op is not None and (arith.AddI.matches(op) or tt.AddPtr.matches(op)):
        for operand in op.operands:
            yield from terms(operand)
    else:
        yield value


class LaneSelections:
    """The selections of a module.

    Attributes:
        any_by_lane: whether the condition of one depends on the lane, and on no loaded value.
    """

    def __init__(self, module: Module) -> None:
        sources = ValueSources(module)
        conditions = (
            sources.of(arith.Select(op).condition)
            for op in module.function.walk()
            if arith.Select.matches(op)
        )
        self.any_by_lane = any(LANES in found and MEMORY not in found for found in conditions)

    @classmethod
    def of(cls, module: Module) -> LaneSelections:
        """Return the selections of a module, worked out when they are first asked for."""
        return fact_of(module, cls, cls)
