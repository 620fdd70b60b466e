"""The program itself: its ids, special registers, inline assembly, prints and assertions."""

from __future__ import annotations

from tkdebug.compiler.dialects import nvvm, tt
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.rules.types import Rules, nothing, one, unchanged
from tkdebug.interpreter.tile_ops import assertions, elementwise
from tkdebug.interpreter.tiles.values import TileValue
from tkdebug.interpreter.watching.prints import device_print


def program_id(run: Evaluator, view: tt.GetProgramId) -> TileValue:
    """tt.get_program_id."""
    return run.program_id(view.axis)


def num_programs(run: Evaluator, view: tt.GetNumPrograms) -> TileValue:
    """tt.get_num_programs."""
    return run.num_programs(view.axis)


def visit(run: Evaluator, view: tt.Visit) -> TileValue:
    """tt.visit."""
    return run.visit(view.watch)


RULES: Rules = {
    tt.GetProgramId: one(program_id),
    tt.GetNumPrograms: one(num_programs),
    tt.ElementwiseInlineAsm: elementwise.inline_asm,
    nvvm.MultiprocessorId: one(elementwise.multiprocessor_id),
    nvvm.GlobalTimer: one(elementwise.global_timer),
    nvvm.GridDependencyControl: nothing,
    tt.Barrier: nothing,
    tt.Assert: assertions.device_assert,
    tt.Print: device_print,
    # What they assume is looked at by `checks.assumptions`.
    tt.Assume: nothing,
    tt.Hint: unchanged,
    # Watches are observers (`watching.launch_watcher`).
    tt.Watch: nothing,
    tt.Visit: one(visit),
}
