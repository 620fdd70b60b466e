"""The conditions of watches: a small language over a value's summary, and where the program is.

`condition_reader` reads a condition once, into nodes. It is evaluated by an `Algebra`: as tensors
of a batch of programs, or as ops of the kernel that is compiled. Both compute in fp64, op by op in
the same order, so that both modes agree on what a condition says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

Field = Literal["nan", "inf", "zeros", "elements", "minimum", "maximum", "mean", "value"]
Operator = Literal["add", "sub", "mul", "div", "mod"]
Predicate = Literal["lt", "le", "gt", "ge", "eq", "ne"]


@dataclass(frozen=True, slots=True)
class Number:
    """A constant."""

    value: float


@dataclass(frozen=True, slots=True)
class Program:
    """The program's number in the grid, x fastest, or its position along an axis."""

    axis: int | None


@dataclass(frozen=True, slots=True)
class Iteration:
    """How often the program came by before."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A field of the value's summary."""

    field: Field


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic."""

    operator: Operator
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Magnitude:
    """A number without its sign."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of two numbers."""

    predicate: Predicate
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Logic:
    """Conditions of which all or any have to hold."""

    is_and: bool
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """A condition that must not hold."""

    operand: Node


Node = Number | Program | Iteration | Summary | Binary | Magnitude | Comparison | Logic | Negation
_T = TypeVar("_T")


class Algebra(Protocol[_T]):
    """What numbers, all of fp64, and conditions are computed as."""

    def number(self, value: float) -> _T:
        """A constant."""
        ...

    def program(self, axis: int | None) -> _T:
        """The program's number in the grid, or its position along an axis."""
        ...

    def iteration(self) -> _T:
        """How often the program came by before."""
        ...

    def summary(self, field: Field) -> _T:
        """A field of the value's summary."""
        ...

    def binary(self, operator: Operator, left: _T, right: _T) -> _T:
        """Arithmetic; `mod` has the sign of its right operand."""
        ...

    def magnitude(self, operand: _T) -> _T:
        """Without its sign."""
        ...

    def compare(self, predicate: Predicate, left: _T, right: _T) -> _T:
        """A comparison."""
        ...

    def combine(self, is_and: bool, left: _T, right: _T) -> _T:
        """Both, or either."""
        ...

    def negate(self, operand: _T) -> _T:
        """Whether a condition does not hold."""
        ...


class _Evaluation(Generic[_T]):
    def __init__(self, algebra: Algebra[_T]) -> None:
        self._algebra = algebra

    def of(self, node: Node) -> _T:
        algebra = self._algebra
        match node:
            case Number():
                return algebra.number(node.value)
            case Program():
                return algebra.program(node.axis)
            case Iteration():
                return algebra.iteration()
            case Summary():
                return algebra.summary(node.field)
            case Binary():
                return algebra.binary(node.operator, self.of(node.left), self.of(node.right))
            case Magnitude():
                return algebra.magnitude(self.of(node.operand))
            case Comparison():
                return algebra.compare(node.predicate, self.of(node.left), self.of(node.right))
            case Negation():
                return algebra.negate(self.of(node.operand))
        found, *others = map(self.of, node.operands)
        for other in others:
            found = algebra.combine(node.is_and, found, other)
        return found


def evaluate(node: Node, algebra: Algebra[_T]) -> _T:
    """What a condition is in `algebra`."""
    return _Evaluation(algebra).of(node)


def fields_of(node: Node) -> frozenset[Field]:
    """The fields of the summary that a condition asks for."""
    match node:
        case Summary():
            return frozenset((node.field,))
        case Binary() | Comparison():
            return fields_of(node.left) | fields_of(node.right)
        case Magnitude() | Negation():
            return fields_of(node.operand)
        case Logic():
            return frozenset().union(*map(fields_of, node.operands))
    return frozenset()
