"""The program itself: its ids, special registers, inline assembly, prints and assertions."""

from __future__ import annotations

from tkdebug.compiler.ir import Operation
from tkdebug.interpreter import elementwise
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.rules.types import Rule, nothing, one, unchanged
from tkdebug.interpreter.values import TileValue


def _axis(op: Operation) -> int:
    axis = op.attributes["axis"]
    assert isinstance(axis, int)
    return axis


def program_id(ev: Evaluator, op: Operation) -> TileValue:
    """tt.get_program_id."""
    return ev.program_id(_axis(op))


def num_programs(ev: Evaluator, op: Operation) -> TileValue:
    """tt.get_num_programs."""
    return ev.num_programs(_axis(op))


RULES: dict[str, Rule] = {
    "tt.get_program_id": one(program_id),
    "tt.get_num_programs": one(num_programs),
    "tt.elementwise_inline_asm": elementwise.inline_asm,
    "nvvm.read.ptx.sreg.smid": one(elementwise.multiprocessor_id),
    "nvvm.read.ptx.sreg.globaltimer": one(elementwise.global_timer),
    "nvvm.griddepcontrol": nothing,
    "tt.barrier": nothing,
    "tt.assert": Evaluator.device_assert,
    "tt.print": Evaluator.device_print,
    # What they promise is looked at by `checks.assumptions`.
    "tt.assume": nothing,
    "tt.hint": unchanged,
}
