"""The watches pane: watched values by line, program and iteration, with summary and tile."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.widgets import Static

from tkdebug.errors import Frame, SessionError
from tkdebug.instrument.session import Session
from tkdebug.instrument.tables import Recorded
from tkdebug.instrument.watched_values import values_since
from tkdebug.tui import display, palette
from tkdebug.tui.messages import OpenKernel, SessionFailed, TabMarked
from tkdebug.tui.pane import Pane
from tkdebug.tui.snapshot import ScriptState, Snapshot
from tkdebug.tui.table import Cell, Column, Table
from tkdebug.watches.records import WatchedValue, number_text, program_text, summary_text

_COLUMNS = (
    Column("line", 22, keep_end=True),
    Column("name", 12, keep_end=True),
    Column("launch", 6, right=True, from_width=70),
    Column("program", 11, right=True),
    Column("iteration", 9, right=True),
    Column("summary", 0),
)
_RELOAD_S = 1.0
# What the pane keeps, and shows of a tile.
MOST_VALUES = 50_000
MOST_ROWS, MOST_COLUMNS = 256, 64
_BAR_CELLS = 40
_BLOCKS = " ▏▎▍▌▋▊▉█"

Row = Recorded[WatchedValue]


class WatchesPane(Pane):
    """Values by place and time; new ones are read in a thread."""

    DEFAULT_CSS = """
    #watches-table { height: auto; max-height: 50%; min-height: 4; }
    #watches-detail { height: 1fr; background: $panel; padding: 0 1; scrollbar-size: 1 1; }
    #watches-detail:focus { background: $panel-lighten-1; }
    #watches-text { width: auto; }
    """
    TAB = "watches"
    KEYS = (
        ("Tab", "to the histogram and the tile, and back"),
        ("Enter", "show the line in the kernel"),
    )

    class Loaded(Message):
        """Values that are new since the last ones."""

        def __init__(self, rows: tuple[Row, ...]) -> None:
            self.rows = rows
            super().__init__()

    def __init__(self) -> None:
        super().__init__(id="watches-pane")
        self._rows: list[Row] = []
        self._last_seq = 0
        self._session: Session | None = None
        self._seen: tuple[int, bool] | None = None
        self._loaded_s = 0.0
        self._snapshot: Snapshot | None = None
        self._state = ScriptState("starting")
        self._text = Text("")

    def compose(self) -> ComposeResult:
        """The values, and the one at the cursor in full."""
        with Vertical():
            yield Table(_COLUMNS, id="watches-table")
            with VerticalScroll(id="watches-detail", can_focus=True):
                yield Static(id="watches-text")

    def on_mount(self) -> None:
        """Begin empty."""
        self._show_rows()

    def focus_main(self) -> None:
        """Focus the list."""
        self.query_one("#watches-table", Table).focus()

    def copied_text(self) -> str:
        """The value at the cursor."""
        return self._text.plain

    def tab_mark(self) -> Text:
        """How many values there are."""
        number = len(self._rows)
        more = "+" if number >= MOST_VALUES else ""
        return Text(f" {display.count(number)}{more}", style=palette.GOOD) if number else Text("")

    def show(self, snapshot: Snapshot | None, state: ScriptState, session: Session | None) -> None:
        """Read what is new."""
        self._snapshot, self._state, self._session = snapshot, state, session
        if snapshot is None or session is None:
            self._show_rows()
            return
        seen = (snapshot.launch_count, state.going_on)
        is_due = not state.going_on or time.monotonic() - self._loaded_s >= _RELOAD_S
        if seen == self._seen or not is_due:
            self._show_rows()
            return
        self._seen, self._loaded_s = seen, time.monotonic()
        since, room = self._last_seq, MOST_VALUES - len(self._rows)

        def load() -> None:
            try:
                found = tuple(values_since(session, since, room))
            except SessionError as error:
                self.app.post_message(SessionFailed(str(error)))
                return
            self.post_message(WatchesPane.Loaded(found))

        self.run_worker(load, thread=True, exclusive=True, group="watches")

    def on_watches_pane_loaded(self, event: WatchesPane.Loaded) -> None:
        """Show them."""
        event.stop()
        rows = [row for row in event.rows if row.seq > self._last_seq]
        if rows:
            self._last_seq = rows[-1].seq
            self._rows = sorted((*self._rows, *rows), key=_order)
        self._show_rows()
        self.post_message(TabMarked())

    def _show_rows(self) -> None:
        table, rows = self.query_one("#watches-table", Table), self._rows
        table.empty_text = self._why_none()
        table.show_rows([row.seq for row in rows], lambda i: _cells(rows[i].event))
        self.query_one("#watches-detail").display = bool(rows)
        self._show_selected()

    def _why_none(self) -> str:
        if self._snapshot is not None and self._snapshot.launch_count:
            return "no values: nothing was watched; tkdebug run --watch FILE:LINE:NAME script.py"
        return "no values: no kernel was launched" + (" yet" if self._state.going_on else "")

    def on_line_list_moved(self, event: Table.Moved) -> None:
        """Show the value that is selected now."""
        event.stop()
        self._show_selected()

    def _show_selected(self) -> None:
        index = self.query_one("#watches-table", Table).cursor
        text = Text("")
        if index < len(self._rows):
            text = _value_text(self._rows[index].event, self._session)
        if text != self._text:
            self._text = text
            self.query_one("#watches-text", Static).update(text)

    def on_line_list_chosen(self, event: Table.Chosen) -> None:
        """Go to the line in the kernel."""
        event.stop()
        value = self._rows[event.index].event
        frame = value.frames[-1]
        self.post_message(OpenKernel(None, value.kernel, frame.file, frame.line))


def _order(row: Row) -> tuple[object, ...]:
    value = row.event
    frame = value.frames[-1]
    return frame.file, frame.line, value.name, row.rank, row.process, value.order


def _cells(value: WatchedValue) -> tuple[Cell, ...]:
    style = palette.FAULT if value.nan or value.inf else ""
    return (
        Cell(display.place(value.frames[-1], 22)),
        Cell(display.shown(value.name, 60), palette.STRONG),
        Cell(str(value.launch_id)),
        Cell(program_text(value.program_id)),
        Cell(str(value.iteration)),
        Cell(display.shown(summary_text(value), 200), style),
    )


def _value_text(value: WatchedValue, session: Session | None) -> Text:
    """Where, the line itself, the summary, the histogram, the tile."""
    frame = value.frames[-1]
    text = Text(no_wrap=True)
    text.append(f"{display.shown(frame.file, 300)}:{frame.line}", style=palette.LABEL)
    text.append(f"  {display.shown(value.name, 100)}", style=palette.STRONG)
    text.append(f"  {display.shown(value.type, 60)} of {display.shown(value.kernel, 100)}\n")
    line = _source_line(frame, session)
    if line:
        text.append(f"{display.shown_code(line.strip(), 300)}\n", style=palette.GOOD)
    where = f"launch {value.launch_id}, program {program_text(value.program_id)}"
    text.append(f"{where}, iteration {value.iteration}: {summary_text(value)}\n")
    if len(value.frames) > 1:
        chain = " > ".join(display.place(one) for one in value.frames)
        text.append(f"called by {chain}\n", style=palette.MUTED)
    for row in _histogram(value):
        text.append(row + "\n", style=palette.LABEL)
    for row in _grid(value):
        text.append("\n" + row)
    return text


def _source_line(frame: Frame, session: Session | None) -> str | None:
    try:
        return None if session is None else session.source_line(frame.file, frame.line)
    except SessionError as error:
        return str(error)


def _histogram(value: WatchedValue) -> Iterator[str]:
    """A bar for each power of two."""
    if not value.shape or not value.histogram:
        return
    yield "magnitudes"
    most = max(count for _, count in value.histogram)
    width = len(f"{most:,}")
    for exponent, count in value.histogram:
        eighths = max(1, round(8 * _BAR_CELLS * count / most))
        bar = _BLOCKS[8] * (eighths // 8) + _BLOCKS[eighths % 8].strip()
        yield f"  2^{exponent:<4}{count:>{width},}  {bar}"


def _grid(value: WatchedValue) -> Iterator[str]:
    """The tile, a line for each row of its last axis."""
    try:
        elements = value.values()
    except ValueError as error:
        yield display.shown(str(error), 200)
        return
    if not elements or not value.shape:
        return
    columns = value.shape[-1]
    rows = len(elements) // columns
    kept = min(columns, MOST_COLUMNS)
    starts = range(0, columns * min(rows, MOST_ROWS), columns)
    shown = [[_element(n, value) for n in elements[start : start + kept]] for start in starts]
    width = max(len(cell) for row in shown for cell in row)
    more = " …" if columns > MOST_COLUMNS else ""
    leading = value.shape[:-1]
    for number, row in enumerate(shown):
        place = ", ".join(map(str, _place(number, leading)))
        label = f"[{place}]" if leading else ""
        yield f"{label:>10} " + " ".join(f"{cell:>{width}}" for cell in row) + more
    if rows > MOST_ROWS:
        yield f"… and {rows - MOST_ROWS:,} more rows"


def _element(number: float, value: WatchedValue) -> str:
    return number_text(number, value.type) if math.isfinite(number) else str(number)


def _place(row: int, leading: Sequence[int]) -> list[int]:
    found = []
    for extent in reversed(leading):
        found.append(row % extent)
        row //= extent
    return found[::-1]
