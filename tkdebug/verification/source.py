"""The candidate's source: constants at which its behaviour may change, and branches of host code.

Inputs beside a kernel's own constants find what inputs of usual sizes and values do not: a block
that is too short for a long row, a grid with too few programs, another formula from a value on.
A branch of the host code that gives a result, or launches a kernel, has to run before anything is
known of it. Nothing here decides what is right.
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


# Branches of host code.

# Conditions on what no verification varies: devices, gradients, ranks, types of arguments.
_FIXED = (
    *("device", "is_cuda", "capability", "available", "grad", "training", "isinstance", "hasattr"),
    *("callable", "None", "dim()", "ndim", "dtype", "version", "platform", "is_contiguous"),
)
# Calls that give another view, size or place, and nothing new.
_PLAIN = frozenset(
    "contiguous to float half view reshape unsqueeze squeeze expand expand_as transpose permute t "
    "flatten cdiv next_power_of_2 min max int len clone stride size numel empty empty_like "
    "new_empty zeros zeros_like print warn".split()
)
_MOST_BRANCHES = 64


@dataclass(frozen=True, slots=True)
class Branch:
    """A part of a function that runs under a condition, and gives a result or calls something.

    Attributes:
        lines: of its first statement.
        tested: lines of the condition.
        condition: as it is written.
        numbers: integers in the condition.
    """

    lines: frozenset[int]
    tested: frozenset[int]
    condition: str
    numbers: tuple[int, ...]


def branches_of(text: str) -> tuple[Branch, ...]:
    """Return the branches of a Python file's host code; none if it cannot be parsed."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    found = [
        branch
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and not _is_kernel(node)
        for branch in _branches(node.body)
    ]
    return tuple(found[:_MOST_BRANCHES])


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any("jit" in ast.unparse(one) for one in function.decorator_list)


def _branches(suite: Sequence[ast.stmt]) -> Iterator[Branch]:
    for place, statement in enumerate(suite):
        if isinstance(statement, ast.If) and _may_vary(statement.test):
            after = suite[place + 1 :] if isinstance(statement.body[-1], ast.Return) else []
            for part in (statement.body, statement.orelse or after):
                if part and _is_work(part):
                    yield _branch(statement, part[0])
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(statement, name, None)
            if inner and not isinstance(statement, ast.FunctionDef | ast.ClassDef):
                yield from _branches(inner)


def _branch(statement: ast.If, first: ast.stmt) -> Branch:
    if isinstance(first, ast.If):  # its own parts may be short
        last = first.test.end_lineno
    else:
        last = first.end_lineno
    numbers = [_number(node) for node in ast.walk(statement.test)]
    whole = [n for n in numbers if isinstance(n, int) and 1 < n]
    return Branch(
        frozenset(range(first.lineno, (last or first.lineno) + 1)),
        frozenset(range(statement.lineno, (statement.test.end_lineno or 0) + 1)),
        " ".join(ast.unparse(statement.test).split()),
        tuple(dict.fromkeys(sorted(whole, reverse=True))),
    )


def _may_vary(test: ast.expr) -> bool:
    """Whether other inputs, or later calls, may change what a condition is."""
    text = ast.unparse(test)
    if any(word in text for word in _FIXED):
        return False
    numbers = [_number(node) for node in ast.walk(test) if isinstance(node, ast.Constant)]
    known = [number for number in numbers if number is not None]
    # Every verification has sizes of 0 and 1.
    is_compared = any(n not in (0, 1) for n in known) or (not known and _has_order(test))
    return is_compared or any(
        isinstance(node, ast.Call | ast.Subscript)
        and not _is_plain(node)
        and not text.endswith((" == 0", " == 1", " > 0"))
        for node in ast.walk(test)
    )


def _has_order(test: ast.expr) -> bool:
    ordering = ast.Lt | ast.LtE | ast.Gt | ast.GtE
    compared = [node for node in ast.walk(test) if isinstance(node, ast.Compare)]
    return any(isinstance(op, ordering) for node in compared for op in node.ops)


def _is_work(part: Sequence[ast.stmt]) -> bool:
    """Whether statements give a result, or call what may."""
    if isinstance(part[0], ast.Raise | ast.Assert):
        return False
    nodes = [node for statement in part for node in ast.walk(statement)]
    return any(
        (isinstance(node, ast.Return) and node.value is not None)
        or (isinstance(node, ast.Call) and not _is_plain(node))
        for node in nodes
    )


def _is_plain(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return ".shape" in ast.unparse(node)
    return getattr(node.func, "attr", getattr(node.func, "id", "")) in _PLAIN
