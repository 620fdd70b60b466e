"""Values that arguments and program ids alone decide: they are the same each time a launch runs.

Such values can be computed again on the host after a launch, from the launch's arguments. Loaded
values, floats (which round as the device does) and addresses as numbers are left out, and so are
ops whose execution depends on one of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tkdebug.compiler.analysis.data_flow import ForwardAnalysis, backward
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.table import is_terminator
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, deciding, tied_values
from tkdebug.compiler.ir.core import Module, Operation, Value
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import DescriptorType, PointerType, ScalarType, Type, element_of

_DECIDED = names_of(
    arith.Constant,
    arith.IntegerBinary,
    arith.CmpI,
    arith.Select,
    arith.IntegerCast,
    tt.GridQuery,
    tt.MakeRange,
    tt.Rearrangement,
    tt.Hint,
    tt.AddPtr,
    tt.MakeTensorDescriptor,
)


@dataclass(frozen=True, slots=True)
class Slice:
    """The part of a module that some accesses need.

    Attributes:
        ops: the ops that have to run, with the ops around them.
        values: the values that are needed: the listed ones, and what they are computed from.
    """

    ops: frozenset[Operation]
    values: frozenset[Value]


def decided_values(module: Module) -> frozenset[Value]:
    """The values that arguments and program ids alone decide."""
    analysis = _Decided()
    body = module.function.regions[0].block
    for argument in body.arguments:
        analysis.set(argument, _is_plain(argument.type))
    analysis.run(body)
    return frozenset(value for value, known in analysis.facts.items() if known)


def is_decided(op: Operation, values: Iterable[Value], decided: frozenset[Value]) -> bool:
    """Whether arguments and program ids alone decide `values` and how often `op` runs."""
    if not decided.issuperset(values):
        return False
    while op.block is not None and (around := op.block.parent_op) is not None:
        if not tt.Func.matches(around) and not decided.issuperset(_deciding_within(around)):
            return False
        op = around
    return True


def slice_of(accesses: Iterable[tuple[Operation, Iterable[Value]]]) -> Slice:
    """The slice that must run to reach each access and to compute the values listed for it."""
    ops: set[Operation] = set()

    def run(op: Operation | None) -> Iterator[Value]:
        while op is not None and op not in ops:
            ops.add(op)
            if op.name in CONTROL_FLOW:
                yield from _deciding_within(op)
                ops.update(
                    region.block.terminator for region in op.regions if region.block.operations
                )
            op = None if op.block is None else op.block.parent_op

    def needs(value: Value) -> Iterator[Value]:
        owner = value.owner
        op = owner if isinstance(owner, Operation) else owner.parent_op
        yield from run(op)
        tied = tied_values(value)
        if tied is not None:
            yield from (*tied.sources, *tied.values)
        elif isinstance(owner, Operation) and op is not None:
            yield from op.operands

    roots: list[Value] = []
    for op, needed in accesses:
        roots += (*run(op), *needed)
    values = frozenset(backward(roots, needs))
    return Slice(frozenset(ops), values)


def _deciding_within(op: Operation) -> Iterator[Value]:
    """The values that decide which regions of a control-flow op run, and how often."""
    yield from deciding(op)
    for region in op.regions:
        block = region.block
        if block.operations and is_terminator(block.terminator):
            yield from deciding(block.terminator)


def _is_plain(type_: Type) -> bool:
    """Whether a type has integer or pointer elements, or is a tensor descriptor."""
    if isinstance(type_, DescriptorType):
        return True
    element = element_of(type_)
    if isinstance(element, PointerType):
        return True
    return isinstance(element, ScalarType) and element.is_integer


class _Decided(ForwardAnalysis[bool]):
    """Finds for each value whether arguments and program ids alone decide it.

    A value that edges forward to is decided if the forwarded values and the choice among them are.
    """

    def visit(self, op: Operation) -> None:
        """Set the facts of an op's results, and of values that no edge forwards to."""
        if op.name in CONTROL_FLOW:
            known = all(self.facts.get(value, False) for value in deciding(op))
            for region in op.regions:
                for argument in region.block.arguments:
                    if tied_values(argument) is None:
                        self.set(argument, known)
            return
        known = op.name in _DECIDED and all(
            self.facts.get(value, False) and _is_plain(value.type) for value in op.operands
        )
        for result in op.results:
            self.set(result, known and _is_plain(result.type))
        for region in op.regions:
            for argument in region.block.arguments:
                self.set(argument, False)

    def join(self, value: Value, known: bool, fact: bool) -> bool:
        """Whether both forwarded values are decided, and the choice between them."""
        return known and fact and self._is_chosen(value)

    def set(self, value: Value, fact: bool) -> None:
        """Set the fact; a value that edges forward to is decided only if the choice of edge is."""
        self.facts[value] = fact and self._is_chosen(value)

    def _is_chosen(self, value: Value) -> bool:
        owner = value.owner
        op = owner if isinstance(owner, Operation) else owner.parent_op
        if op is None or op.name not in CONTROL_FLOW or tied_values(value) is None:
            return True
        return all(self.facts.get(one, True) for one in _deciding_within(op))
