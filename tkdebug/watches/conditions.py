"""The conditions of watches: a small language over a value's summary, and the program's place.

    condition:  comparisons of numbers, `and`, `or`, `not`, parentheses,
                x.isnan().any() .all(), x.isinf().any() .all(), (x == 0).any() .all()
    number:     a number, inf, pid, pid[0] … pid[2], iteration, + - * / % abs(),
                x.min() .max() .mean() .numel(), x.isnan().sum(), x.isinf().sum(), (x == 0).sum(),
                x, where x is a scalar

`x` is the name of the watched variable. NaNs count in neither `min` nor `max`, and neither NaNs nor
infinities in `mean`; if no element is left, these are NaN, and comparisons with it are false.

A condition is read once, into nodes. It is evaluated by an `Algebra`: as tensors of a batch of
programs, or as ops of the kernel that is compiled. Both compute in fp64, op by op in the same
order, so that both modes agree on a condition.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Final, Generic, Literal, Protocol, TypeVar

from tkdebug.errors import UsageError

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
    """The number of the program's earlier visits."""


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
    """The absolute value of a number."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of two numbers."""

    predicate: Predicate
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Logic:
    """Conditions all or any of which have to hold."""

    is_and: bool
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """A condition that must not hold."""

    operand: Node


Node = Number | Program | Iteration | Summary | Binary | Magnitude | Comparison | Logic | Negation
_T = TypeVar("_T")


class Algebra(Protocol[_T]):
    """Computes conditions and numbers, which are all fp64."""

    def number(self, value: float) -> _T:
        """A constant."""
        ...

    def program(self, axis: int | None) -> _T:
        """The program's number in the grid, or its position along an axis."""
        ...

    def iteration(self) -> _T:
        """The number of the program's earlier visits."""
        ...

    def summary(self, field: Field) -> _T:
        """A field of the value's summary."""
        ...

    def binary(self, operator: Operator, left: _T, right: _T) -> _T:
        """Arithmetic; `mod` has the sign of its right operand."""
        ...

    def magnitude(self, operand: _T) -> _T:
        """The absolute value of a number."""
        ...

    def compare(self, predicate: Predicate, left: _T, right: _T) -> _T:
        """A comparison."""
        ...

    def combine(self, is_and: bool, left: _T, right: _T) -> _T:
        """Two conditions combined by `and` or by `or`."""
        ...

    def negate(self, operand: _T) -> _T:
        """The negation of a condition."""
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
    """Evaluate a condition in `algebra`."""
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


_OPERATORS: Final[dict[type[ast.operator], Operator]] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Mod: "mod",
}
_PREDICATES: Final[dict[type[ast.cmpop], Predicate]] = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}
_NUMBERS: Final[dict[str, Field]] = {
    "min": "minimum",
    "amin": "minimum",
    "max": "maximum",
    "amax": "maximum",
    "mean": "mean",
    "numel": "elements",
}
_FLAGS: Final[dict[str, Field]] = {"isnan": "nan", "isinf": "inf"}
_MAX_CHARS: Final = 1000


def read_condition(text: str, name: str) -> Node:
    """Read the condition `text` on the variable `name`.

    Raises:
        UsageError: it is no condition; the message shows where.
    """
    if len(text) > _MAX_CHARS:
        raise UsageError(f"condition of {len(text)} characters, expected at most {_MAX_CHARS}")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError) as error:
        offset = getattr(error, "offset", None) or 1
        reason = getattr(error, "msg", None) or str(error)
        raise UsageError(_shown(text, offset, f"is no expression: {reason}")) from None
    return _Reader(text, name).condition(tree.body)


def _shown(text: str, column: int, what: str) -> str:
    return f"condition `{text}`, column {column}: {what}"


class _Reader:
    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name

    def _refuse(self, node: ast.expr, what: str) -> UsageError:
        return UsageError(_shown(self._text, node.col_offset + 1, what))

    def _source(self, node: ast.expr) -> str:
        return ast.get_source_segment(self._text, node) or ast.unparse(node)

    def condition(self, node: ast.expr) -> Node:
        """A condition."""
        match node:
            case ast.BoolOp():
                operands = tuple(map(self.condition, node.values))
                return Logic(isinstance(node.op, ast.And), operands)
            case ast.UnaryOp(op=ast.Not()):
                return Negation(self.condition(node.operand))
            case ast.Compare():
                return self._comparison(node)
            case ast.Call(func=ast.Attribute(attr="any", value=flags), args=[], keywords=[]):
                return Comparison("gt", Summary(self._flags(flags)), Number(0.0))
            case ast.Call(func=ast.Attribute(attr="all", value=flags), args=[], keywords=[]):
                return Comparison("eq", Summary(self._flags(flags)), Summary("elements"))
            case ast.Constant(value=bool()):
                raise self._refuse(node, "is always the same; leave the condition out")
        self.number(node)
        text = self._source(node)
        raise self._refuse(node, f"`{text}` is a number; compare it, as in `{text} > 0`")

    def _comparison(self, node: ast.Compare) -> Node:
        found: list[Node] = []
        left = self.number(node.left)
        for operator, operand in zip(node.ops, node.comparators, strict=True):
            if type(operator) not in _PREDICATES:
                raise self._refuse(operand, "`is` and `in` are not part of conditions")
            right = self.number(operand)
            found.append(Comparison(_PREDICATES[type(operator)], left, right))
            left = right
        return found[0] if len(found) == 1 else Logic(True, tuple(found))

    def number(self, node: ast.expr) -> Node:
        """A number."""
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return Number(float(value))
            case ast.Name(id="inf"):
                return Number(float("inf"))
            case ast.Name(id="iteration"):
                return Iteration()
            case ast.Name(id="pid"):
                return Program(None)
            case ast.Name(id=name) if name == self._name:
                return Summary("value")
            case ast.Subscript(
                value=ast.Name(id="pid"), slice=ast.Constant(value=0 | 1 | 2 as axis)
            ):
                assert isinstance(axis, int)
                return Program(axis)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return Binary("sub", Number(0.0), self.number(operand))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.number(operand)
            case ast.BinOp() if type(node.op) in _OPERATORS:
                operator = _OPERATORS[type(node.op)]
                return Binary(operator, self.number(node.left), self.number(node.right))
            case ast.Call(func=ast.Name(id="abs"), args=[operand], keywords=[]):
                return Magnitude(self.number(operand))
            case ast.Call(func=ast.Attribute(attr="sum", value=flags), args=[], keywords=[]):
                return Summary(self._flags(flags))
            case ast.Call(func=ast.Attribute(attr=method, value=value), args=[], keywords=[]):
                if method in _NUMBERS and self._is_watched(value):
                    return Summary(_NUMBERS[method])
        raise self._refuse(node, self._problem(node))

    def _flags(self, node: ast.expr) -> Field:
        """Return the field that counts a tile of truth values."""
        match node:
            case ast.Call(func=ast.Attribute(attr=method, value=value), args=[], keywords=[]):
                if method in _FLAGS and self._is_watched(value):
                    return _FLAGS[method]
            case ast.Compare(left=value, ops=[ast.Eq()], comparators=[ast.Constant(value=0)]):
                if self._is_watched(value):
                    return "zeros"
        name = self._name
        raise self._refuse(
            node,
            f"got `{self._source(node)}`, expected {name}.isnan(), {name}.isinf() or "
            f"({name} == 0) before .any(), .all() or .sum(); for others compare {name}.min() "
            f"or {name}.max()",
        )

    def _is_watched(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id == self._name

    def _problem(self, node: ast.expr) -> str:
        """Describe the mistake in an expression that should be a number."""
        text, name = self._source(node), self._name
        match node:
            case ast.Name():
                return f"`{text}` is unknown; there are {name}, pid, iteration and inf"
            case ast.Subscript(value=ast.Name(id="pid")):
                return f"`{text}`: expected pid[0], pid[1] or pid[2]"
            case ast.Call(func=ast.Attribute(attr="isnan" | "isinf")):
                return f"`{text}` is a tile; add .any(), .all() or .sum()"
            case ast.Compare() | ast.BoolOp():
                return f"`{text}` is a condition, expected a number"
            case ast.Call(func=ast.Attribute(value=value)) if self._is_watched(value):
                return f"`{text}`: expected one of {', '.join(_NUMBERS)} without arguments"
        return f"`{text}` is not part of conditions"
