"""Which loads mask off elements along which axes of a value: whose padding a reduction takes in.

Static facts, worked out once per module, when a fault is about to be told. Of scores `q @ k.T`,
the loads of `q` mask rows and those of `k` columns: a sum along the columns takes in what a load of
`k` masks off, whatever else is masked.
"""

from __future__ import annotations

from collections.abc import Mapping

from tkdebug.compiler.analysis.data_flow import ForwardAnalysis
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW
from tkdebug.interpreter.checks.padding.facts import PaddingFacts
from tkdebug.interpreter.checks.shadow_flow import is_elementwise

# By axis of a tile.
_Loads = tuple[frozenset[Operation], ...]
_NONE: frozenset[Operation] = frozenset()


class MaskedAxes:
    """Of a module.

    Attributes:
        loads: by value, the loads that mask elements off along each axis.
    """

    def __init__(self, loads: Mapping[Value, _Loads]) -> None:
        self.loads = loads

    @classmethod
    def of(cls, module: Module) -> MaskedAxes:
        """Those of a module, worked out when they are first asked for."""
        found = module.derived.get(cls)
        if not isinstance(found, cls):
            analysis = _MaskedAxes(PaddingFacts.of(module))
            analysis.run(module.function.regions[0].block)
            found = module.derived[cls] = cls(analysis.facts)
        return found

    def combined_by(self, op: Operation, place: int) -> frozenset[Operation]:
        """The loads along the axis over which `op` combines its operand `place`.

        Where it combines element by element, those along any axis of the other operands.
        """
        axes = self.loads.get(op.operands[place], ())
        if tt.Reduce.matches(op) or tt.Scan.matches(op):
            return axes[tt.Combining(op).axis] if axes else _NONE
        if tt.Dot.matches(op):
            return axes[-1 if place == 0 else -2] if axes else _NONE
        given = [self.loads.get(value, ()) for at, value in enumerate(op.operands) if at != place]
        return _NONE.union(*(each for axes in given for each in axes))


class _MaskedAxes(ForwardAnalysis[_Loads]):
    def __init__(self, facts: PaddingFacts) -> None:
        super().__init__()
        self._known = facts

    def visit(self, op: Operation) -> None:
        """Set the loads of an op's results."""
        if op.name in CONTROL_FLOW:
            return
        for value in op.results:
            if isinstance(value.type, ir.TensorType):
                self.set(value, self._of(op, len(ir.shape_of(value.type))))

    def join(self, value: Value, known: _Loads, fact: _Loads) -> _Loads:
        """What either has."""
        return _united(known, fact)

    def _of(self, op: Operation, rank: int) -> _Loads:
        if op in self._known.loads:
            mask = tt.Load(op).mask if tt.Load.matches(op) else None
            varies = frozenset(range(rank))
            if mask is not None:
                varies = self._known.values[mask].varies
            return tuple(frozenset([op]) if axis in varies else _NONE for axis in range(rank))
        given = [self.facts[value] for value in op.operands if value in self.facts]
        if not given or tt.Load.matches(op):
            return (_NONE,) * rank
        if tt.ExpandDims.matches(op):
            axis = tt.ExpandDims(op).axis
            return (*given[0][:axis], _NONE, *given[0][axis:])
        if tt.Trans.matches(op):
            return tuple(given[0][axis] for axis in tt.Trans(op).order)
        if tt.Reduce.matches(op):
            axis = tt.Reduce(op).axis
            return tuple(loads for at, loads in enumerate(_united(*given)) if at != axis)
        if tt.Dot.matches(op):
            dot, none = tt.Dot(op), (_NONE,) * rank
            a, b, sums = (self.facts.get(value, none) for value in (dot.a, dot.b, dot.accumulator))
            return _united((*a[:-1], _NONE), (*b[:-2], _NONE, b[-1]), sums)
        if tt.Broadcast.matches(op) or tt.Scan.matches(op) or is_elementwise(op):
            return _united(*given)
        return (_NONE.union(*(each for axes in given for each in axes)),) * rank


def _united(*given: _Loads) -> _Loads:
    return tuple(_NONE.union(*each) for each in zip(*given, strict=True))
