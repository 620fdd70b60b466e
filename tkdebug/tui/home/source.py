"""The annotated source: a gutter of columns that do not move, and the code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.strip import Strip

from tkdebug.instrument.home.records import Place
from tkdebug.tui.drawing import palette
from tkdebug.tui.drawing.display import shown, shown_code
from tkdebug.tui.home.sheet import Row
from tkdebug.tui.widgets.code_view import code_strip
from tkdebug.tui.widgets.line_list import LineList

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_BAR_CELLS = 4
_HEAT_CELLS = _BAR_CELLS + 4  # the bar, and per cent
_CUT = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"
_LEAST_SHARE = 0.005
_MUTED = Style.parse(palette.MUTED)


class HomeSource(LineList, inherit_bindings=False):
    """Rows of a sheet; the cursor stays on lines of code."""

    KEEPS_COLOURS = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "Line", key_display="j k"),
        Binding("up,k", "move(-1)", "Line above", show=False),
        Binding("pageup", "move_page(-1)", "Page up", show=False),
        Binding("pagedown", "move_page(1)", "Page down", show=False),
        Binding("home", "move_to_end(False)", "First", show=False),
        Binding("end,G", "move_to_end(True)", "Last", show=False),
        Binding("enter", "choose", "Kernel tab", show=False),
    ]
    DEFAULT_CSS = """
    HomeSource { overflow-x: hidden; scrollbar-size-horizontal: 0; }
    """

    def __init__(self) -> None:
        super().__init__(id="home-source")
        self._rows: Sequence[Row] = ()
        self._breakpoints: Mapping[Place, str] = {}
        self._digits = 2
        self._hottest = 0.0

    @property
    def line_count(self) -> int:
        """The number of rows."""
        return len(self._rows)

    def line_text(self, index: int) -> str:
        """The code of a row."""
        row = self._rows[index]
        return row.text if row.kind == "line" else ""

    @property
    def place(self) -> Place | None:
        """The place of the line at the cursor, or None."""
        return self._rows[self.cursor].place if self._rows else None

    @property
    def is_whole(self) -> bool:
        """Whether all of the line at the cursor fits."""
        row = self._rows[self.cursor] if self._rows else None
        room = self.scrollable_content_region.width - self.gutter_width
        return row is None or cell_len(row.text) + 2 * row.depth + 5 <= room

    def index_of_line(self, line: int) -> int | None:
        """Return the index of the row of that line, or None if it is not there."""
        found = (i for i, row in enumerate(self._rows) if row.kind == "line")
        return next((i for i in found if self._rows[i].place.line == line), None)

    def show_rows(self, rows: Sequence[Row]) -> None:
        """Show other rows; the cursor stays where it is, if its line is there."""
        if rows and rows == self._rows:
            return
        place = self.place
        self._rows = rows
        self._digits = max((len(str(row.place.line)) for row in rows), default=2)
        self._hottest = max((row.heat or 0.0 for row in rows), default=0.0)
        if place is not None and not self.go_to(place):
            self.cursor = self._line_near(0)
        self.content_changed()

    def show_breakpoints(self, marks: Mapping[Place, str]) -> None:
        """Show other breakpoints."""
        if marks != self._breakpoints:
            self._breakpoints = marks
            self.refresh()

    def go_to(self, place: Place, *, centre: bool = False) -> bool:
        """Put the cursor on a line, and return whether it is there."""
        index = self._index_of(place)
        if index is None:
            return False
        above = max(0, self.visible_rows // 2 - 1) if centre else None
        last = index + 1 if self._is_caret(index + 1) else index
        super().move_cursor(index, last=None if centre else last, lines_above=above)
        return True

    def _index_of(self, place: Place) -> int | None:
        rows = enumerate(self._rows)
        return next((i for i, row in rows if row.place == place and row.kind == "line"), None)

    def _is_caret(self, index: int) -> bool:
        return index < len(self._rows) and self._rows[index].kind == "caret"

    def move_cursor(
        self,
        index: int,
        *,
        announce: bool = False,
        last: int | None = None,
        lines_above: int | None = None,
    ) -> None:
        """Put the cursor on the line nearest to a row, beyond it in the direction of the move."""
        index = max(0, min(index, self.line_count - 1))
        step = 1 if index >= self.cursor else -1
        near = self._line_near(index, step)
        super().move_cursor(near, announce=announce, last=last, lines_above=lines_above)

    def _line_near(self, index: int, step: int = 1) -> int:
        for direction in (step, -step):
            at = index
            while 0 <= at < len(self._rows):
                if self._rows[at].kind == "line":
                    return at
                at += direction
        return 0

    def content_changed(self) -> None:
        """Refresh; the rows are as wide as the widget, as what is cut is in the panel."""
        self.cursor = max(0, min(self.cursor, self.line_count - 1))
        self.virtual_size = Size(0, self.line_count)
        self.refresh()

    @property
    def gutter_width(self) -> int:
        """Cells before the code."""
        return 4 + _HEAT_CELLS + 1 + self._digits + 1

    def render_item(self, index: int, width: int, left: int) -> Strip:
        """Draw one row."""
        row = self._rows[index]
        if row.kind == "fold":
            return Strip([Segment(" " * (self.gutter_width + 2) + row.text, _MUTED)])
        room = max(0, width - self.gutter_width)
        rails = "│ " * row.depth
        if row.kind == "caret":
            return self._caret(row, rails, room)
        return Strip([*self._gutter(index, row), *self._code(row, rails, room)])

    def _caret(self, row: Row, rails: str, room: int) -> Strip:
        style = Style.parse(palette.FAULT if row.level == "fault" else palette.WARNING)
        line = next((r.text for r in self._rows if r.place == row.place), "")
        column = cell_len(shown_code(line[: row.column], 2_000)) + len(rails)
        said = shown(row.text, 300)
        if column + 8 > room:
            column = 0
        text = " " * column + "^ " + said
        if cell_len(text) > room and column > 30:  # what is said matters more than where
            column = max(0, room - 2 - cell_len(said))
            text = " " * column + "^ " + said
        return Strip([Segment(" " * self.gutter_width), Segment(_cut(text, room), style)])

    def _gutter(self, index: int, row: Row) -> list[Segment]:
        mark, style = " ", palette.GOOD
        if index == self.cursor:
            mark = "▌"
        elif breakpoint := self._breakpoints.get(row.place):
            mark, style = palette.MARKS[breakpoint]
        fault, fault_style = palette.MARKS.get(row.level, (" ", ""))
        segments = [
            Segment(mark, Style.parse(style)),
            Segment(fault, Style.parse(fault_style)),
            Segment("◆" if row.has_advice else " ", Style.parse(palette.ADVICE)),
            Segment("◉" if row.has_values else " ", Style.parse(palette.VALUE)),
        ]
        segments += self._heat(row.heat or 0.0)
        number = f" {row.place.line:>{self._digits}} "
        segments.append(Segment(number, _MUTED))
        return segments

    def _heat(self, share: float) -> list[Segment]:
        if share <= 0 or not self._hottest:
            return [Segment(" " * _HEAT_CELLS)]
        part = share / self._hottest
        level = min(4, math.floor(5 * math.sqrt(part)))
        eighths = max(1, round(part * _BAR_CELLS * 8))
        whole, rest = divmod(eighths, 8)
        bar = ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(_BAR_CELLS)
        number = f"{share:>4.0%}" if share >= _LEAST_SHARE else "    "
        return [
            Segment(bar, Style.parse(palette.HEAT[level])),
            Segment(number, _MUTED if level < 3 else Style(bold=True)),
        ]

    def _code(self, row: Row, rails: str, room: int) -> list[Segment]:
        sign = f"  ▸{row.calls}" if row.calls else ""
        code = code_strip(row.text, row.spans)
        if rails:
            code = Strip([Segment(rails, _MUTED), *code])
        left = max(0, room - len(sign))
        if code.cell_length > left:
            code = Strip([*code.crop(0, max(0, left - 1)), Segment(_CUT, _MUTED)])
        return [*code, Segment(sign, Style.parse(palette.GOOD))]


def _cut(text: str, width: int) -> str:
    """Return a text in at most so many cells, with a sign where it goes on."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)) + _CUT
