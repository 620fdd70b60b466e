"""Widgets that draw their rows themselves: those in sight, and again only those that change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tkdebug.tui.drawing import palette
from tkdebug.tui.drawing.display import count


class OwnRows(Widget):
    """Base of widgets that draw their own rows. As a second base: styles are the first base's.

    Attributes:
        base_style: the style that all rows are on. `rich_style` is found by way of all ancestors,
            which took longer than the rows themselves.
    """

    base_style = Style.null()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw the rows of a part of it."""
        self.base_style = self.rich_style
        return super().render_lines(crop)

    def refresh_rows(self, rows: Iterable[int]) -> None:
        """Draw some rows again, as far as they are in sight; row 0 is the first in sight."""
        width, height = self.size
        if regions := [Region(0, y, width, 1) for y in rows if 0 <= y < height]:
            self.refresh(*regions)


class RowsView(OwnRows, can_focus=True):
    """Shows rows from some row on; the last row says how many follow.

    Attributes:
        top: the number of the first row in sight.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll_rows(-1)", show=False),
        Binding("down", "scroll_rows(1)", show=False),
        Binding("pageup", "scroll_pages(-1)", show=False),
        Binding("pagedown,space", "scroll_pages(1)", show=False),
        Binding("home", "scroll_rows(-1000000)", show=False),
        Binding("end", "scroll_rows(1000000)", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: Sequence[Text] = ()
        self.top = 0

    def show_rows(self, rows: Sequence[Text], top: int = 0) -> None:
        """Show other rows."""
        height = range(self.size.height)
        before = [self._row_at(y) for y in height]
        self._rows, self.top = rows, top
        self.refresh_rows(y for y in height if not _is_same(before[y], self._row_at(y)))

    def render_line(self, y: int) -> Strip:
        """Draw one row."""
        width, base = self.size.width, self.base_style
        row = self._row_at(y)
        if row is None:
            return Strip.blank(width, base)
        strip = Strip(self._segments(row)).crop(0, width)
        return strip.adjust_cell_length(width, base).apply_style(base)

    def _row_at(self, y: int) -> Text | None:
        width, height = self.size
        number = self.top + y
        rest = len(self._rows) - number
        if y == height - 1 and rest > 1:
            return Text(f"▾ {count(rest)} more rows".rjust(width), style=palette.MUTED)
        return self._rows[number] if 0 <= number < len(self._rows) else None

    def _segments(self, row: Text) -> list[Segment]:
        console = self.app.console
        if not row.spans:  # which `Text.render` leaves without the style of the whole
            return [Segment(row.plain, console.get_style(row.style))]
        return list(row.render(console, end=""))

    def action_scroll_rows(self, step: int) -> None:
        """Show other rows of those that there are."""
        most = max(0, len(self._rows) - self.content_size.height)
        self.top = max(0, min(self.top + step, most))
        self.refresh()

    def action_scroll_pages(self, step: int) -> None:
        """Show the rows after those in sight, or before them."""
        self.action_scroll_rows(step * max(1, self.content_size.height - 1))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Show rows further down."""
        event.stop()
        self.action_scroll_rows(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Show rows further up."""
        event.stop()
        self.action_scroll_rows(-3)


def _is_same(one: Text | None, other: Text | None) -> bool:
    if one is None or other is None:
        return one is other
    return one == other and one.style == other.style


def wrapped(rows: Sequence[Text], width: int, console: Console) -> list[Text]:
    """Return rows of at most so many cells: longer ones go on in the next row."""
    found: list[Text] = []
    for row in rows:
        if row.cell_len <= width:
            found.append(row)
        elif row.no_wrap:
            cut = row.copy()
            cut.truncate(width, overflow="ellipsis")
            found.append(cut)
        else:
            found += row.wrap(console, width)
    return found
