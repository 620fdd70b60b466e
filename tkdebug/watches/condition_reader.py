"""Reads the condition of a watch from its text.

    condition:  comparisons of numbers, `and`, `or`, `not`, parentheses,
                x.isnan().any() .all(), x.isinf().any() .all(), (x == 0).any() .all()
    number:     a number, inf, pid, pid[0] … pid[2], iteration, + - * / % abs(),
                x.min() .max() .mean() .numel(), x.isnan().sum(), x.isinf().sum(), (x == 0).sum(),
                x, where x is a scalar

`x` is the name of the watched variable. NaNs count in neither `min` nor `max`, and neither NaNs nor
infinities in `mean`; where none is left, these are NaN, and comparisons with it are false.
"""

from __future__ import annotations

import ast
from typing import Final

from tkdebug.errors import UsageError
from tkdebug.watches.conditions import (
    Binary,
    Comparison,
    Field,
    Iteration,
    Logic,
    Magnitude,
    Negation,
    Node,
    Number,
    Operator,
    Predicate,
    Program,
    Summary,
)

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
    """The condition that `text` is, of the variable `name`.

    Raises:
        UsageError: it is none; the message shows where.
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
        """What is counted of a tile of truth values."""
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
        """What is wrong with what should be a number."""
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
