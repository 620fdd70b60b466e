"""Code with line numbers, a gutter for marks, a cursor, and the lines lit that belong to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.strip import Strip

from tkdebug.tui.drawing.display import shown_code
from tkdebug.tui.drawing.highlight import MAX_LINE_CHARS, Spans
from tkdebug.tui.drawing.lines import Code
from tkdebug.tui.drawing.palette import CODE_STYLES, MARKS
from tkdebug.tui.widgets.line_list import LineList

_EMPTY = Code()


class CodeView(LineList):
    """Shows `Code`; the gutter stays in place when the text scrolls sideways."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "Across")]
    COMPONENT_CLASSES: ClassVar[set[str]] = {"code--lit", "code--gutter", "code--lit-gutter"}
    DEFAULT_CSS = """
    CodeView {
        & > .code--gutter { color: #6f7b8a; }
        & > .code--lit { background: $warning 25%; }
        & > .code--lit-gutter { color: $warning; text-style: bold; }
    }
    """

    # Beside the number of a line that is lit.
    LIT_SIGN: ClassVar[str] = "▌"

    class GutterClicked(LineList.OfLine):
        """The gutter was clicked, beside a line."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._code = _EMPTY
        self._lit: frozenset[int] = frozenset()
        self._marks: Mapping[int, str] = {}
        self._width = 0

    @property
    def code(self) -> Code:
        """The code that is shown."""
        return self._code

    @property
    def line(self) -> int:
        """The line number at the cursor."""
        return self.cursor + self._code.first_line

    @property
    def lit(self) -> frozenset[int]:
        """The numbers of the lines that are lit."""
        return self._lit

    @property
    def line_count(self) -> int:
        """The number of lines."""
        return len(self._code.lines)

    @property
    def content_width(self) -> int:
        """Gutter and the widest line."""
        return self._width

    def index_of_line(self, line: int) -> int | None:
        """Return the index of the line of that number in the gutter, or None."""
        return self._code.index(line)

    def line_text(self, index: int) -> str:
        """The code of a line."""
        return self._code.lines[index]

    def show_code(self, code: Code, marks: Mapping[int, str]) -> None:
        """Show other code, with the cursor on its first line."""
        self._code, self._marks, self._lit = code, marks, frozenset()
        self.cursor = 0
        widest = max((len(line[:MAX_LINE_CHARS].expandtabs(4)) for line in code.lines), default=0)
        self._width = self._gutter_width + widest
        self.content_changed()
        self.scroll_to(0, 0, animate=False, force=True, immediate=True)

    def show_marks(self, marks: Mapping[int, str]) -> None:
        """Replace the marks in the gutter."""
        if marks != self._marks:
            self._marks = marks
            self.refresh()

    def light(self, lines: Iterable[int], *, scroll: bool) -> None:
        """Highlight the lines of these numbers and scroll to the first one."""
        before, self._lit = self._lit, frozenset(lines)
        indices = [i for i in map(self._code.index, sorted(self._lit)) if i is not None]
        if scroll and indices:
            self.move_cursor(indices[0], last=indices[-1])
        self.refresh_lines_at(line - self._code.first_line for line in before ^ self._lit)

    def go_to(self, line: int, top: int | None = None) -> bool:
        """Put the cursor on the line of that number, and return whether there is one.

        Args:
            line: the line's number.
            top: the number of the line to have on top; None: scroll no further than needed.
        """
        index = self._code.index(line)
        if index is None:
            return False
        self.move_cursor(index, last=index, lines_above=None if top is None else line - top)
        return True

    @property
    def _gutter_width(self) -> int:
        return len(str(self._code.first_line + max(0, self.line_count - 1))) + 4

    def on_click(self, event: events.Click) -> None:
        """Move to the line clicked; report clicks on the gutter."""
        place = event.get_content_offset(self)
        if place is None or place.x >= self._gutter_width:
            super().on_click(event)
            return
        event.prevent_default()
        index = place.y + self.scroll_offset.y
        if 0 <= index < self.line_count:
            self.move_cursor(index, announce=True)
            self.post_message(self.GutterClicked(self, index))

    def render_item(self, index: int, width: int, left: int) -> Strip:
        """Draw mark, bar, number and code of a line."""
        number = index + self._code.first_line
        lit = number in self._lit
        mark, mark_style = MARKS.get(self._marks.get(number, ""), (" ", ""))
        gutter_style = self.get_component_rich_style(
            "code--lit-gutter" if lit else "code--gutter", partial=True
        )
        digits = self._gutter_width - 4
        gutter = [
            Segment(mark, Style.parse(mark_style)),
            Segment(self.LIT_SIGN if lit else " ", gutter_style),
            Segment(f"{number:>{digits}}  ", gutter_style),
        ]
        code = self._code_strip(index).crop(left, left + max(0, width - self._gutter_width))
        if lit:
            style = self.get_component_rich_style("code--lit")
            background = Style(bgcolor=style.bgcolor)
            room = max(0, width - self._gutter_width)
            code = code.adjust_cell_length(room, background)
            code = Strip([Segment(t, (s or Style.null()) + background) for t, s, _ in code])
        return Strip([*gutter, *code])

    def _code_strip(self, index: int) -> Strip:
        spans: Spans = self._code.spans[index] if index < len(self._code.spans) else ()
        return code_strip(self._code.lines[index], spans)


def code_strip(line: str, spans: Spans) -> Strip:
    """A line of code in its colours, its tabs as columns, made harmless."""
    raw = line[:MAX_LINE_CHARS]
    segments: list[Segment] = []
    at = column = 0

    def put(end: int, style: Style | None) -> None:
        nonlocal at, column
        # Tab stops depend on the column, so each piece is expanded where it stands.
        text = (" " * (column % 4) + raw[at:end]).expandtabs(4)[column % 4 :]
        text = shown_code(text, len(text) + 1)
        segments.append(Segment(text, style))
        at, column = end, column + cell_len(text)

    for begin, end, category in spans:
        if begin < at or end > len(raw):
            continue
        if begin > at:
            put(begin, None)
        put(end, CODE_STYLES[category])
    if at < len(raw):
        put(len(raw), None)
    return Strip(segments)
