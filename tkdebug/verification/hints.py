"""Constants of a candidate: sizes and thresholds at which its behaviour may change.

Inputs beside a kernel's own constants find what inputs of usual sizes and values do not: a block
that is too short for a long row, a grid with too few programs, another formula from a value on.
Nothing here decides what is right.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_FOLDED: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift,
    ast.Pow: operator.pow,
}
# Calls that bound a number, as a comparison does.
_BOUNDING = frozenset(("min", "max", "minimum", "maximum", "clamp", "clip", "range"))
_MOST_NUMBER = 1 << 20
_MOST_SIZES = 24
_MOST_LIMITS = 8
_LEAST_LIMIT, _MOST_LIMIT = 1e-3, 1e4


@dataclass(frozen=True)
class Hints:
    """Constants of a candidate.

    Attributes:
        sizes: integers of its source, those first with which something is compared.
        limits: numbers with which something is compared, for the values of tensors.
    """

    sizes: tuple[int, ...] = ()
    limits: tuple[float, ...] = ()

    @staticmethod
    def of_source(text: str) -> Hints:
        """Return the constants of a Python file's text; none if it cannot be parsed."""
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            return Hints()
        compared = list(_compared(tree))
        every = [value for node in ast.walk(tree) if (value := _number(node)) is not None]
        whole = [n for n in (*compared, *every) if isinstance(n, int) and 2 <= n <= _MOST_NUMBER]
        limits = [abs(float(n)) for n in compared if _LEAST_LIMIT <= abs(n) <= _MOST_LIMIT]
        return Hints(
            tuple(dict.fromkeys(whole))[:_MOST_SIZES], tuple(dict.fromkeys(limits))[:_MOST_LIMITS]
        )

    def edges(self, blocks: Sequence[int]) -> list[int]:
        """Return sizes beside its constants, and beside the blocks of its launches.

        Args:
            blocks: compile-time integers of its launches.
        """
        beside = [size for block in blocks for size in (block + 1, 2 * block + 1, block)]
        beside += [size for number in self.sizes for size in (number, number + 1)]
        return [size for size in dict.fromkeys(beside) if size > 1]


def _compared(tree: ast.AST) -> Iterator[int | float]:
    """Yield numbers that a comparison, or a bounding call, has as an operand."""
    for node in ast.walk(tree):
        operands: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            operands = list(node.args) if name in _BOUNDING else []
        for operand in operands:
            items = operand.elts if isinstance(operand, ast.Tuple | ast.List) else [operand]
            for one in items:
                value = _number(one)
                if value is not None:
                    yield value


def _number(node: ast.AST) -> int | float | None:
    """Return the number that an expression of constants is, None for any other."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) in (int, float) else None  # type: ignore[return-value]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _number(node.operand)
        return None if value is None else -value
    if isinstance(node, ast.BinOp) and type(node.op) in _FOLDED:
        left, right = _number(node.left), _number(node.right)
        if left is None or right is None or abs(left) > _MOST_NUMBER or abs(right) > 64 * 1024:
            return None
        if isinstance(node.op, ast.LShift | ast.Pow) and not 0 <= right <= 20:
            return None
        try:
            folded = _FOLDED[type(node.op)](left, right)
        except (ArithmeticError, TypeError, ValueError):
            return None
        return folded if isinstance(folded, int | float) else None
    return None
