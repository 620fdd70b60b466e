"""Static facts of a module's padding: axes along which values have data, and loads that pad.

They are worked out once per module. "Data" are loaded values and everything computed from them; an
axis along which a tile was only broadcast has none. So in `x - mean[:, None]` the first operand has
data of its own in each element, and the second has none.

The loads that mask off elements along an axis show whose padding a reduction takes in. In scores `q
@ k.T`, the loads of `q` mask rows and the loads of `k` columns: a sum along the columns takes in
the padding of a load of `k`, whatever else is masked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tkdebug.compiler.analysis.data_flow import ForwardAnalysis, backward
from tkdebug.compiler.dialects import arith, math, scf, tt
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, incoming, iter_arg
from tkdebug.compiler.ir.core import fact_of
from tkdebug.interpreter.checks.padding.combinations import accumulation
from tkdebug.interpreter.checks.shadow_values import is_elementwise, is_in_kernel, stored_value
from tkdebug.process.apart_imports import import_apart

Axes = frozenset[int]
_NONE: Axes = frozenset()
_LOADS = (tt.Load, tt.DescriptorLoad)
_REDUCTIONS = (tt.Reduce, tt.Scan, tt.Dot, tt.Histogram)
# A glance at their operands does not show whether padding matters.
_FOLLOWED = (tt.Dot, tt.Histogram)


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about one value.

    Attributes:
        varies: axes along which elements may differ.
        data: axes along which each element has data of its own.
    """

    varies: Axes = _NONE
    data: Axes = _NONE


class _TileFacts(ForwardAnalysis[Facts]):
    def visit(self, op: Operation) -> None:
        """Set the facts of an op's results."""
        if op.name in CONTROL_FLOW:
            return
        for value in op.results:
            self.set(value, self._of(op, value))

    def join(self, value: Value, known: Facts, fact: Facts) -> Facts:
        """Return the union of the axes of both."""
        return Facts(known.varies | fact.varies, known.data | fact.data)

    def _of(self, op: Operation, value: Value) -> Facts:
        given = [self.facts.get(operand, Facts()) for operand in op.operands]
        rank = len(ir.shape_of(value.type)) if _is_tile(value) else 0
        if tt.MakeRange.matches(op):
            return Facts(frozenset([0]))
        if tt.Load.matches(op):
            varies = given[0].varies
            return Facts(varies, varies)
        if tt.ExpandDims.matches(op):
            axis = tt.ExpandDims(op).axis
            return _moved(given[0], {a: a + (a >= axis) for a in range(rank)})
        if tt.Trans.matches(op):
            return _moved(given[0], {old: new for new, old in enumerate(tt.Trans(op).order)})
        if tt.Reduce.matches(op):
            axis = tt.Reduce(op).axis
            whole = _united(given)
            return _moved(whole, {a: a - (a > axis) for a in range(rank + 1) if a != axis})
        if tt.Broadcast.matches(op) or tt.Splat.matches(op):
            return given[0]
        if tt.Scan.matches(op) or is_elementwise(op):
            return _united(given)
        every = frozenset(range(rank))
        has_data = tt.DescriptorLoad.matches(op) or any(fact.data for fact in given)
        return Facts(every, every if has_data else _NONE)


def _is_tile(value: Value) -> bool:
    return isinstance(value.type, ir.TensorType)


def _united(given: list[Facts]) -> Facts:
    varies, data = _NONE, _NONE
    for fact in given:
        varies, data = varies | fact.varies, data | fact.data
    return Facts(varies, data)


def _moved(fact: Facts, places: Mapping[int, int]) -> Facts:
    return Facts(
        frozenset(places[axis] for axis in fact.varies if axis in places),
        frozenset(places[axis] for axis in fact.data if axis in places),
    )


@dataclass(frozen=True, slots=True)
class PaddingFacts:
    """The facts of a module.

    Attributes:
        values: the facts of each value.
        loads: loads whose masked-off elements are padding: the mask depends on positions alone.
        accumulations: ops that take an element into a value that a loop carries, with that
            operand's number.
        stores: ops that put a value into memory.
        reached: for each op that combines elements (`_REDUCTIONS`, accumulations), the padding
            loads that its operands are computed from.
        is_plain: whether padding reaches no accumulation, no mean and none of `_FOLLOWED`.
        module: the module that has these facts.
    """

    values: Mapping[Value, Facts]
    loads: frozenset[Operation]
    accumulations: Mapping[Operation, int]
    stores: frozenset[Operation]
    reached: Mapping[Operation, frozenset[Operation]]
    is_plain: bool
    module: Module

    @classmethod
    def of(cls, module: Module) -> PaddingFacts:
        """Return the facts of a module, worked out when they are first asked for."""
        return fact_of(module, cls, cls._made)

    @classmethod
    def _made(cls, module: Module) -> PaddingFacts:
        ops = [op for op in module.walk() if is_in_kernel(op)]
        accumulations = {op: place for op in ops if (place := _accumulated(op)) is not None}
        reduces = any(view.matches(op) for op in ops for view in _REDUCTIONS)
        if not (reduces or accumulations):
            return cls({}, frozenset(), {}, frozenset(), {}, True, module)
        import_apart("tkdebug.interpreter.checks.padding.proof")
        from tkdebug.interpreter.checks.padding.proof import is_certainly_right

        analysis = _TileFacts()
        analysis.run(module.function.regions[0].block)
        facts = analysis.facts
        loads = frozenset(op for op in ops if _pads(op, facts))
        stores = frozenset(op for op in module.walk() if stored_value(op) is not None)
        combining = [op for op in ops if any(view.matches(op) for view in _REDUCTIONS)]
        reached = {
            op: found for op in (*combining, *accumulations) if (found := _loads_behind(op, loads))
        }
        is_plain = not any(
            op in accumulations or _is_of_mean(op) or any(view.matches(op) for view in _FOLLOWED)
            for op in reached
        )
        made = cls(facts, loads, accumulations, stores, reached, is_plain, module)
        if any(map(_is_of_mean, reached)):
            return made
        block = module.function.regions[0].block
        if is_certainly_right(block, loads, made.data, accumulations):
            return cls({}, frozenset(), {}, frozenset(), {}, True, module)
        return made

    def data(self, value: Value) -> Axes:
        """Return the axes along which a value has data."""
        fact = self.values.get(value)
        return _NONE if fact is None else fact.data


def _accumulated(op: Operation) -> int | None:
    """Return the number of the operand that a loop carries through `op`, or None."""
    if accumulation(op) is None:
        return None
    for place, value in enumerate(op.operands):
        carried = iter_arg(value)
        if carried is not None and carried.yielded is op.result and len(op.result.uses) == 1:
            return place if not math.Fma.matches(op) or place == 2 else None
    return None


def _pads(op: Operation, facts: Mapping[Value, Facts]) -> bool:
    """Whether the elements that a load masks off are padding.

    A mask that depends on loaded elements, or compares floats, says what the data mean; so does an
    `other` that was loaded.
    """
    if tt.DescriptorLoad.matches(op):
        return True
    load = tt.Load.cast(op)
    if load is None or load.mask is None:
        return False
    if load.other is not None and _data_of(load.other, facts):
        return False
    for value in backward([load.mask], _sources):
        if _data_of(value, facts) or (value.defining_op and arith.CmpF.matches(value.defining_op)):
            return False
    return True


def _data_of(value: Value, facts: Mapping[Value, Facts]) -> Axes:
    fact = facts.get(value)
    return _NONE if fact is None else fact.data


def _sources(value: Value) -> tuple[Value, ...]:
    op = value.defining_op
    if op is None or op.name in CONTROL_FLOW:
        return incoming(value)
    return () if any(view.matches(op) for view in _LOADS) else op.operands


def _loads_behind(op: Operation, loads: frozenset[Operation]) -> frozenset[Operation]:
    """Return the `loads` that an op's operands are computed from."""
    found = (value.defining_op for value in backward(op.operands, _sources))
    return frozenset(source for source in found if source in loads)


def _is_of_mean(op: Operation) -> bool:
    """Whether a reduction's result is multiplied or divided by its extent, or by 1 / extent."""
    if not tt.Reduce.matches(op):
        return False
    from tkdebug.interpreter.checks.padding.proof import constant_everywhere

    extent = ir.shape_of(tt.Reduce(op).sources[0].type)[tt.Reduce(op).axis]
    for user in op.results[0].uses:
        if arith.DivF.matches(user) or arith.MulF.matches(user):
            if any(constant_everywhere(value) in (extent, 1 / extent) for value in user.operands):
                return True
    return False


def counts_elements(value: Value) -> bool:
    """Whether a difference of integers, such as BLOCK - n, went into a value without data."""
    for source in backward([value], _sources):
        op = source.defining_op
        if op is not None and (arith.SIToFP.matches(op) or arith.SubI.matches(op)):
            inner = backward(op.operands, _sources)
            if any(v.defining_op and arith.SubI.matches(v.defining_op) for v in (*inner, source)):
                return True
    return False


_LEAVING = (scf.Yield.name, scf.Condition.name)


def leaves(op: Operation) -> bool:
    """Whether `op` ends a region of control flow."""
    return op.name in _LEAVING


# By axis of a tile.
_Loads = tuple[frozenset[Operation], ...]
_NO_LOADS: frozenset[Operation] = frozenset()


class MaskedAxes:
    """The masked axes of a module's values.

    Attributes:
        loads: by value, the loads that mask elements off along each axis.
    """

    def __init__(self, loads: Mapping[Value, _Loads]) -> None:
        self.loads = loads

    @classmethod
    def of(cls, module: Module) -> MaskedAxes:
        """Return the axes of a module, worked out when they are first asked for."""
        return fact_of(module, cls, cls._made)

    @classmethod
    def _made(cls, module: Module) -> MaskedAxes:
        analysis = _MaskedAxes(PaddingFacts.of(module))
        analysis.run(module.function.regions[0].block)
        return cls(analysis.facts)

    def combined_by(self, op: Operation, place: int) -> frozenset[Operation]:
        """Return the loads that mask the axis along which `op` combines operand number `place`.

        If it combines element by element, return those of any axis of the other operands.
        """
        axes = self.loads.get(op.operands[place], ())
        if tt.Reduce.matches(op) or tt.Scan.matches(op):
            return axes[tt.Combining(op).axis] if axes else _NO_LOADS
        if tt.Dot.matches(op):
            return axes[-1 if place == 0 else -2] if axes else _NO_LOADS
        given = [self.loads.get(value, ()) for at, value in enumerate(op.operands) if at != place]
        return _NO_LOADS.union(*(each for axes in given for each in axes))


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
        """Return the union of the loads of both, axis by axis."""
        return _united_loads(known, fact)

    def _of(self, op: Operation, rank: int) -> _Loads:
        if op in self._known.loads:
            mask = tt.Load(op).mask if tt.Load.matches(op) else None
            varies = frozenset(range(rank))
            if mask is not None:
                varies = self._known.values[mask].varies
            return tuple(frozenset([op]) if axis in varies else _NO_LOADS for axis in range(rank))
        given = [self.facts[value] for value in op.operands if value in self.facts]
        if not given or tt.Load.matches(op):
            return (_NO_LOADS,) * rank
        if tt.ExpandDims.matches(op):
            axis = tt.ExpandDims(op).axis
            return (*given[0][:axis], _NO_LOADS, *given[0][axis:])
        if tt.Trans.matches(op):
            return tuple(given[0][axis] for axis in tt.Trans(op).order)
        if tt.Reduce.matches(op):
            axis = tt.Reduce(op).axis
            return tuple(loads for at, loads in enumerate(_united_loads(*given)) if at != axis)
        if tt.Dot.matches(op):
            dot, none = tt.Dot(op), (_NO_LOADS,) * rank
            a, b, sums = (self.facts.get(value, none) for value in (dot.a, dot.b, dot.accumulator))
            return _united_loads((*a[:-1], _NO_LOADS), (*b[:-2], _NO_LOADS, b[-1]), sums)
        if tt.Broadcast.matches(op) or tt.Scan.matches(op) or is_elementwise(op):
            return _united_loads(*given)
        return (_NO_LOADS.union(*(each for axes in given for each in axes)),) * rank


def _united_loads(*given: _Loads) -> _Loads:
    return tuple(_NO_LOADS.union(*each) for each in zip(*given, strict=True))
