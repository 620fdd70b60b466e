"""Operators by their method's name: `x.__lshift__(4)`, `x.logical_or(y)`, as some write them.

Responsible for the names alone; what an operator means is in `tkdebug.compiler.ops.operators`.
"""

from __future__ import annotations

from collections.abc import Callable

from tkdebug.compiler.ops import operators
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin
from tkdebug.compiler.tensor import tensor

_BINARY = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod"),
    *("lshift", "rshift", "and", "or", "xor"),
)
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_UNARY = ("neg", "invert")


def _binary(name: str) -> Callable[..., tensor]:
    def emit_binary(emit: Emitter, self: tensor, other: object) -> tensor:
        return operators.written_binary(emit, name, self, other)

    return emit_binary


def _reflected(name: str) -> Callable[..., tensor]:
    def emit_reflected(emit: Emitter, self: tensor, other: object) -> tensor:
        return operators.written_binary(emit, name, other, self)

    return emit_reflected


def _comparison(name: str) -> Callable[..., tensor]:
    def emit_comparison(emit: Emitter, self: tensor, other: object) -> tensor:
        return operators.compare(emit, name, self, other)

    return emit_comparison


def _unary(name: str) -> Callable[..., tensor]:
    def emit_unary(emit: Emitter, self: tensor) -> tensor:
        return operators.unary(emit, name, self)

    return emit_unary


_EMITTERS = {
    **{f"__{name}__": _binary(name) for name in _BINARY},
    **{f"__r{name}__": _reflected(name) for name in _BINARY},
    **{f"__{name}__": _comparison(name) for name in _COMPARISONS},
    **{f"__{name}__": _unary(name) for name in _UNARY},
    "logical_and": operators.logical_and,
    "logical_or": operators.logical_or,
}
OPERATOR_METHODS = {name: Builtin(name, emit, member=True) for name, emit in _EMITTERS.items()}
