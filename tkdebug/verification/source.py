"""The candidate's source: constants at which its behaviour may change, and branches of host code.

Inputs beside a kernel's own constants find what inputs of usual sizes and values do not: a block
that is too short for a long row, a grid with too few programs, another formula from a value on.
A branch of the host code that gives a result, or launches a kernel, has to run before anything is
known of it; and so has each outcome of a kernel's condition on its scalar arguments. Nothing here
decides what is right.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
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
        sizes: integers of its source; those in comparisons are first.
        limits: magnitudes of numbers in comparisons, for the values of tensors.
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
    """Return the value of an expression of constants, or None for any other expression."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) in (int, float) else None  # type: ignore[return-value]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _number(node.operand)
        return None if value is None else -value
    if isinstance(node, ast.BinOp) and type(node.op) in _FOLDED:
        left, right = _number(node.left), _number(node.right)
        if left is None or right is None or abs(left) > _MOST_NUMBER or abs(right) > 64 * 1024:
            return None
        most = {ast.LShift: 40, ast.Pow: 20}.get(type(node.op))
        if most is not None and not 0 <= right <= most:
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
# Names of tuning parameters, which change only how fast a kernel is.
_TUNING = re.compile(r"block|warp|stage|tile|group|grid", re.IGNORECASE)
# Smaller numbers that a kernel's argument is compared with may be modes that are never used.
_LEAST_SIZE = 1000

# A line and a column.
Spot = tuple[int, int]


@dataclass
class Ran:
    """Places that ran.

    Attributes:
        lines: lines of the host code.
        spots: beginnings of expressions, in functions with a branch on its condition's line.
        outcomes: pairs of the beginning of a kernel's condition and a value that it had.
    """

    lines: set[int] = field(default_factory=set)
    spots: set[Spot] = field(default_factory=set)
    outcomes: set[tuple[Spot, bool]] = field(default_factory=set)

    def add(self, other: Ran) -> None:
        """Add what ran in another call."""
        self.lines |= other.lines
        self.spots |= other.spots
        self.outcomes |= other.outcomes


@dataclass(frozen=True, slots=True)
class Branch:
    """A part of a function that runs under a condition, and gives a result or calls something.

    Attributes:
        lines: the lines of its first statement.
        tested: lines of the condition.
        condition: as it is written.
        numbers: integers in the condition.
        span: its beginning and end, if it is on a line of its condition; else None.
        outcome: the value of a kernel's condition, whose place `span` is then; None for host code.
    """

    lines: frozenset[int]
    tested: frozenset[int]
    condition: str
    numbers: tuple[int, ...]
    span: tuple[Spot, Spot] | None = None
    outcome: bool | None = None

    def is_asked(self, ran: Ran) -> bool:
        """Whether its condition was evaluated; a kernel's, whether it had the other value."""
        if self.outcome is None or self.span is None:
            return bool(self.tested & ran.lines)
        return (self.span[0], not self.outcome) in ran.outcomes

    def has_run(self, ran: Ran) -> bool:
        """Whether it ran."""
        if self.span is None:
            return bool(self.lines & ran.lines)
        first, last = self.span
        if self.outcome is not None:
            return (first, self.outcome) in ran.outcomes
        return any(first <= spot < last for spot in ran.spots)


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
        for branch in (*_branches(node.body), *_expressions(node))
    ]
    return tuple(found[:_MOST_BRANCHES])


@dataclass(frozen=True)
class Condition:
    """A condition of a kernel on its scalar arguments alone.

    Attributes:
        code: the compiled condition.
        names: the names of its arguments.
        outcomes: its branches, for true and for false.
    """

    code: CodeType
    names: frozenset[str]
    outcomes: tuple[Branch, Branch]

    def outcome(self, arguments: Mapping[str, Any]) -> tuple[Spot, bool] | None:
        """Return the condition's place and its value in a launch; None if that is not known."""
        given = {name: arguments.get(name) for name in self.names}
        span = self.outcomes[0].span
        if span is None or not all(isinstance(n, int | float) for n in given.values()):
            return None
        try:
            return span[0], bool(eval(self.code, {"__builtins__": {}}, given))
        except (ArithmeticError, TypeError):
            return None


def conditions_of(text: str) -> dict[str, list[Condition]]:
    """Return the conditions on scalar arguments in a file's kernels, by the kernel's name."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    return {
        node.name: list(_conditions(node))[:_MOST_BRANCHES]
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and _is_kernel(node)
    }


_EVALUATED = (
    *(ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Name, ast.Constant, ast.Load),
    *(ast.cmpop, ast.boolop, ast.unaryop, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod),
    ast.LShift,
)


def _conditions(kernel: ast.FunctionDef) -> Iterator[Condition]:
    arguments = {one.arg for one in (*kernel.args.posonlyargs, *kernel.args.args)}
    stored = {n.id for n in ast.walk(kernel) if isinstance(n, ast.Name) and _is_stored(n)}
    for node in ast.walk(kernel):
        test = node.test if isinstance(node, ast.If | ast.IfExp) else None
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).endswith("where"):
            test = node.args[0]
        if test is None or not all(isinstance(one, _EVALUATED) for one in ast.walk(test)):
            continue
        names = {one.id for one in ast.walk(test) if isinstance(one, ast.Name)}
        numbers = [n for one in ast.walk(test) if isinstance(n := _number(one), int | float)]
        if names and names <= arguments - stored and max(numbers, default=0) >= _LEAST_SIZE:
            code = compile(ast.Expression(test), "<condition>", "eval")
            made = [
                _branch(test, test, span=_span(test), outcome=outcome) for outcome in (True, False)
            ]
            yield Condition(code, frozenset(names), (made[0], made[1]))


def _is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _span(node: ast.expr | ast.stmt) -> tuple[Spot, Spot]:
    end = (node.end_lineno or node.lineno, node.end_col_offset or 0)
    return (node.lineno, node.col_offset), end


def _expressions(function: ast.FunctionDef) -> Iterator[Branch]:
    """Yield the branches of expressions: `a if test else b`, and `test and a or b`."""
    is_choice = ast.IfExp | ast.BoolOp
    tests = {
        id(one)
        for node in ast.walk(function)
        if isinstance(node, ast.If | ast.While | ast.Assert | ast.IfExp | ast.comprehension)
        for whole in (node.ifs if isinstance(node, ast.comprehension) else [node.test])
        for one in ast.walk(whole)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.keyword) and _is_of_tuning(node):
            tests |= {id(one) for one in ast.walk(node.value)}
        if not isinstance(node, is_choice) or id(node) in tests:
            continue
        test = node.test if isinstance(node, ast.IfExp) else node.values[0]
        parts = [node.body, node.orelse] if isinstance(node, ast.IfExp) else node.values[1:]
        if _may_vary(test):
            yield from (_branch(test, part, span=_span(part)) for part in parts)


def _is_of_tuning(node: ast.Assign | ast.keyword) -> bool:
    names = [node.arg] if isinstance(node, ast.keyword) else map(ast.unparse, node.targets)
    return all(_TUNING.search(name or "") for name in names)


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any("jit" in ast.unparse(one) for one in function.decorator_list)


def _branches(suite: Sequence[ast.stmt]) -> Iterator[Branch]:
    for place, statement in enumerate(suite):
        if isinstance(statement, ast.If) and _may_vary(statement.test):
            after = suite[place + 1 :] if isinstance(statement.body[-1], ast.Return) else []
            for part in (statement.body, statement.orelse or after):
                if part and _is_work(part):
                    is_within = part[0].lineno <= (statement.test.end_lineno or 0)
                    span = _span(part[0]) if is_within else None
                    yield _branch(statement.test, part[0], span=span)
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(statement, name, None)
            if inner and not isinstance(statement, ast.FunctionDef | ast.ClassDef):
                yield from _branches(inner)


def _branch(
    test: ast.expr,
    first: ast.stmt | ast.expr,
    *,
    span: tuple[Spot, Spot] | None,
    outcome: bool | None = None,
) -> Branch:
    if isinstance(first, ast.If):  # its own parts may be short
        last = first.test.end_lineno
    else:
        last = first.end_lineno
    numbers = [_number(node) for node in ast.walk(test)]
    whole = [n for n in numbers if isinstance(n, int) and 1 < n]
    return Branch(
        frozenset(range(first.lineno, (last or first.lineno) + 1)),
        frozenset(range(test.lineno, (test.end_lineno or 0) + 1)),
        " ".join(ast.unparse(test).split()),
        tuple(dict.fromkeys(sorted(whole, reverse=True))),
        span,
        outcome,
    )


def _may_vary(test: ast.expr) -> bool:
    """Whether a condition may have another value for other inputs, or in later calls."""
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
    """Whether statements return a value, set a number, or call something that may compute one."""
    if isinstance(part[0], ast.Raise | ast.Assert):
        return False
    nodes = [node for statement in part for node in ast.walk(statement)]
    return any(
        (isinstance(node, ast.Return) and node.value is not None)
        or (isinstance(node, ast.Call) and not _is_plain(node))
        or (isinstance(node, ast.Assign) and _number(node.value) and not _is_of_tuning(node))
        for node in nodes
    )


def _is_plain(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return ".shape" in ast.unparse(node)
    return getattr(node.func, "attr", getattr(node.func, "id", "")) in _PLAIN
