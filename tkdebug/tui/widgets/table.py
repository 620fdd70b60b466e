"""A table whose cells are made when a row comes into sight; any number of rows costs the same.

The cursor stays on its row, known by a key, when rows are added or sorted again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from rich.cells import set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.message import Message
from textual.strip import Strip

from tkdebug.tui.widgets.line_list import LineList

GAP = 2
MIN_FLEXIBLE_WIDTH = 10


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        width: the width in cells; 0 for the column that takes the remaining ones.
        right: whether its cells are aligned to the right.
        from_width: the column is shown only in a table at least this wide.
        keep_end: whether a text that is too long loses its middle: names often differ in their
            ends.
    """

    title: str
    width: int
    right: bool = False
    from_width: int = 0
    keep_end: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """Harmless text (see `display.shown`) and how it is coloured."""

    text: str
    style: str = ""


class Table(LineList):
    """Rows under a header that stays in place.

    Args:
        columns: left to right; exactly one has width 0.
    """

    HEADER_ROWS = 1

    class HeaderClicked(Message):
        """A column's title was clicked."""

        def __init__(self, control: Table, column: int) -> None:
            self.table = control
            self.column = column
            super().__init__()

        @property
        def control(self) -> Table:
            """The table."""
            return self.table

    def __init__(self, columns: Sequence[Column], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.columns = tuple(columns)
        self._keys: Sequence[Hashable] = ()
        self._cells: Callable[[int], Sequence[Cell]] = lambda index: ()
        self._sorted: tuple[int, bool] | None = None
        self._gone_key: Hashable | None = None

    @property
    def line_count(self) -> int:
        """The number of rows."""
        return len(self._keys)

    def line_text(self, index: int) -> str:
        """The cells of a row."""
        return "  ".join(cell.text for cell in self._cells(index))

    @property
    def key(self) -> Hashable | None:
        """The key of the row at the cursor, or None if there are no rows."""
        return self._keys[self.cursor] if self._keys else None

    def show_rows(
        self,
        keys: Sequence[Hashable],
        cells: Callable[[int], Sequence[Cell]],
        *,
        follow_last: bool = False,
        sorted_by: tuple[int, bool] | None = None,
    ) -> None:
        """Replace the rows; the cursor stays on its row if that is still there.

        If all rows go, the cursor is on its row again when that comes back.

        Args:
            keys: one per row.
            cells: gives the cells of a row by its index.
            follow_last: if the cursor is on the last row, keep it on the last.
            sorted_by: the column sorted by and whether descending, marked in the header.
        """
        key = self.key if self._keys else self._gone_key
        if keys:
            self._gone_key = None
        elif self._keys:
            self._gone_key = key
        was_last = self.cursor >= self.line_count - 1
        self._keys, self._cells, self._sorted = keys, cells, sorted_by
        index = self.cursor
        if follow_last and was_last:
            index = len(keys) - 1
        elif not (index < len(keys) and keys[index] == key):
            known = key is not None and key in keys
            index = keys.index(key) if known else min(index, len(keys) - 1)
        self.cursor = max(0, index)
        moved = key != self.key
        self.content_changed()
        self.reveal()
        if moved:
            self.post_message(self.Moved(self, self.cursor))

    def select_key(self, key: Hashable) -> None:
        """Put the cursor on the row of that key, if it is there."""
        if key in self._keys:
            self.move_cursor(self._keys.index(key), announce=True)

    def render_header(self, row: int, width: int) -> Strip:
        """The titles, with an arrow at the one sorted by."""
        cells = []
        for number, column in enumerate(self.columns):
            title = column.title
            if self._sorted is not None and self._sorted[0] == number:
                title += "▼" if self._sorted[1] else "▲"
            cells.append(Cell(title))
        return self._row_strip(cells, width)

    def render_item(self, index: int, width: int, left: int) -> Strip:
        """Draw one row."""
        return self._row_strip(self._cells(index), width)

    def header_clicked(self, x: int) -> None:
        """Report which title was clicked."""
        begin = 0
        for number, column, width in self._shown_columns(self.scrollable_content_region.width):
            del column
            if begin <= x < begin + width + GAP:
                self.post_message(self.HeaderClicked(self, number))
                return
            begin += width + GAP

    def _shown_columns(self, width: int) -> list[tuple[int, Column, int]]:
        """Return number, column and width of each column that is shown in `width` cells."""
        columns = [(n, c) for n, c in enumerate(self.columns) if c.from_width <= width]
        fixed = sum(c.width for _, c in columns) + GAP * len(columns)
        rest = max(MIN_FLEXIBLE_WIDTH, width - fixed)
        return [(n, c, c.width or rest) for n, c in columns]

    def _row_strip(self, cells: Sequence[Cell], width: int) -> Strip:
        segments: list[Segment] = []
        for number, column, cell_width in self._shown_columns(width):
            cell = cells[number]
            text = cell.text
            if column.right:
                text = text.rjust(cell_width)
            fitted = set_cell_size(text, cell_width)
            if fitted != text and text.rstrip() != fitted.rstrip():
                fitted = _shortened(text, cell_width, column.keep_end)
            style = Style.parse(cell.style) if cell.style else Style.null()
            segments.append(Segment(" " + fitted + " " * (GAP - 1), style))
        return Strip(segments).crop(0, width)


def _shortened(text: str, width: int, keep_end: bool) -> str:
    """Return `text`, which is too long, cut to `width` cells with an ellipsis."""
    end = (width - 1) // 2 if keep_end and text.isascii() else 0
    if not end:
        return set_cell_size(text, width - 1) + "…"
    return f"{text[: width - 1 - end]}…{text[-end:]}"
