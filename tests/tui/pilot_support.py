"""Helpers that wait for, and look at, the app while a pilot drives it."""

from __future__ import annotations

import re
import time
from pathlib import Path

from patience import LONGEST_WAIT_S
from textual import events

from tkdebug.debugger.goals import Quit, Step
from tkdebug.instrument.session import Session
from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.output import OutputPane
from tkdebug.tui.tabs import PaneTabs

_DOCS = Path(__file__).parents[2] / "docs"
MOST_KEYS = 6


def documented_keys(question: str) -> list[str]:
    """The keys by which docs/tui.md answers a question from the end of a run."""
    rows = (_DOCS / "tui.md").read_text().splitlines()
    (row,) = (row for row in rows if row.startswith(f"| {question} |"))
    return re.findall(r"`([^`]+)`", row.split("|")[2])


async def until(pilot, condition, what: str) -> None:
    ends_s = time.monotonic() + LONGEST_WAIT_S
    while time.monotonic() < ends_s:
        if condition():
            return
        await pilot.pause(0.05)
    raise AssertionError(f"waited in vain for {what}:\n{screen_text(pilot.app)}")


def type_at_once(app: TkdebugApp, *keys: str) -> None:
    """Keys that all come before the app has done anything about the first, as from a paste."""
    names = {":": "colon", "/": "slash", " ": "space"}
    for key in keys:
        name = names.get(key, key)
        app.post_message(events.Key(name, key if len(key) == 1 else None))


def screen_text(app: TkdebugApp) -> str:
    width = app.size.width
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text[:width].rstrip() for strip in strips)


def notified(app: TkdebugApp) -> list[str]:
    return [notification.message for notification in app._notifications]


async def loaded(pilot) -> None:
    """Wait until the session is read, and the pane in sight drawn and in focus."""
    app = pilot.app
    await until(pilot, lambda: app._snapshot is not None and app.focused is not None, "the session")
    await pilot.pause()


def printed(app: TkdebugApp) -> str:
    """The script's output, as the output pane has it."""
    return app.query_one(PaneTabs).get(OutputPane).copied_text()


def begun(front):
    """Have a debugger's commands run before anything else does; whether something is to run."""
    front.console.attach(front.debugger)
    with front._lock:
        front._waits = True
    resume = front._asked_resume(lambda: None)
    if isinstance(resume, Step):
        front.debugger.stop_at_next_launch()
    front._goes_on()
    return not isinstance(resume, Quit)


async def walk(path: Path, question: str, answer: tuple[str, ...]) -> None:
    """Press the documented keys, and find the answer on the screen."""
    keys = documented_keys(question)
    assert len(keys) <= MOST_KEYS
    with Session.open(path) as session:
        app = TkdebugApp(session, opens="home")
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: "Next" in screen_text(app), "the model")
            await pilot.press(*keys)
            for text in answer:
                await until(pilot, lambda text=text: text in screen_text(app), text)
