"""Typed text goes to the script only after `i`; every pane says that the script waits."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import tui_sample
from patience import LONGEST_WAIT_S
from pilot_support import notified, printed, screen_text, until
from textual.widgets import TabbedContent

from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.script import child
from tkdebug.tui.session.follow import AwaitedSession

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="ptys are POSIX")
knows_waiting = pytest.mark.skipif(not child.can_be_known(), reason="this system does not tell")
RECORDING = f"""
import pathlib, sys
sys.path.insert(0, {str(Path(tui_sample.__file__).parent)!r})
import tui_sample
path = pathlib.Path(sys.argv[0]).parent / "run.tkd"
"""
HINT = "script waits for input, i to type"


@pytest.fixture
def live(tmp_path, script):
    """The app over a script that is given as text."""
    from tkdebug.tui.script.child import Child

    children = []

    def make(text: str) -> TkdebugApp:
        child = Child(script(text), rows=24, columns=80)
        children.append(child)
        return TkdebugApp(AwaitedSession(tmp_path / "run.tkd"), child)

    yield make
    for each in children:
        each.stop()
        each.close()


def active(app: TkdebugApp) -> str:
    return app.query_one(TabbedContent).active


def focused(app: TkdebugApp) -> str | None:
    return app.focused and app.focused.id


async def test_output_pane_takes_no_keys_from_the_tui(live):
    app = live("print('<', input('go? '), '>')\ninput()")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "go? " in printed(app), "the question")
        await pilot.press("4")
        await until(pilot, lambda: focused(app) == "output-view", "the output")
        await pilot.press("2")
        await until(pilot, lambda: active(app) == "faults", "the other pane")
        await pilot.press("i")
        await until(pilot, lambda: focused(app) == "input", "the input line")
        await pilot.press(*"1i", "enter")
        await until(pilot, lambda: "< 1i >" in printed(app), "the script's answer")
        await pilot.press("escape", "1")
        await until(pilot, lambda: active(app) == "launches", "the launches")
        await pilot.press("4")
        await until(pilot, lambda: focused(app) == "output-view", "the output without its input")


@knows_waiting
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_every_pane_says_that_the_script_waits(live, size):
    app = live("import time\ninput('go? ')\nprint('on', end='', flush=True)\ntime.sleep(1000)")
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: HINT in screen_text(app), "the hint")
        for tab in "2345":
            await pilot.press(tab)
            await pilot.pause()
            assert HINT in screen_text(app)
        await pilot.press("i")
        await until(pilot, lambda: HINT not in screen_text(app), "no hint to who types")
        await until(pilot, lambda: "script waits for input" in screen_text(app), "the text")
        await pilot.press("x", "enter", "escape")
        # The text of an unfinished line is no question.
        await until(pilot, lambda: "running" in screen_text(app), "the script")
        assert "waits for input" not in screen_text(app)


@knows_waiting
@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("input()", True),
        ("import sys; sys.stdin.readline()", True),
        ("import readline; input('> ')", True),
        ("breakpoint()", True),
        ("import time; print('> ', end='', flush=True); time.sleep(1000)", False),
        ("import os; r, w = os.pipe(); os.read(r, 1)", False),
        ("import select, os; r, w = os.pipe(); select.select([r], [], [])", False),
        ("while True: pass", False),
    ],
)
def test_child_waits_for_input_only_where_it_reads_its_terminal(live, text, waits):
    child = live(f"print('up', flush=True)\n{text}")._child
    deadline_s = time.monotonic() + (LONGEST_WAIT_S if waits else 2)
    while time.monotonic() < deadline_s and child.waits_for_input() is False:
        time.sleep(0.05)
    assert child.waits_for_input() is waits


@knows_waiting
def test_process_that_reads_something_else_does_not_wait_for_the_terminal():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        time.sleep(0.3)
        assert not child.waits_for_typing(process.pid, "/dev/pts/0")
        process.stdin.close()
    assert not child.waits_for_typing(process.pid, "/dev/pts/0")


@pytest.mark.parametrize("tab", "12345")
async def test_keys_of_every_pane_fit_into_80_columns_while_a_script_runs(live, tmp_path, tab):
    app = live(f"{RECORDING}tui_sample.write_run(path, during=lambda file: input())")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app._snapshot is not None, "the session")
        await until(pilot, lambda: app._snapshot.faults, "the fault")
        await pilot.press(tab)
        await pilot.pause()
        footer = screen_text(app).splitlines()[-1]
        assert "^c Stop" in footer
        assert footer.endswith("q Quit")


async def test_who_types_is_reported_how_to_leave(live):
    app = live("input()")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("4")
        await pilot.pause()
        assert "esc Leave input" not in screen_text(app)
        await pilot.press("i", "x")
        await until(pilot, lambda: "esc Leave input" in screen_text(app), "the key")


async def test_i_over_a_recorded_run_says_that_nothing_can_be_typed(session):
    app = TkdebugApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app._snapshot is not None, "the session")
        await pilot.press("i")
        assert notified(app) == ["there is no script to type to"]
        assert active(app) == "launches"


async def test_output_that_was_not_looked_at_is_marked(live, tmp_path):
    app = live("print('one', flush=True)\ninput()\nprint('two', flush=True)\ninput()\n")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "4 Output •" in screen_text(app), "the mark")
        await pilot.press("4")
        await until(pilot, lambda: "4 Output •" not in screen_text(app), "no mark: it is seen")
        await pilot.press("i", "x", "enter", "escape")
        await until(pilot, lambda: "two" in printed(app), "more output")
        assert "4 Output •" not in screen_text(app)  # it came while one looked
        await pilot.press("1")
        await until(pilot, lambda: active(app) == "launches", "the launches")
        assert "4 Output •" not in screen_text(app)
        app._child.write(b"y\n")
        await until(pilot, lambda: "4 Output •" in screen_text(app), "the mark again")
