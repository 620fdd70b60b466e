"""Every pane and its keys at three sizes, over an ordinary, an empty, a killed, and large runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
import tui_sample
from pilot_support import screen_text, type_at_once, until
from rich.cells import cell_len

from tkdebug.instrument.session import Session
from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.panes import PANES
from tkdebug.tui.tabs import PaneTabs

SIZES = ((120, 35), (200, 50), (80, 24))
LAUNCHES, FAULTS = 1_000_000, 10_000
# Those of the app that leave nothing changed, and leave what they open.
KEYS = ("question_mark", "escape", "r", "escape", "y")
ENDING = {"ctrl+q", "q"}
# By the kind of run, what some pane says.
SAID = {
    "ordinary": ("5 launches", "1 fault"),
    "launches": (
        "the latest 20,000 of 1,000,000; the table above counts all",
        "reading 1,000,000 launches…",
    ),
    "faults": ("10,000 faults", "✖10,000"),
    "empty": ("0 launches", "no kernel was launched"),
    "killed": ("no end recorded", "unfinished"),
}


def columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def add_launches(path: Path) -> None:
    """Have the one launch of a session there a million times; written as rows."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("DROP INDEX launches_by_revision")
        own = {"seq": "i", "revision": "i", "id": "i", "start_ns": "start_ns + i * 2000000"}
        own |= {"arguments": "'[]'", "duration_ns": "1000000 + i"}
        names = columns(connection, "launches")
        connection.execute(
            f"WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < {LAUNCHES}) "
            f"INSERT INTO launches SELECT {', '.join(own.get(one, one) for one in names)} "
            "FROM n, (SELECT * FROM launches)"
        )
        connection.execute("CREATE INDEX launches_by_revision ON launches (revision)")
        connection.execute("UPDATE clock SET revision = ?", (LAUNCHES,))
        connection.execute("UPDATE totals SET launches = ?, finished = ?", (LAUNCHES, LAUNCHES))
        connection.commit()


def add_faults(path: Path) -> None:
    """Have the one fault of a session there 10,000 times, each of another tensor."""
    with closing(sqlite3.connect(path)) as connection:
        names = columns(connection, "faults")
        ours = ", ".join({"seq": "i", "tensor": "'t' || i"}.get(one, f'"{one}"') for one in names)
        connection.execute(
            f"WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < {FAULTS}) "
            f"INSERT INTO faults SELECT {ours} FROM n, (SELECT * FROM faults)"
        )
        connection.commit()


def kill(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE run SET end_ns = NULL, exit_status = NULL, host = ''")
        connection.commit()


def write_session(kind: str, path: Path) -> None:
    tui_sample.write_run(
        path,
        launches={"empty": 0, "launches": 1, "faults": 1}.get(kind, 5),
        faults=kind in ("ordinary", "faults"),
        during=lambda file: tui_sample.launch(9, None) if kind == "killed" else None,
    )
    {"launches": add_launches, "faults": add_faults, "killed": kill}.get(kind, lambda path: None)(
        path
    )


def keys_of(app: TkdebugApp, *, leads: bool) -> list[str]:
    """The keys of the pane in sight and of its widget in focus; those that go elsewhere last."""
    pane = app.query_one(PaneTabs).pane
    bindings = [*pane._bindings, *app.focused._bindings]
    keys = dict.fromkeys(binding[1].key for binding in bindings)
    typing = [key for key in keys if key in ("slash", "colon")]
    leading = [key for key in keys if key in ("enter", "l", "x")] if leads else []
    others = {*typing, *ENDING, "tab", "shift+tab", "enter", "escape", "l", "x"}
    rest = [key for key in keys if key not in others]
    return [*rest, *(one for key in typing for one in (key, "9", "escape")), *leading]


def checked_screen(app: TkdebugApp, size: tuple[int, int]) -> str:
    text = screen_text(app)
    rows = text.split("\n")
    assert len(rows) == size[1]
    assert all(cell_len(row) <= size[0] for row in rows)
    assert any(row.strip() for row in rows[2:-1]), text
    assert "q Quit" in rows[-1]
    assert [one.message for one in app._notifications if one.severity == "error"] == []
    return text


async def walked(path: Path, visits: Sequence[tuple[int, tuple[int, int]]], *, leads: bool) -> str:
    """Press each key of panes, each at a size; everything that was on the screen."""
    seen = ""
    with Session.open(path) as session:
        app = TkdebugApp(session, opens=PANES[visits[0][0]].TAB)
        async with app.run_test(size=visits[0][1]) as pilot:
            await until(pilot, lambda: app._snapshot is not None, "the session")
            for number, size in visits:
                if app.size != size:
                    await pilot.resize_terminal(*size)
                await pilot.press(str(number))
                assert app.query_one(PaneTabs).active == PANES[number].TAB
                seen += checked_screen(app, size)
                type_at_once(app, *keys_of(app, leads=leads))
                await pilot.pause()
                if leads or len(app.screen_stack) > 1:
                    await pilot.press("escape")
                seen += checked_screen(app, size)
            if leads:
                await pilot.press(*KEYS)
    return seen


@pytest.mark.parametrize("kind", ["launches", "faults"])
async def test_every_pane_of_a_large_run_takes_every_key(tmp_path, kind):
    write_session(kind, tmp_path / "run.tkd")
    # Home comes last, as it reads all of the run.
    order = (*range(1, len(PANES)), 0)
    visits = [(number, SIZES[at // 3]) for at, number in enumerate(order)]
    seen = await walked(tmp_path / "run.tkd", visits, leads=kind != "launches")
    assert not [text for text in SAID[kind] if text not in seen]


@pytest.mark.slow
@pytest.mark.parametrize("kind", SAID)
async def test_every_pane_takes_every_key_at_every_size(tmp_path, kind):
    write_session(kind, tmp_path / "run.tkd")
    visits = [(number, size) for size in SIZES for number in range(len(PANES))]
    seen = await walked(tmp_path / "run.tkd", visits, leads=True)
    assert not [text for text in SAID[kind] if text not in seen]
