"""A pane with a table of the session's records, and the row at the cursor in full below it."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from tkdebug.errors import SessionError
from tkdebug.instrument.session import Session
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.messages import OpenKernel, SessionFailed, TabMarked
from tkdebug.tui.pane import Pane
from tkdebug.tui.session.snapshot import ScriptState, Snapshot
from tkdebug.tui.widgets.find import FindBar
from tkdebug.tui.widgets.table import Cell, Column, Table
from tkdebug.tui.widgets.typing_keys import take_keys, typing_key

_Row = TypeVar("_Row")


class TablePane(Pane, Generic[_Row]):
    """Reads its rows in a thread as launches are added.

    Attributes:
        COLUMNS: the columns of the table.
        RELOAD_S: the least time between two reads while the script runs, in seconds.
        rows: the rows in the order in which they are shown.
    """

    DEFAULT_CSS = """
    TablePane {
        & Table { height: auto; max-height: 50%; min-height: 4; }
        & .detail { height: 1fr; background: $panel; padding: 0 1; scrollbar-size: 1 1; }
        & .detail:focus { background: $panel-lighten-1; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [typing_key("slash", "find", "Find")]
    COLUMNS: ClassVar[tuple[Column, ...]]
    RELOAD_S: ClassVar[float]

    def __init__(self) -> None:
        super().__init__(id=f"{self.TAB}-pane")
        self.rows: Sequence[_Row] = ()
        self.snapshot: Snapshot | None = None
        self.state = ScriptState("starting")
        self._session: Session | None = None
        self._seen: tuple[int, bool] | None = None
        self._loaded_s = 0.0
        self._text = Text("")

    def reader(self, session: Session) -> Callable[[], object]:
        """Return a function that reads the session for `take`, in a thread.

        It may raise SessionError.
        """
        raise NotImplementedError

    def take(self, found: Any) -> None:
        """Put a reader's result into `rows`."""
        raise NotImplementedError

    def key(self, row: _Row) -> Hashable:
        """Return the key of a row, the same when it is read again."""
        raise NotImplementedError

    def cells(self, row: _Row) -> tuple[Cell, ...]:
        """A row of the table."""
        raise NotImplementedError

    def detail(self, row: _Row) -> Text:
        """A row in full."""
        raise NotImplementedError

    def place(self, row: _Row) -> tuple[str, str, int]:
        """The kernel, file and line that Enter goes to."""
        raise NotImplementedError

    def why_none(self) -> str:
        """Return what to say without any rows."""
        raise NotImplementedError

    def count(self) -> str:
        """Return the number of rows, as the tab shows it; "" for none."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        """The table, and the row at the cursor in full."""
        with Vertical():
            yield Table(self.COLUMNS)
            with VerticalScroll(classes="detail", can_focus=True):
                yield Static()
            yield FindBar()

    def focus_main(self) -> None:
        """Focus the table."""
        take_keys(self.query_one(Table))

    def action_find(self) -> None:
        """Find text among the rows."""
        self.query_one(FindBar).open(self.query_one(Table))

    def has_nothing(self) -> bool:
        """Whether there are no rows."""
        return not self.rows

    def source_place(self) -> tuple[str, int] | None:
        """The file and line that the row at the cursor is about, or None."""
        index = self.query_one(Table).cursor
        return self.place(self.rows[index])[1:] if index < len(self.rows) else None

    def copied_text(self) -> str:
        """The row at the cursor in full."""
        return self._text.plain

    def tab_mark(self) -> Text:
        """Return the number of rows as the mark of the tab."""
        count = self.count()
        return Text(f" {count}", style=palette.GOOD) if count else Text("")

    def show(self, snapshot: Snapshot | None, state: ScriptState, session: Session | None) -> None:
        """Show the rows, and load new ones in a thread if there may be any."""
        self.snapshot, self.state, self._session = snapshot, state, session
        if snapshot is None or session is None:
            self._show_rows()
            return
        seen = (snapshot.launch_count, state.going_on)
        is_due = not state.going_on or time.monotonic() - self._loaded_s >= self.RELOAD_S
        if seen == self._seen or not is_due:
            self._show_rows()
            return
        self._seen, self._loaded_s = seen, time.monotonic()
        read, app = self.reader(session), self.app

        def load() -> None:
            try:
                found = read()
            except SessionError as error:
                app.post_message(SessionFailed(str(error)))
                return
            app.call_later(self._take, found)

        # The app's, as the tab has the number of rows before the pane is there.
        app.run_worker(load, thread=True, exclusive=True, group=self.TAB)

    def _take(self, found: Any) -> None:
        """Show the rows that were read."""
        self.take(found)
        self._show_rows()
        self.app.post_message(TabMarked())

    def _show_rows(self) -> None:
        if not self.is_ready:
            return
        table, rows = self.query_one(Table), self.rows
        table.empty_text = self.why_none() + self.filling_text()
        table.show_rows([self.key(row) for row in rows], lambda i: self.cells(rows[i]))
        self.query_one(".detail").display = bool(rows)
        self._show_selected()

    @on(Table.Moved)
    def _show_row_at_cursor(self, event: Table.Moved) -> None:
        """Show the row that is selected now."""
        event.stop()
        self._show_selected()

    def _show_selected(self) -> None:
        index, text = self.query_one(Table).cursor, Text("")
        if index < len(self.rows):
            text = self.detail(self.rows[index])
        if text != self._text:
            self._text = text
            self.query_one(Static).update(text)

    @on(Table.Chosen)
    def _open_line(self, event: Table.Chosen) -> None:
        """Go to the line in the kernel."""
        event.stop()
        self.post_message(OpenKernel(None, *self.place(self.rows[event.index])))

    def source_text(self, file: str, line: int) -> Text:
        """The source line as the session has it, with a line break; empty if it has none."""
        try:
            source = None if self._session is None else self._session.source_line(file, line)
        except SessionError as error:
            source = str(error)
        text = Text()
        if source:
            text.append(f"{display.shown_code(source.strip(), 300)}\n", style=palette.GOOD)
        return text
