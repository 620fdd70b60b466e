"""What a rule is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tkdebug.compiler.ir import Operation
from tkdebug.interpreter.values import TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator

# (evaluator, op, value of each operand) -> a value for each result; a terminator gives its
# operands. Operands that are missing at the end have the rule's defaults.
Rule = Callable[..., Sequence[TileValue]]


def one(rule: Callable[..., TileValue]) -> Rule:
    """The rule of an op with one result, from a function that gives its value."""

    def run(ev: Evaluator, op: Operation, *operands: TileValue) -> Sequence[TileValue]:
        return (rule(ev, op, *operands),)

    return run


def nothing(ev: Evaluator, op: Operation, *operands: TileValue) -> Sequence[TileValue]:
    """The rule of an op that only matters on a GPU, and has no results."""
    return ()


def unchanged(ev: Evaluator, op: Operation, *operands: TileValue) -> Sequence[TileValue]:
    """The rule of an op that gives its operands: a terminator, a hint, a layout conversion."""
    return operands
