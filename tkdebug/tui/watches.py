"""The watches pane: watched values by line, program and iteration, with summary and tile."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence

from rich.text import Text

from tkdebug.instrument.analyses.watched_values import values_since
from tkdebug.instrument.session import Session
from tkdebug.instrument.session_file.tables import Recorded
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.widgets.table import Cell, Column
from tkdebug.tui.widgets.table_pane import TablePane
from tkdebug.watches.records import WatchedValue, number_text, program_text, summary_text

# What the pane keeps, and shows of a tile.
MOST_VALUES = 50_000
MOST_ROWS, MOST_COLUMNS = 256, 64
_BAR_CELLS = 40
_BLOCKS = " ▏▎▍▌▋▊▉█"

Row = Recorded[WatchedValue]


class WatchesPane(TablePane[Row]):
    """Values by place and time."""

    DEFAULT_CSS = "WatchesPane Static { width: auto; }"
    TAB = "watches"
    KEYS = (
        ("Tab", "to the histogram and the tile, and back"),
        ("Enter", "show the line in the kernel"),
    )
    COLUMNS = (
        Column("line", 22, keep_end=True),
        Column("name", 12, keep_end=True),
        Column("launch", 6, right=True, from_width=70),
        Column("program", 11, right=True),
        Column("iteration", 9, right=True),
        Column("summary", 0),
    )
    RELOAD_S = 1.0

    def __init__(self) -> None:
        super().__init__()
        self._last_seq = 0

    def reader(self, session: Session) -> Callable[[], object]:
        """Return a function that reads the values after those that were read last."""
        since, room = self._last_seq, MOST_VALUES - len(self.rows)
        return lambda: tuple(values_since(session, since, room))

    def take(self, found: tuple[Row, ...]) -> None:
        """Add new records."""
        new = [row for row in found if row.seq > self._last_seq]
        if new:
            self._last_seq = new[-1].seq
            self.rows = sorted((*self.rows, *new), key=_order)

    def key(self, row: Row) -> Hashable:
        """Return the number of the value in the session."""
        return row.seq

    def cells(self, row: Row) -> tuple[Cell, ...]:
        """Return the cells of a value: its place and time, and the summary."""
        return _cells(row.event)

    def detail(self, row: Row) -> Text:
        """Return a value in full: place, source line, summary, histogram, tile."""
        value, frame = row.event, row.event.frames[-1]
        text = Text(no_wrap=True)
        text.append(f"{display.shown(frame.file, 300)}:{frame.line}", style=palette.LABEL)
        text.append(f"  {display.shown(value.name, 100)}", style=palette.STRONG)
        text.append(f"  {display.shown(value.type, 60)} of {display.shown(value.kernel, 100)}\n")
        text.append(self.source_text(frame.file, frame.line))
        where = f"launch {value.launch_id}, program {program_text(value.program_id)}"
        text.append(f"{where}, iteration {value.iteration}: {summary_text(value)}\n")
        if len(value.frames) > 1:
            chain = " > ".join(display.place(one) for one in value.frames)
            text.append(f"called by {chain}\n", style=palette.MUTED)
        for line in _histogram(value):
            text.append(line + "\n", style=palette.LABEL)
        for line in _grid(value):
            text.append("\n" + line)
        return text

    def place(self, row: Row) -> tuple[str, str, int]:
        """The innermost line that it was watched at."""
        frame = row.event.frames[-1]
        return row.event.kernel, frame.file, frame.line

    def count(self) -> str:
        """Return the number of values that are kept."""
        number = len(self.rows)
        return display.count(number) + "+" * (number >= MOST_VALUES) if number else ""

    def filling(self) -> tuple[str, ...]:
        """Return the option that watches a value; the app knows the line to be looked at."""
        launches = 0 if self.snapshot is None else self.snapshot.launch_count
        return ("--watch",) if launches and not self.state.going_on else ()

    def filling_text(self) -> str:
        """Return what Enter watches."""
        return "; Enter watches what home's line assigns" if self.filling() else ""

    def why_none(self) -> str:
        """Say why there are no values: nothing was watched, or nothing launched."""
        if self.snapshot is not None and self.snapshot.launch_count:
            return "no values: nothing was watched; tkdebug run --watch FILE:LINE:NAME script.py"
        return "no values: no kernel was launched" + (" yet" if self.state.going_on else "")


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


def _histogram(value: WatchedValue) -> Iterator[str]:
    """Yield a bar for each power of two."""
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
    """Yield a line for each row of the tile's last axis."""
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
