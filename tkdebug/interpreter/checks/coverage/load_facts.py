"""Facts about a kernel's loads before it runs: how they walk, and what their masks compare.

A load is *plain* when all programs run the loops around it equally often and no loaded value
decides on it. Then the elements it reads are those that the kernel's author chose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tkdebug.compiler.analysis.data_flow import traced
from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.dialects.interfaces import Effects, accessed
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Block, Module, Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import incoming
from tkdebug.compiler.ir.core import fact_of
from tkdebug.interpreter.checks.value_sources import (
    ARGUMENT,
    LOOP,
    MEMORY,
    PROGRAM_IDS,
    Sources,
    ValueSources,
    terms,
)
from tkdebug.interpreter.memory_usage import pointer_origins

# Predicates by what has to be added to the difference of the operands so that it is below 0.
_LESS = {"slt": 0, "ult": 0, "sle": -1, "ule": -1}
_GREATER = {"sgt": 0, "ugt": 0, "sge": -1, "uge": -1}
_THROUGH = tt.Broadcast.names | tt.ExpandDims.names | tt.Splat.names
_DECIDED_BY_SOME = frozenset([MEMORY, *PROGRAM_IDS])
_KNOWN_READERS = tt.Load.names | tt.DescriptorLoad.names | tt.Atomic.names


Walk = Literal["grid", "loop", "tile"]


@dataclass(frozen=True, slots=True)
class Limit:
    """A comparison `index < bound` (or `index <= bound`) that a mask demands.

    Attributes:
        op: the comparison.
        index: the number of the operand that is the index.
        shift: the number with which the comparison is index - bound + shift < 0.
        starts_anywhere: whether an argument alone says where the index begins.
        walk: "loop" if a loop around it moves the index, else "grid" if programs do, else "tile".
        short_by: the distance by which the bound is below that of another comparison of the index,
            if nothing beside the index is accessed, which would explain it; else 0.
    """

    op: Operation
    index: int
    shift: int
    starts_anywhere: bool
    walk: Walk
    short_by: int = 0


@dataclass(frozen=True, slots=True)
class LoadFacts:
    """One load.

    Attributes:
        sources: the sources of its offsets.
        limits: the limits that its mask demands, without those in which a loaded value takes part.
        is_plain: see the module.
        is_alike: whether all programs that run it run it equally often; some may have returned.
        is_in_loop: whether there is a loop around it.
        adds_up_in_loop: whether the innermost loop carries a float, as a sum.
        adds_to: axes of the grid whose programs add to one place, along which the load moves.
        starts_anywhere: whether an argument alone says where the offsets begin.
        is_reduced: whether its result goes into a reduction or a dot.
    """

    op: Operation
    sources: Sources
    limits: tuple[Limit, ...]
    is_plain: bool
    is_alike: bool
    is_in_loop: bool
    adds_up_in_loop: bool
    adds_to: tuple[int, ...]
    starts_anywhere: bool
    is_reduced: bool

    @property
    def is_block(self) -> bool:
        """Whether it reads a block, by a pointer or a descriptor that knows the extents."""
        if tt.DescriptorLoad.matches(self.op):
            return True
        return tt.Load(self.op).boundary_check is not None


class ModuleLoads:
    """The loads of a module.

    Attributes:
        loads: the loads by op.
        compared: the comparisons of their limits.
        is_known: whether no other op reads memory.
    """

    def __init__(self, module: Module) -> None:
        self._sources = ValueSources(module)
        ops = list(module.function.walk())
        self._added = [
            self._sources.of(tt.AtomicRmw(op).pointer)
            for op in ops
            if tt.AtomicRmw.matches(op) and tt.AtomicRmw(op).kind in ("add", "fadd")
        ]
        self._ends = _Ends(ops, self._sources)
        self._only_readers = _only_readers(module, ops)
        self._reduced = _Reduced(ops)
        self.loads = {op: self._facts(op) for op in ops if _is_load(op)}
        self.compared = frozenset(limit.op for load in self.loads.values() for limit in load.limits)
        readers = (op for op in ops if Effects.READ in OPS[op.name].effects)
        self.is_known = all(op.name in _KNOWN_READERS for op in readers)

    @classmethod
    def of(cls, module: Module) -> ModuleLoads:
        """Return the loads of a module, worked out when they are first asked for."""
        return fact_of(module, cls, cls)

    def _facts(self, op: Operation) -> LoadFacts:
        if tt.DescriptorLoad.matches(op):
            places = tt.DescriptorLoad(op).offsets
            limits: tuple[Limit, ...] = ()
        else:
            places = (tt.Load(op).pointer,)
            limits = tuple(self._limits(tt.Load(op).mask))
        sources: Sources = frozenset().union(*map(self._sources.of, places))
        around = list(op.ancestors())
        loops = [outer for outer in around if scf.For.matches(outer)]
        inside = around[: around.index(loops[-1]) + 1] if loops else []
        return LoadFacts(
            op,
            sources,
            limits,
            MEMORY not in sources and all(map(self._is_for_all, around)),
            MEMORY not in sources
            and all(map(self._is_for_all, inside))
            and not any(map(scf.While.matches, around))
            and op in self._only_readers,
            bool(loops),
            bool(loops) and _carries_float(loops[0]),
            self._axes_added_to(sources),
            any(self._is_argument(term) for place in places for term in terms(place)),
            op in self._reduced,
        )

    def _axes_added_to(self, sources: Sources) -> tuple[int, ...]:
        """Return the grid axes along which the load moves, but no atomic sum does."""
        return tuple(
            axis
            for axis, name in enumerate(PROGRAM_IDS)
            if name in sources and self._added and not any(name in added for added in self._added)
        )

    def _is_for_all(self, outer: Operation) -> bool:
        """Whether all programs run the body of a loop or branch equally often."""
        if scf.For.matches(outer):
            loop = scf.For(outer)
            bounds = (loop.lower, loop.upper, loop.step)
            if self._is_argument(loop.lower) or _leaves_out_on_purpose(loop):
                return False
            return all(self._sources.of(bound).isdisjoint(_DECIDED_BY_SOME) for bound in bounds)
        if scf.If.matches(outer):
            # A loop does not go along what it loads in some iterations only, either.
            return self._sources.of(scf.If(outer).condition).isdisjoint({*_DECIDED_BY_SOME, LOOP})
        return not scf.While.matches(outer)

    def _is_argument(self, value: Value) -> bool:
        return self._sources.of(value) == {ARGUMENT}

    def _limits(self, mask: Value | None) -> Iterator[Limit]:
        """Yield the comparisons of a mask, all of which have to hold."""
        op = None if mask is None else mask.defining_op
        if op is None:
            return
        if arith.AndI.matches(op) or op.name in _THROUGH:
            for operand in op.operands:
                yield from self._limits(operand)
        elif arith.CmpI.matches(op) and not any(MEMORY in self._sources.of(v) for v in op.operands):
            comparison = arith.CmpI(op)
            predicate = comparison.predicate
            place = 0 if predicate in _LESS else 1
            shift = (_LESS | _GREATER).get(predicate)
            if shift is not None:
                index, bound = comparison.both_orders[place]
                starts = any(self._is_argument(term) for term in terms(index))
                short_by = self._ends.short_by(index, bound)
                yield Limit(op, place, shift, starts, self._walk(op), short_by)

    def _walk(self, comparison: Operation) -> Walk:
        if any(map(self._moves_in_loop, comparison.operands)):
            return "loop"
        no_sources: Sources = frozenset()
        sources = no_sources.union(*map(self._sources.of, comparison.operands))
        return "tile" if sources.isdisjoint(PROGRAM_IDS) else "grid"

    def _moves_in_loop(self, value: Value) -> bool:
        found = [_before_loops(term) for term in terms(value)]
        if any(map(_is_of_loop, found)):
            return True
        # The sources of a sum include the loop where one of its terms is forwarded by it.
        return any(LOOP in self._sources.of(one) for one in found or [value])


def _is_of_loop(term: Value) -> bool:
    return isinstance(term.owner, Block) and scf.For.matches(term.owner.parent_op)


def _before_loops(term: Value) -> Value:
    """Return the value that entered a loop, if all iterations forward it unchanged, else `term`.

    The offset of a block pointer that is advanced along another dimension is such a value.
    """
    while _is_of_loop(term):
        others = {value for value in incoming(term) if value is not term}
        if len(others) != 1:
            return term
        (term,) = others
    return term


def _leaves_out_on_purpose(loop: scf.For) -> bool:
    """Whether a loop ends early and forwards its results, as `range(chunks - 1)` does."""
    upper = loop.upper.defining_op
    is_short = arith.SubI.matches(upper) or (
        upper is not None
        and arith.AddI.matches(upper)
        and any((_constant(operand) or 0) < 0 for operand in upper.operands)
    )
    is_counted = _constant(loop.step) == 1
    return is_short and (is_counted or any(tt.Store.matches(op) for op in loop.op.walk()))


def _only_readers(module: Module, ops: list[Operation]) -> frozenset[Operation]:
    """Return loads that alone read their parameter.

    Another op might read it in a branch that no program took.
    """
    origins = pointer_origins(module)
    readers: dict[int, set[Operation]] = {}
    for op in ops:
        if Effects.READ in OPS[op.name].effects:
            for place in origins.get(accessed(op), frozenset([-1])):
                readers.setdefault(place, set()).add(op)
    elsewhere = readers.pop(-1, set())
    return frozenset(only for (only, *more) in readers.values() if not more and not elsewhere)


def _constant(value: Value) -> int | None:
    constant = arith.Constant.defining(value)
    number = None if constant is None else constant.value
    return number if isinstance(number, int) else None


def _is_load(op: Operation) -> bool:
    return tt.Load.matches(op) or tt.DescriptorLoad.matches(op)


def _carries_float(loop: Operation) -> bool:
    carried = [value.type for value in scf.For(loop).iter_args]
    elements = [ir.element_of(t) for t in carried if isinstance(t, ir.TensorType | ir.ScalarType)]
    return any(isinstance(e, ir.ScalarType) and e.is_float for e in elements)


class _Ends:
    """The two sides of each comparison of a module."""

    def __init__(self, ops: list[Operation], sources: ValueSources) -> None:
        pairs = [op.operands for op in ops if arith.CmpI.matches(op)]
        self._compared = {(_root(a), _end(b)) for pair in pairs for a, b in (pair, pair[::-1])}
        # Constants that are added to indices: of what lies beside them.
        self._steps = {abs(step) for op in ops for step in _steps(op, sources)}

    def short_by(self, index: Value, bound: Value) -> int:
        """Return 1 if `bound` is 1 below another bound of `index` and no op adds 1, else 0."""
        base, offset = _end(bound)
        root = _root(index)
        for other, (other_base, other_offset) in self._compared:
            short_by = other_offset - offset
            if other is root and other_base is base and short_by == 1 and 1 not in self._steps:
                return short_by
        return 0


def _root(value: Value) -> Value:
    """Return the value that `value` is a copy of, in another shape."""
    return traced(value, _THROUGH)


def _end(bound: Value) -> tuple[Value | None, int]:
    """Return a bound as a value plus a constant; the value is None for a constant bound."""
    root = _root(bound)
    constant = _constant(root)
    if constant is not None:
        return None, constant
    op = root.defining_op
    if arith.SubI.matches(op) or arith.AddI.matches(op):
        assert op is not None
        total = arith.Binary(op)
        offset = _constant(_root(total.rhs))
        if offset is not None:
            return total.lhs, -offset if arith.SubI.matches(op) else offset
    return root, 0


def _steps(op: Operation, sources: ValueSources) -> Iterator[int]:
    """Yield constants that `op` adds to values that differ by lane, iteration or program."""
    if arith.AddI.matches(op) or arith.SubI.matches(op) or tt.AddPtr.matches(op):
        moved, step = op.operands
        constant = _constant(_root(step))
        if constant is not None and not sources.of(moved) <= {ARGUMENT}:
            yield constant


class _Reduced:
    """Values that go into a reduction or a dot, directly or through other ops."""

    def __init__(self, ops: list[Operation]) -> None:
        self._values: set[Value] = set()
        for op in reversed(ops):
            if tt.Reduce.matches(op) or tt.Dot.matches(op) or self._gives_some(op):
                self._values.update(op.operands)

    def __contains__(self, op: Operation) -> bool:
        return any(result in self._values for result in op.results)

    def _gives_some(self, op: Operation) -> bool:
        """Whether a result of `op` is reduced; for a yield, a result of the op around it."""
        if scf.Yield.matches(op) and op.block is not None and op.block.parent_op is not None:
            return op.block.parent_op in self
        return op in self
