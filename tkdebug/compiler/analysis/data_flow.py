"""Data flow over structured control flow: facts forward to a fixed point, needs backward.

Edges are those of `tkdebug.compiler.ir.control_flow`. Facts that meet in one value are joined;
an analysis ends because joins only lose information, of which there is finitely much.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from tkdebug.compiler.ir.control_flow import BRANCHES, edges_from
from tkdebug.compiler.ir.core import Block, Operation, Value

Fact = TypeVar("Fact")


class ForwardAnalysis(ABC, Generic[Fact]):
    """Facts about values, in program order; loops are walked until nothing changes.

    Attributes:
        facts: the facts by value; a value without facts was not reached, or is not analysed.
    """

    def __init__(self) -> None:
        self.facts: dict[Value, Fact] = {}

    @abstractmethod
    def visit(self, op: Operation) -> None:
        """Set the facts of the results of `op`, except those that edges forward."""

    @abstractmethod
    def join(self, value: Value, known: Fact, fact: Fact) -> Fact:
        """The fact that holds for `value` whether `known` or `fact` does."""

    def set(self, value: Value, fact: Fact) -> None:
        """Set the fact of `value`."""
        self.facts[value] = fact

    def run(self, block: Block) -> bool:
        """Visit the ops of a block, and return whether the loop around it must be walked again."""
        again = False
        for op in block.operations:
            self.visit(op)
            if op.name in BRANCHES:
                again |= self._follow_edges(op)
            while op.regions and any([self.run(region.block) for region in op.regions]):
                pass
        return again

    def _follow_edges(self, branch: Operation) -> bool:
        """Forward along all edges from an op, and return whether a fact on a back edge changed."""
        again = False
        for edge in edges_from(branch):
            for source, target in zip(edge.operands, edge.values, strict=True):
                if source in self.facts and self._meet(target, self.facts[source]):
                    again |= edge.is_back_edge
        return again

    def _meet(self, value: Value, fact: Fact) -> bool:
        known = self.facts.get(value)
        self.set(value, fact if known is None else self.join(value, known, fact))
        return self.facts[value] != known


def backward(values: Iterable[Value], needs: Callable[[Value], Iterable[Value]]) -> set[Value]:
    """All values that `values` need, themselves included.

    Args:
        values: the values to begin with.
        needs: returns the values that one value needs directly; called once for each.
    """
    found = set(values)
    pending = list(found)
    while pending:
        for value in needs(pending.pop()):
            if value not in found:
                found.add(value)
                pending.append(value)
    return found


def source_of(value: Value, names: frozenset[str]) -> Value | None:
    """The first operand of the op that defines `value`, or None if the op is not in `names`."""
    op = value.defining_op
    return op.operands[0] if op is not None and op.name in names else None


def traced(value: Value, names: frozenset[str]) -> Value:
    """The value that reaches `value` through ops of `names`, which forward their first operand."""
    while (source := source_of(value, names)) is not None:
        value = source
    return value
