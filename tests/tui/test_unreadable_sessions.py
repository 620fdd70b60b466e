"""Sessions that go bad while they are shown, terminals that lack something: a sentence says so."""

from __future__ import annotations

import io
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from pilot_support import loaded, screen_text, until

from tkdebug.errors import SessionError
from tkdebug.instrument.session import Session
from tkdebug.terminal.display import has_terminal
from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.feed import Feed


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def make_newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 1000")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (cut, "truncated session"),
        (make_newer, "open it with a newer tkdebug"),
        (lambda path: path.write_text("no session"), "is not a tkdebug session"),
    ],
)
async def test_session_harmed_while_shown_is_said_where_its_records_would_be(
    run_path, session, harm, said
):
    app = TkdebugApp(session, opens="home")
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: "Next" in screen_text(app), "the model")
        harm(run_path)
        for key in "13":
            await pilot.press(key)
            sentence = f"the recording cannot be read: {run_path.name}: "
            await until(pilot, lambda text=sentence: text in screen_text(app), f"{key} to say so")
            assert "no kernel" not in screen_text(app)
        text = screen_text(app)
        assert said in text
        assert "✖ cannot be read: run.tkd" in text.split("\n")[0]


async def test_session_deleted_while_shown_is_shown_on(run_path, session):
    app = TkdebugApp(session, opens="home")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "Next" in screen_text(app), "the model")
        run_path.unlink()
        await pilot.press("3")
        await until(pilot, lambda: "tt.get_program_id" in screen_text(app), "the stage")
        await pilot.press("1")
        await until(pilot, lambda: "98432" in screen_text(app), "a launch's arguments")


def test_session_that_can_be_read_again_is_posted_again(session, monkeypatch):
    posted: list[str] = []
    feed = Feed(session, None, None, lambda message: posted.append(type(message).__name__))
    steps = iter(("read", "fail", "read", "read"))
    run = Session.run

    def waited(_interval_s: float) -> bool:
        step = next(steps, "stop")

        def failing(_session: Session) -> None:
            raise SessionError("a disk that is away")

        monkeypatch.setattr(Session, "run", failing if step == "fail" else run)
        return step == "stop"

    monkeypatch.setattr(feed, "_waited", waited)
    feed.follow()
    shown = [name for name in posted if name != "OutputChanged"]
    assert shown == ["SnapshotTaken", "SessionFailed", "SnapshotTaken"]


async def test_values_of_no_session_are_said_in_every_pane(run_path):
    with closing(sqlite3.connect(run_path)) as connection:
        connection.execute("UPDATE faults SET frames = 'what'")
        connection.commit()
    with Session.open(run_path) as session:
        app = TkdebugApp(session, opens="home")
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: app._failure, "the failure")
            for key in "012345":
                await pilot.press(key)
                assert "the recording cannot be read: run.tkd" in screen_text(app), key


async def test_colours_are_not_needed(session, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    app = TkdebugApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        strips = app.screen._compositor.render_strips()
        assert "✓ ok" in screen_text(app)
        colours = {seg.style.color for strip in strips for seg in strip if seg.style}
        assert all(one is None or len(set(one.triplet or (0,))) == 1 for one in colours)


@pytest.mark.parametrize(("encoding", "shows"), [("utf-8", True), ("ISO-8859-1", False)])
def test_tui_needs_utf8(monkeypatch, encoding, shows):
    monkeypatch.setenv("TERM", "xterm")
    for name in ("stdin", "stdout", "stderr"):
        stream = io.TextIOWrapper(io.BytesIO(), encoding)
        monkeypatch.setattr(stream, "isatty", lambda: True)
        monkeypatch.setattr(sys, name, stream)
    assert has_terminal() == shows
