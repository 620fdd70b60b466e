"""Assertions of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.tiles.values import TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator


def device_assert(
    run: Evaluator, view: tt.Assert, condition: TileValue, mask: TileValue = 1
) -> Sequence[TileValue]:
    """tt.assert: a fault where the condition is false."""
    if isinstance(condition, int) and condition:
        return ()
    shape = ir.shape_of(view.condition.type)
    bad = ~run.dense(condition, view.condition.type)
    if not isinstance(mask, int):
        bad = bad & run.dense(mask, ir.tile(shape, ir.I1))
    elif not mask:
        return ()
    bad = bad.expand(run.programs, *shape)
    if run.active is not None:
        bad = bad & run.active.reshape(-1, *(1,) * len(shape))
    if bool(bad.any()):
        run.faults.assertion(view.op, run.offender(bad, None, None), int(bad.sum()))
    return ()
