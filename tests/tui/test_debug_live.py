"""The Debug pane over a script in a process of its own, as `tkdebug run` starts it."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager

import pytest

pytest.importorskip("termios", reason="ptys are POSIX")

from patience import LONGEST_WAIT_S
from pilot_support import screen_text, until

from tkdebug.cli.command_line import parse
from tkdebug.cli.runs.live import child_command
from tkdebug.cli.runs.request import run_request
from tkdebug.debugger.remote.records import Wire
from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.debug.link import DebugLink
from tkdebug.tui.debug.source import DebugSource
from tkdebug.tui.live import DebugEnds
from tkdebug.tui.script import child as script_child
from tkdebug.tui.script.child import Child
from tkdebug.tui.session.follow import AwaitedSession

SCRIPT = """\
import torch, triton
import triton.language as tl


@triton.jit
def doubled(x_ptr):
    i = tl.program_id(0)
    x = tl.load(x_ptr + i)
    breakpoint()
    tl.store(x_ptr + i, 2 * x)


x = torch.ones(4, device="cuda")
doubled[(4,)](x)
print("doubled:", x.tolist())
"""


LOOP = """\
import time

while True:
    time.sleep(0.01)
"""


@contextmanager
def started(script, session, *words):
    """The app over a script that runs beside it."""
    ends = DebugEnds.made()
    asked = run_request(parse(["run", "--mode=interpret", *words, str(script)])[1])
    own = ["--temporary", f"--pane-socket={ends.theirs.fileno()}"]
    command = child_command(asked, session, own)
    child = Child(command, rows=24, columns=80, descriptors=(ends.theirs.fileno(),))
    ends.theirs.close()
    app = TkdebugApp(AwaitedSession(session), child, DebugLink(Wire(ends.ours)))
    try:
        yield app, child
    finally:
        child.stop()
        child.close()
        app.close_session()


@pytest.mark.parametrize("key", ["P", "ctrl+c"])
async def test_a_script_that_runs_is_stopped_at_its_next_line_and_quit_ends_it(
    tmp_path, monkeypatch, key
):
    only_step = ((signal.SIGINT, LONGEST_WAIT_S),)
    monkeypatch.setattr(script_child, "STOP_STEPS", only_step)
    script = tmp_path / "script.py"
    script.write_text(LOOP)
    with started(script, tmp_path / "run.tkd", "--wait-for-pane") as (app, child):
        async with app.run_test(size=(100, 30)) as pilot:
            source = app.query_one(DebugSource)
            await until(pilot, lambda: source.lit == {1}, "the first line")
            await pilot.press("c")
            await until(pilot, lambda: "running; P stops it" in screen_text(app), "the loop")
            await pilot.press(key)
            await until(pilot, lambda: source.lit <= {3, 4} and source.lit, "a line of the loop")
            assert "interrupted  the script's own lines" in screen_text(app)
            await pilot.press("n", "q")
            await until(pilot, lambda: "quit and" in screen_text(app), "the question")
            await pilot.press("s")
            await until(pilot, lambda: child.status is not None, "the end")
            assert child.status == 130


async def test_breakpoint_in_a_kernel_opens_the_pane_and_a_script_killed_there_is_reported(
    tmp_path,
):
    script, session = tmp_path / "script.py", tmp_path / "run.tkd"
    script.write_text(SCRIPT)
    with started(script, session) as (app, child):
        async with app.run_test(size=(100, 30)) as pilot:
            source = app.query_one(DebugSource)
            await until(pilot, lambda: source.lit == {9}, "the stop")
            await until(
                pilot,
                lambda: "breakpoint() in the kernel  launch 1 of doubled 4" in screen_text(app),
                "the text",
            )
            await pilot.press("n")
            await until(pilot, lambda: source.lit == {10}, "the next line")
            os.kill(child.pid, signal.SIGKILL)
            killed = "killed by signal 9; below is where it was stopped last"
            await until(pilot, lambda: killed in screen_text(app), "the report")
            await until(
                pilot, lambda: "killed by signal 9 (SIGKILL)" in screen_text(app), "the text"
            )
