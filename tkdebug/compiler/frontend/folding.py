"""Operators on compile-time constants: Python's own rules, with its errors as ours."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tkdebug.compiler.describe import describe
from tkdebug.compiler.frontend.arguments import unwrap_deep
from tkdebug.compiler.frontend.limits import check_binary
from tkdebug.compiler.ops import operators
from tkdebug.compiler.ops.spec import SemanticError

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
        SemanticError: the function raised; the message says on what, or is the function's own.
    """
    try:
        return unwrap_deep(function(*operands))
    except SemanticError:
        raise
    except Exception as error:
        shown = " and ".join(describe(operand) for operand in operands)
        raise SemanticError(f"{what} on {shown} failed: {type(error).__name__}: {error}") from None


def fold_binary(name: str, left: Any, right: Any) -> Any:
    """A binary operator on constants or tuples.

    Raises:
        SemanticError: it failed, or its result would be too large.
    """
    check_binary(name, SYMBOLS[name], left, right)
    return fold(BINARY[name], f"`{SYMBOLS[name]}`", left, right)


def identical(left: Any, right: Any) -> bool:
    """`left is right` for constants: small values and types count by value."""
    if left is right:
        return True
    return type(left) is type(right) and not isinstance(left, tuple) and bool(left == right)
