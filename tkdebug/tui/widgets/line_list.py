"""A scrolling list of lines with a cursor; only visible lines are ever rendered.

The base of tables and code views: it has keys, mouse and scrolling; subclasses draw the lines.
`TextList` draws styled text: diffs, changes, the life of a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tkdebug.tui.drawing import palette
from tkdebug.tui.drawing.display import shown_code
from tkdebug.tui.drawing.highlight import MAX_LINE_CHARS
from tkdebug.tui.drawing.lines import TextRow
from tkdebug.tui.widgets.rows_view import OwnRows


def find_line(
    text: Callable[[int], str], count: int, wanted: str, begin: int, step: int
) -> int | None:
    """Return the index of the first line from `begin` on that has `wanted` in it, or None.

    The search wraps around at the end, and `step` -1 searches backwards.
    Capitals count only where `wanted` has some.
    """
    fold = wanted == wanted.lower()
    for number in range(count):
        index = (begin + number * step) % count
        if wanted in (text(index).lower() if fold else text(index)):
            return index
    return None


class LineList(ScrollView, OwnRows, can_focus=True):
    """Subclasses give `line_count`, `render_item` and, with `HEADER_ROWS`, `render_header`."""

    HEADER_ROWS: ClassVar[int] = 0
    # Whether a line keeps its colours at the cursor in focus; else the cursor's replace them.
    KEEPS_COLOURS: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "move_page(-1)", "Page up", show=False),
        Binding("pagedown", "move_page(1)", "Page down", show=False),
        Binding("home,g", "move_to_end(False)", "First", show=False),
        Binding("end,G", "move_to_end(True)", "Last", show=False),
        Binding("enter", "choose", "Open"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "lines--cursor",
        "lines--cursor-blurred",
        "lines--empty",
        "lines--header",
    }
    DEFAULT_CSS = """
    LineList {
        background: $surface;
        scrollbar-size: 1 1;
        & > .lines--cursor { background: $primary; color: $text; text-style: bold; }
        & > .lines--cursor-blurred { background: $primary 35%; }
        & > .lines--empty { color: $text-muted; }
        & > .lines--header { background: $panel; color: $foreground; text-style: bold; }
    }
    """

    class OfLine(Message):
        """Base of the messages about one line."""

        def __init__(self, control: LineList, index: int) -> None:
            self.line_list = control
            self.index = index
            super().__init__()

        @property
        def control(self) -> LineList:
            """The list."""
            return self.line_list

    class Moved(OfLine):
        """The user moved the cursor to another line."""

    class Chosen(OfLine):
        """Enter was pressed on a line, or it was clicked twice."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.cursor = 0
        self._empty_text = self._failure = ""
        self._block_end: int | None = None
        self._lines_above: int | None = None
        self._fitted = Size(0, 0)

    @property
    def empty_text(self) -> str:
        """The text that is shown without any lines."""
        return self._empty_text

    @empty_text.setter
    def empty_text(self, text: str) -> None:
        if text != self._empty_text:
            self._empty_text = text
            if not self.line_count:
                self.refresh()

    def show_failure(self, failure: str) -> None:
        """Set the reason why lines cannot be read, shown in place of `empty_text`; "" for none."""
        if failure != self._failure:
            self._failure = failure
            if not self.line_count:
                self.refresh()

    @property
    def line_count(self) -> int:
        """The number of lines."""
        raise NotImplementedError

    @property
    def content_width(self) -> int:
        """Width of the widest line in cells; a line wider than the widget scrolls."""
        return 0

    def render_item(self, index: int, width: int, left: int) -> Strip:
        """The line, `width` cells of it from column `left` on, without the cursor's colours."""
        raise NotImplementedError

    def line_text(self, index: int) -> str:
        """Return the text of a line that can be searched."""
        return ""

    @property
    def cursor_text(self) -> str:
        """The text of the line at the cursor; "" if there is none."""
        return self.line_text(self.cursor) if self.cursor < self.line_count else ""

    def index_of_line(self, line: int) -> int | None:
        """Return the index of the line of that number, counted from 1, or None."""
        return line - 1 if 1 <= line <= self.line_count else None

    def find(self, wanted: str, begin: int, step: int = 1) -> int | None:
        """Return the index of the first line from `begin` on with `wanted`, wrapping, or None."""
        return find_line(self.line_text, self.line_count, wanted, begin, step)

    def render_header(self, row: int, width: int) -> Strip:
        """A row that stays on top."""
        raise NotImplementedError

    def content_changed(self) -> None:
        """Refresh the list, after any change of the lines."""
        self.cursor = max(0, min(self.cursor, self.line_count - 1))
        size = Size(self.content_width, self.line_count + self.HEADER_ROWS)
        other_height = size.height != self.virtual_size.height
        self.virtual_size = size
        self.refresh(layout=other_height and self.styles.is_auto_height)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the height of all rows and one to spare, if a style asks for the needed height."""
        return self.line_count + self.HEADER_ROWS + 1

    def move_cursor(
        self,
        index: int,
        *,
        announce: bool = False,
        last: int | None = None,
        lines_above: int | None = None,
    ) -> None:
        """Put the cursor on a line and scroll there.

        Args:
            index: the line's number; brought into range.
            announce: post `Moved` if it is another line than before.
            last: the end of the block that begins there: if not all of it was in sight, it comes to
                the middle. None: scroll no further than needed.
            lines_above: scroll so that as many lines, but no more than half of those that fit, are
                in sight above it.
        """
        index = max(0, min(index, self.line_count - 1))
        before, self.cursor = self.cursor, index
        moved = index != before
        self._block_end, self._lines_above = last, lines_above
        self.reveal()
        self.refresh_lines_at((before, index))
        if announce and moved:
            self.post_message(self.Moved(self, index))

    def refresh_lines_at(self, indices: Iterable[int]) -> None:
        """Have lines drawn again, as far as they are in sight."""
        top = self.scroll_offset.y
        self.refresh_rows(index - top + self.HEADER_ROWS for index in indices if index >= top)

    def reveal(self) -> None:
        """Scroll to the cursor, with as much of the block it begins as fits."""
        rows = self.visible_rows
        if rows <= 0:
            return
        if self._lines_above is not None:
            target = max(0, self.cursor - min(self._lines_above, rows // 2))
            self._lines_above = None
            self.scroll_to(y=target, animate=False, force=True, immediate=True)
        top = self.scroll_offset.y
        end = self.cursor if self._block_end is None else self._block_end
        target = top
        if self.cursor < top:
            target = self.cursor
        elif end >= top + rows:
            target = min(self.cursor, end - rows + 1)
        if target != top:
            if self._block_end is not None:
                spare = max(0, rows - (end - self.cursor + 1))
                target = self.cursor - spare // 2
            self.scroll_to(y=max(0, target), animate=False, force=True, immediate=True)

    @property
    def visible_rows(self) -> int:
        """The number of lines that fit."""
        return self.scrollable_content_region.height - self.HEADER_ROWS

    def render_line(self, y: int) -> Strip:
        """Draw one row of the widget."""
        width = self.scrollable_content_region.width
        base = self.base_style
        if y < self.HEADER_ROWS:
            header = self.render_header(y, width).apply_style(
                self.get_component_rich_style("lines--header")
            )
            return header.adjust_cell_length(width, self.get_component_rich_style("lines--header"))
        index = y - self.HEADER_ROWS + self.scroll_offset.y
        if self.line_count == 0:
            return self._render_empty(y - self.HEADER_ROWS, width)
        if index >= self.line_count:
            return Strip.blank(width, base)
        strip = self.render_item(index, width, self.scroll_offset.x)
        if index == self.cursor:
            style = self.get_component_rich_style(
                "lines--cursor" if self.has_focus else "lines--cursor-blurred"
            )
            # The cursor's background goes over the line's own, whose colours stay where blurred:
            # on the bright one they could not be read.
            is_over = self.has_focus and not self.KEEPS_COLOURS
            over = Style(color=style.color if is_over else None, bgcolor=style.bgcolor)
            strip = Strip([Segment(text, (own or Style.null()) + over) for text, own, _ in strip])
            return strip.adjust_cell_length(width, base + style).apply_style(base)
        return strip.adjust_cell_length(width, base).apply_style(base)

    def _render_empty(self, row: int, width: int) -> Strip:
        base = self.base_style
        said = f"the recording cannot be read: {self._failure}" if self._failure else ""
        lines = Text(said or self.empty_text).wrap(self.app.console, max(10, width - 2))
        if not 0 <= row - 1 < len(lines):
            return Strip.blank(width, base)
        style = base + self.get_component_rich_style("lines--empty")
        return Strip([Segment(" " + lines[row - 1].plain, style)]).adjust_cell_length(width, base)

    def action_move(self, step: int) -> None:
        """Move the cursor."""
        self.move_cursor(self.cursor + step, announce=True)

    def action_move_page(self, step: int) -> None:
        """Move the cursor by a screenful."""
        self.move_cursor(self.cursor + step * max(1, self.visible_rows - 1), announce=True)

    def action_move_to_end(self, last: bool) -> None:
        """Move the cursor to the first or last line."""
        self.move_cursor(self.line_count - 1 if last else 0, announce=True)

    def action_choose(self) -> None:
        """Report that the line at the cursor was chosen."""
        if self.line_count:
            self.post_message(self.Chosen(self, self.cursor))
        else:
            raise SkipAction  # Enter in an empty list is the pane's

    def on_click(self, event: events.Click) -> None:
        """Move to the line clicked; a second click chooses it."""
        row = event.get_content_offset(self)
        if row is None:
            return
        if row.y < self.HEADER_ROWS:
            self.header_clicked(row.x)
            return
        index = row.y - self.HEADER_ROWS + self.scroll_offset.y
        if 0 <= index < self.line_count:
            self.move_cursor(index, announce=True)
            if event.chain == 2:
                self.action_choose()

    def header_clicked(self, x: int) -> None:
        """Hear of a click on the header at column `x`."""

    def on_resize(self) -> None:
        """Keep the cursor in sight."""
        if self.size != self._fitted:  # it is the same where the list only comes in sight again
            self._fitted = self.size
            self.content_changed()
        self.reveal()

    def watch_show_vertical_scrollbar(self, is_shown: bool) -> None:
        """Put a new bar where the list was scrolled to before it had one."""
        if is_shown:
            self.vertical_scrollbar.position = self.scroll_y

    def on_focus(self) -> None:
        """Show the cursor as the one that keys move."""
        self.refresh_lines_at((self.cursor,))

    def on_blur(self) -> None:
        """Show the cursor as one that keys do not move."""
        self.refresh_lines_at((self.cursor,))


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
        """The row at the cursor, or None without rows."""
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
