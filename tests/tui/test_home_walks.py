"""From the end of a run to an answer: the keys that docs/tui.md names, over recorded runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tui_sample
from pilot_support import screen_text, until, walk
from test_advice_pane import record_advice

from tkdebug.cli import main
from tkdebug.instrument.session import Session
from tkdebug.records.events import Cause, SourceEdit
from tkdebug.records.hook_chain import HOOKS
from tkdebug.tui.app import TkdebugApp

_HEAD = """\
import torch
import triton
import triton.language as tl


@triton.jit
def root(x):
    return tl.sqrt(x)


@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    in_bounds = offs < n
"""
_TAIL = """

x, y = torch.arange(100.0, device="cuda"), torch.ones(100, device="cuda")
out = torch.empty_like(x)
kernel[(2,)](x, y, out, 100, BLOCK=64)
"""
# The lines of a kernel, and the answer as the screen has it.
RUNS = {
    "what is out of bounds": (
        """\
    x = tl.load(x_ptr + offs)
    tl.store(out_ptr + offs, x, mask=in_bounds)
""",
        ("^ x_ptr[100] is outside of 100 elements", "tensor", "tile", "grid"),
    ),
    "where a NaN comes from": (
        """\
    x = tl.load(x_ptr + offs, mask=in_bounds)
    tl.store(out_ptr + offs, root(x - 3.0), mask=in_bounds)
""",
        ("a NaN is made here, of sqrt(-3)", "▌✖", "return tl.sqrt(x)", ":8 ← "),
    ),
}


@pytest.mark.parametrize("question", RUNS)
async def test_a_few_keys_lead_to_the_answer(question, tmp_path):
    body, answer = RUNS[question]
    script, path = tmp_path / "script.py", tmp_path / "run.tkd"
    script.write_text(_HEAD + body + _TAIL)
    main(["run", "--no-tui", "--mode", "interpret", "-o", str(path), str(script)])
    await walk(path, question, answer)


async def test_a_few_keys_lead_to_why_a_number_is_wrong(tmp_path):
    def wrong(file):
        edit = SourceEdit(str(file), 18, ("tl.store(p, x - y)",), ("tl.store(p, x + y)",))
        cause = Cause("fixes", (edit,), got="-1", expected="1", picture=("##..",))
        frames = tui_sample.frames(file, 18)
        HOOKS.fault(replace(tui_sample.fault(file), kind="mismatch", frames=frames, cause=cause))

    path = tui_sample.write_run(tmp_path / "run.tkd", faults=False, during=wrong)
    answer = "^ an edit fixes it: tl.store(p, x + y)", "got -1, expected 1", "+ tl.store(p, x + y)"
    await walk(path, "why a number is wrong", answer)


async def test_a_few_keys_lead_to_what_makes_a_kernel_slow(tmp_path):
    def advised(file):
        record_advice(file, (18, "uncoalesced", "lanes are 64 bytes apart", 60.0))

    path = tui_sample.write_run(tmp_path / "run.tkd", faults=False, during=advised)
    answer = "◆ uncoalesced", "lanes are 64 bytes apart", "1.67"
    await walk(path, "what makes a kernel slow", answer)


async def test_a_fault_in_the_way_of_advice_is_first(tmp_path):
    def advised(file):
        record_advice(file, (18, "uncoalesced", "lanes are 64 bytes apart", 60.0))

    path = tui_sample.write_run(tmp_path / "run.tkd", during=advised)
    with Session.open(path) as session:
        app = TkdebugApp(session, opens="home")
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: "✖ oob-load" in screen_text(app), "the fault")
            await pilot.press("n")
            await until(pilot, lambda: "◆ uncoalesced" in screen_text(app), "the advice")
            await pilot.press("escape")
            await until(pilot, lambda: "✖ oob-load" in screen_text(app), "the fault again")
            await pilot.press("tilde")
            await until(pilot, lambda: "◆ uncoalesced" in screen_text(app), "the advice again")
