"""The choice among recorded sessions of a folder, where none was named."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from tkdebug.errors import SessionError
from tkdebug.instrument.session import Session
from tkdebug.tui.drawing import palette
from tkdebug.tui.drawing.display import count, duration, shown
from tkdebug.tui.widgets.find import FindBar
from tkdebug.tui.widgets.key_row import KeyRow
from tkdebug.tui.widgets.table import Cell, Column, Table
from tkdebug.tui.widgets.typing_keys import typing_key

MOST_SESSIONS = 100
_COLUMNS = (
    Column("session", 24, keep_end=True),
    Column("recorded", 16),
    Column("launches", 9, right=True),
    Column("faults", 7, right=True),
    Column("took", 8, right=True, from_width=76),
    Column("script", 0),
)


def choose_session(paths: Sequence[Path]) -> Path | None:
    """Ask which of some sessions to open; None for none."""
    return SessionList([session_row(path) for path in paths[:MOST_SESSIONS]], paths).run()


def session_row(path: Path) -> tuple[Cell, ...]:
    """Return what is said of a session; of one that cannot be read, why."""
    name = Cell(shown(path.name, 100), palette.STRONG)
    try:
        with Session.open(path) as session:
            run = session.run()
            launches = sum(one.launches for one in session.kernel_summaries())
            groups = session.fault_groups()
    except SessionError as error:
        written = datetime.fromtimestamp(path.stat().st_mtime) if path.exists() else None
        when = "" if written is None else f"{written:%Y-%m-%d %H:%M}"
        said = shown(str(error), 200)
        return name, Cell(when), Cell(""), Cell(""), Cell(""), Cell(said, palette.FAULT)
    failing = sum(group.first.event.fails for group in groups)
    began = datetime.fromtimestamp(run.start_ns / 1e9)
    took = "" if run.end_ns is None else duration(run.end_ns - run.start_ns)
    script = " ".join((run.script, *run.argv))
    return (
        name,
        Cell(f"{began:%Y-%m-%d %H:%M}"),
        Cell(count(launches)),
        Cell(f"✖ {count(failing)}" if failing else "", palette.FAULT),
        Cell(took or "no end", palette.MUTED),
        Cell(shown(script, 200)),
    )


class SessionList(App[Path]):
    """The sessions, the latest first.

    Args:
        rows: the rows of the table.
        paths: the paths of the sessions.
    """

    TITLE = "tkdebug"
    ENABLE_COMMAND_PALETTE = False
    CSS = "#sessions-title { height: 1; padding: 0 1; } Table { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        typing_key("slash", "find", "Find"),
        Binding("q,escape", "quit", "Quit"),
    ]

    def __init__(self, rows: Sequence[tuple[Cell, ...]], paths: Sequence[Path]) -> None:
        super().__init__()
        self._rows, self._paths = rows, paths

    def compose(self) -> ComposeResult:
        """A title, the sessions, the keys."""
        more = len(self._paths) - len(self._rows)
        rest = f", {count(more)} older ones are left out" if more > 0 else ""
        yield Static(f"sessions of this folder{rest}: Enter opens one", id="sessions-title")
        yield Table(_COLUMNS)
        yield FindBar()
        yield KeyRow()

    def on_mount(self) -> None:
        """Show the sessions."""
        table = self.query_one(Table)
        table.show_rows(range(len(self._rows)), self._rows.__getitem__)
        table.focus()

    @on(Table.Chosen)
    def _open_session(self, event: Table.Chosen) -> None:
        """Open the session."""
        self.exit(self._paths[event.index])

    def action_find(self) -> None:
        """Find a session."""
        self.query_one(FindBar).open(self.query_one(Table))
