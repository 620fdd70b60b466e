"""Faults of launches that have not ended: among the others, until these say more."""

import tui_sample
from pilot_support import loaded, screen_text, until

from tkdebug.errors import Frame
from tkdebug.instrument.report import render
from tkdebug.instrument.session import Session
from tkdebug.instrument.session_file.queued_events import SeenFault, SeenFaults
from tkdebug.instrument.session_file.store import SessionStore
from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.session.follow import Follower
from tkdebug.tui.widgets.table import Table


def running(path, *faults):
    """Have the session at `path` say that launches have found these so far."""
    store = SessionStore(path)
    store.write([SeenFaults(faults)])
    store.close()


def seen(path, line, program=None, bad=1):
    frame = Frame(str(path.parent / "kernels.py"), line, "softmax")
    return SeenFault(5, line, "softmax", "oob-atomic", (frame,), "x", "open", program, bad)


async def test_faults_pane_has_them_while_the_launch_runs(tmp_path):
    path = tui_sample.write_run(tmp_path / "run.tkd")
    running(path, seen(path, 9, program=2, bad=7))
    with Session.open(path) as session:
        app = TkdebugApp(session)
        async with app.run_test(size=(120, 40)) as pilot:
            await loaded(pilot)
            await pilot.press("2")
            await until(pilot, lambda: app.query_one("#fault-table", Table).has_focus, "the list")
            await until(pilot, lambda: "oob-atomic" in screen_text(app), "the fault")
            await pilot.press("down")
            await until(pilot, lambda: "7 or more so far" in screen_text(app), "the fault's text")
            text = screen_text(app)
            assert "found while its launch runs" in text
            running(path)
            await until(pilot, lambda: "oob-atomic" not in screen_text(app), "its end")


def test_follower_adds_them_once(tmp_path):
    path = tui_sample.write_run(tmp_path / "run.tkd")
    running(path, seen(path, 9), seen(path, 9)._replace(launch_id=6), seen(path, 10))
    with Session.open(path) as session:
        follower = Follower(session)
        first = follower.poll()
        assert first.faults is follower.poll().faults
        assert [(one.fault.line, one.count, one.launches) for one in first.faults[1:]] == [
            (9, 2, 2),
            (10, 1, 1),
        ]
        running(path)
        assert follower.poll().faults == first.faults[:1]


def test_report_of_a_killed_run_has_them(tmp_path):
    path = tui_sample.write_run(tmp_path / "run.tkd")
    running(path, seen(path, 9))
    with Session.open(path) as session:
        text = "".join(render(session, "text"))
    assert "found while its launch runs; which elements is known when it has ended" in text
