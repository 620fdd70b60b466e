"""What a rule is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tkdebug.compiler.ir.op_view import OpView
from tkdebug.interpreter.tiles.values import TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator

# (evaluator, view of the op, value of each operand) -> a value for each result; a terminator gives
# its operands. Operands that are missing at the end have the rule's defaults. The plan makes the
# view, once per op.
Rule = Callable[..., Sequence[TileValue]]
# What a family of ops runs by.
Rules = dict[type[OpView], Rule]


def one(rule: Callable[..., TileValue]) -> Rule:
    """The rule of an op with one result, from a function that gives its value."""

    def apply(run: Evaluator, view: OpView, *operands: TileValue) -> Sequence[TileValue]:
        return (rule(run, view, *operands),)

    return apply


def nothing(run: Evaluator, view: OpView, *operands: TileValue) -> Sequence[TileValue]:
    """The rule of an op that only matters on a GPU, and has no results."""
    return ()


def unchanged(run: Evaluator, view: OpView, *operands: TileValue) -> Sequence[TileValue]:
    """The rule of an op that gives its operands: a terminator, a hint, a layout conversion."""
    return operands
