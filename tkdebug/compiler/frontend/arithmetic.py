"""Operators: arithmetic, logic, comparisons, membership; on run-time values and on constants.

Two constants fold by Python's rules, with its errors as ours; anything with a run-time value goes
to the operator rules of the language (`tkdebug.compiler.ops.operators`).
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from tkdebug.compiler.aggregates import method_of
from tkdebug.compiler.describe import describe
from tkdebug.compiler.frontend.arguments import unwrap_deep
from tkdebug.compiler.frontend.inline import inline
from tkdebug.compiler.frontend.limits import bounded, check_binary
from tkdebug.compiler.frontend.values import has_runtime, is_number, known_constant
from tkdebug.compiler.frontend.visitor import ExpressionHandler, Visitor
from tkdebug.compiler.ops import operators
from tkdebug.compiler.ops.spec import SemanticError
from tkdebug.compiler.tensor import is_runtime, tensor

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
    "pow": operator.pow,
    "matmul": operator.matmul,
}
SYMBOLS = {
    **operators.SYMBOLS,
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
}
UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg,
    "pos": operator.pos,
    "invert": operator.invert,
}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}


def fold(function: Callable[..., Any], what: str, *operands: Any) -> Any:
    """Apply a Python function to constants.

    Raises:
        SemanticError: the function raised; the message names the operands, or is the function's.
    """
    try:
        return unwrap_deep(function(*operands))
    except SemanticError:
        raise
    except Exception as error:
        shown = " and ".join(describe(operand) for operand in operands)
        raise SemanticError(f"{what} on {shown} failed: {type(error).__name__}: {error}") from None


def fold_binary(name: str, left: Any, right: Any) -> Any:
    """The result of a binary operator on constants or tuples.

    Raises:
        SemanticError: it failed, or its result would be too large.
    """
    check_binary(name, SYMBOLS[name], left, right)
    return fold(BINARY[name], f"`{SYMBOLS[name]}`", left, right)


def identical(left: Any, right: Any) -> bool:
    """Whether `left is right` for constants: equal ones of one type count, except for tuples."""
    if left is right:
        return True
    return type(left) is type(right) and not isinstance(left, tuple) and bool(left == right)


BINARY_NAMES: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.MatMult: "matmul",
}
_UNARY: dict[type[ast.unaryop], str] = {ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "invert"}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}


def _visit_binary(v: Visitor, node: ast.BinOp) -> Any:
    left, right = v.expression(node.left), v.expression(node.right)
    return apply_binary(v, BINARY_NAMES[type(node.op)], left, right)


def apply_binary(v: Visitor, name: str, left: Any, right: Any) -> Any:
    """The result of the binary operator `name` on any two values."""
    if isinstance(left, tuple) or isinstance(right, tuple):
        found = _operator_method(v, f"__{name}__", left, right)
        if found is None:
            found = _operator_method(v, f"__r{name}__", right, left)
        return _tuple_binary(name, left, right) if found is None else found[0]
    if not is_runtime(left) and not is_runtime(right):
        return fold_binary(name, left, right)
    _require_operands(SYMBOLS[name], left, right)
    return operators.written_binary(v.emit, name, left, right)


def _operator_method(v: Visitor, method: str, owner: Any, other: Any) -> tuple[Any] | None:
    """The result of an aggregate's method for an operator, in a tuple; None if it has none."""
    function = method_of(owner, method)
    if function is None:
        return None
    return (inline(v.program, v.builder.location, function, (owner, other), {}),)


def _tuple_binary(name: str, left: Any, right: Any) -> Any:
    if name == "mul":
        left, right = known_constant(left), known_constant(right)
    joins = name == "add" and isinstance(left, tuple) and isinstance(right, tuple)
    repeats = name == "mul" and (isinstance(left, int) or isinstance(right, int))
    if joins or repeats:
        return fold_binary(name, left, right)
    raise SemanticError(
        f"`{SYMBOLS[name]}` on {describe(left)} and {describe(right)}: tuples can only be "
        "joined with `+` and repeated with `*` and a constant"
    )


def _require_operands(symbol: str, *values: Any) -> None:
    for value in values:
        if not isinstance(value, tensor) and not is_number(value):
            other = next(item for item in values if item is not value or len(values) == 1)
            raise SemanticError(
                f"`{symbol}` needs tensors or numbers, got {describe(value)} beside "
                f"{describe(other)}"
            )


def _visit_unary(v: Visitor, node: ast.UnaryOp) -> Any:
    value = v.expression(node.operand)
    if isinstance(node.op, ast.Not):
        return logical_not(v, value)
    name = _UNARY[type(node.op)]
    if not is_runtime(value):
        return fold(UNARY[name], f"unary `{name}`", value)
    _require_operands(f"unary {name}", value)
    return operators.unary(v.emit, name, value)


def logical_not(v: Visitor, value: Any) -> Any:
    """`not value`."""
    if isinstance(value, tensor):
        return operators.logical_not(v.emit, value)
    return not is_true(value)


def is_true(value: Any) -> bool:
    """Whether a compile-time value is true; a run-time value is a SemanticError."""
    if is_runtime(value):
        raise SemanticError(f"{describe(value)} has no truth value")
    return fold(bool, "truth test", value) if not isinstance(value, tuple) else bool(value)


def _visit_bool(v: Visitor, node: ast.BoolOp) -> Any:
    """Evaluate `and` or `or`: constants decide or drop out; run-time operands are all evaluated."""
    is_and = isinstance(node.op, ast.And)
    combine = operators.logical_and if is_and else operators.logical_or
    run_time: list[Any] = []
    value: Any = None
    for operand in node.values:
        value = v.expression(operand)
        if isinstance(value, tensor):
            run_time.append(value)
        elif is_true(value) is not is_and:
            return value
    if not run_time:
        return value
    result = run_time[0]
    for right in run_time[1:]:
        result = combine(v.emit, result, right)
    return result


def _refuse_loose_bit_operators(v: Visitor, node: ast.Compare) -> None:
    """Refuse `a < n & b < m`, which Python reads as the chain `a < (n & b) < m`."""
    for middle in node.comparators[:-1]:
        if isinstance(middle, ast.BinOp) and isinstance(middle.op, ast.BitAnd | ast.BitOr):
            symbol = "&" if isinstance(middle.op, ast.BitAnd) else "|"
            raise v.error(
                middle,
                f"`{symbol}` binds tighter than a comparison: this compares with "
                f"`{ast.unparse(middle)}`; put each comparison in parentheses, "
                f"(a < n) {symbol} (b < m)",
            )


def _visit_compare(v: Visitor, node: ast.Compare) -> Any:
    _refuse_loose_bit_operators(v, node)
    left = v.expression(node.left)
    result: Any = None
    for index, (op, comparator) in enumerate(zip(node.ops, node.comparators, strict=True)):
        right = v.expression(comparator)
        step = _compare(v, op, left, right)
        if index == 0:
            result = step
        elif isinstance(result, tensor) and isinstance(step, tensor):
            result = operators.logical_and(v.emit, result, step)
        elif isinstance(result, tensor):
            result = result if step else False
        # A constant True so far leaves the decision to `step`.
        else:
            result = step
        if result is False:
            return False
        left = right
    return result


def _compare(v: Visitor, op: ast.cmpop, left: Any, right: Any) -> Any:
    match op:
        case ast.Is():
            return identical(left, right)
        case ast.IsNot():
            return not identical(left, right)
        case ast.In():
            return _contains(v, right, left)
        case ast.NotIn():
            return logical_not(v, _contains(v, right, left))
    name = _COMPARE[type(op)]
    found = _operator_method(v, f"__{name}__", left, right)
    if found is not None:
        return found[0]
    if isinstance(left, tuple) and isinstance(right, tuple) and has_runtime((left, right)):
        return _compare_tuples(v, name, left, right)
    if not has_runtime(left) and not has_runtime(right):
        result = fold(COMPARE[name], f"`{SYMBOLS[name]}`", left, right)
        return bool(result) if isinstance(result, int) else result
    if name in ("eq", "ne") and (left is None or right is None):
        return name == "ne"
    _require_operands(SYMBOLS[name], left, right)
    return operators.compare(v.emit, name, left, right)


def _compare_tuples(v: Visitor, name: str, left: tuple[Any, ...], right: tuple[Any, ...]) -> Any:
    if name not in ("eq", "ne"):
        raise SemanticError("tuples of run-time values can only be compared with == and !=")
    if len(left) != len(right):
        return name == "ne"
    result: Any = True
    for a, b in zip(left, right, strict=True):
        same = _compare(v, ast.Eq(), a, b)
        if same is False:
            result = False
            break
        if isinstance(same, tensor):
            result = same if result is True else operators.logical_and(v.emit, result, same)
    return result if name == "eq" else logical_not(v, result)


def _contains(v: Visitor, container: Any, item: Any) -> Any:
    if is_runtime(container) or (has_runtime(item) and not isinstance(container, tuple | range)):
        raise SemanticError(f"`in` needs a tuple, or two constants, got {describe(container)}")
    if not has_runtime(container) and not has_runtime(item):
        return fold(lambda a, b: b in a, "`in`", container, item)
    found: Any = False
    for candidate in bounded(container, "`in`"):
        same = _compare(v, ast.Eq(), item, candidate)
        if same is True:
            return True
        if isinstance(same, tensor):
            found = same if found is False else operators.logical_or(v.emit, found, same)
    return found


OPERATORS: dict[type[ast.expr], ExpressionHandler] = {
    ast.BinOp: _visit_binary,
    ast.UnaryOp: _visit_unary,
    ast.BoolOp: _visit_bool,
    ast.Compare: _visit_compare,
}
