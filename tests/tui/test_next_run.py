"""The script runs again: by `r`, on each save, so that an empty tab has something to show."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import tui_sample
from pilot_support import loaded, notified, screen_text, until

from tkdebug.instrument.session import Session
from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.next_run import Again

_ENDED = """\
import sys; sys.path.insert(0, {tests!r})
from pathlib import Path
import tui_sample
tui_sample.write_run(Path(sys.argv[0]).parent / "run.tkd", faults=False)
"""


async def test_r_over_a_recorded_run_asks_and_says_the_command(tmp_path: Path, monkeypatch):
    path = tui_sample.write_run(tmp_path / "run.tkd", faults=False)
    monkeypatch.chdir(tmp_path)
    with Session.open(path) as session:
        app = TkdebugApp(session, opens="home")
        async with app.run_test(size=(100, 30)) as pilot:
            await loaded(pilot)
            await pilot.press("r")
            assert notified(app) == ["train.py is not here; r runs it where it is"]
            (tmp_path / "train.py").write_text("")
            await pilot.press("r")
            await until(pilot, lambda: "tkdebug run train.py --fast" in screen_text(app), "it")
            await pilot.press("escape", "7", "enter")
            said = "tkdebug run --advise train.py --fast"
            await until(pilot, lambda: said in screen_text(app), "the option that fills it")
            await pilot.press("enter")
            await until(pilot, lambda: not app.is_running, "the app's end")
        assert app.again == Again(("--advise",))


async def test_enter_watches_what_the_line_at_home_assigns(tmp_path: Path, monkeypatch):
    path = tui_sample.write_run(tmp_path / "run.tkd")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    with Session.open(path) as session:
        app = TkdebugApp(session, opens="home")
        async with app.run_test(size=(160, 30)) as pilot:
            await until(pilot, lambda: "▌✖" in screen_text(app), "the fault")
            await pilot.press("8", "enter")
            assert "go to a line that assigns" in notified(app)[0]
            await pilot.press("0", "k", "8", "enter")
            await until(pilot, lambda: "--watch kernels.py:16:x train.py" in screen_text(app), "it")
            await pilot.press("escape")
        assert app.again is None


@pytest.mark.skipif(sys.platform == "win32", reason="ptys are POSIX")
async def test_a_save_runs_the_script_again_once_r_was_asked_for_it(tmp_path: Path, script):
    from tkdebug.tui.script.child import Child
    from tkdebug.tui.session.follow import AwaitedSession

    command = script(_ENDED.format(tests=str(Path(__file__).parent)))
    child = Child(command, rows=24, columns=80)
    app = TkdebugApp(AwaitedSession(tmp_path / "run.tkd"), child)
    try:
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: app._snapshot and not app._script.going_on, "the end")
            await pilot.press("R")
            await until(pilot, lambda: "↻ on save" in screen_text(app), "that it is watched")
            os.utime(tmp_path / "kernels.py", ns=(1, 2**62))
            await until(pilot, lambda: not app.is_running, "the app's end")
    finally:
        child.stop()
        child.close()
        app.close_session()
    assert app.again == Again((), (str(tmp_path / "kernels.py"),))
