"""A list of styled lines of text with a cursor: diffs, changes, the life of a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.strip import Strip

from tkdebug.tui.drawing import palette
from tkdebug.tui.drawing.display import shown_code
from tkdebug.tui.drawing.highlight import MAX_LINE_CHARS
from tkdebug.tui.drawing.lines import TextRow
from tkdebug.tui.widgets.line_list import LineList


class TextList(LineList):
    """Shows `TextRow`s; if rows lead to source lines, with those lines' numbers before them."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "Source")]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: Sequence[TextRow] = ()
        self._width = 0
        self._digits = 0

    @property
    def line_count(self) -> int:
        """The number of rows."""
        return len(self._rows)

    def line_text(self, index: int) -> str:
        """The text of a row."""
        return self._rows[index].text

    @property
    def content_width(self) -> int:
        """The widest row."""
        return self._width

    @property
    def row(self) -> TextRow | None:
        """The row at the cursor."""
        return self._rows[self.cursor] if self._rows else None

    def show_rows(self, rows: Sequence[TextRow]) -> None:
        """Show other rows, from the first on."""
        self._rows = rows
        self.cursor = 0
        lengths = (len(row.text[:MAX_LINE_CHARS].expandtabs(4)) for row in rows)
        self._digits = max((len(str(row.place[1])) for row in rows if row.place), default=0)
        self._width = 1 + self._gutter_width + max(lengths, default=0)
        self.content_changed()
        self.scroll_to(0, 0, animate=False, force=True, immediate=True)

    @property
    def _gutter_width(self) -> int:
        return self._digits + 1 if self._digits else 0

    def render_item(self, index: int, width: int, left: int) -> Strip:
        """Draw one row; the line's number stays in place when the text scrolls sideways."""
        row = self._rows[index]
        style = Style.parse(row.style) if row.style else Style.null()
        text = shown_code(row.text, MAX_LINE_CHARS)
        room = max(0, width - self._gutter_width)
        shown = Strip([Segment(" " + text, style)]).crop(left, left + room)
        if not self._digits:
            return shown
        number = "" if row.place is None else str(row.place[1])
        gutter = Segment(f" {number:>{self._digits}}", Style.parse(palette.MUTED))
        return Strip([gutter, *shown])
