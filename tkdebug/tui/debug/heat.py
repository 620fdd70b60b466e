"""A tile as a map of cells: sign and magnitude by shade, NaN and infinities by name.

A cell is two characters wide. It reads without colour, too: negative ones begin with a minus.
"""

from __future__ import annotations

import math
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip

from tkdebug.debugger.remote.records import HeatMap
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.widgets.rows_view import OwnRows

_SHADES = "░▒▓█"
_NEGATIVE, _POSITIVE, _ODD = palette.FAULT, palette.GOOD, f"bold reverse {palette.WARNING}"
_CELL_WIDTH = 2
_CURSOR = "[]"
# Above the cells: whose they are, what is at the cursor; below: what there is of which sign.
_ROWS_ABOVE, _ROWS_BELOW = 2, 1


def cell_text(value: float | None, largest: float) -> tuple[str, str]:
    """Return two characters for a value, and their style."""
    if value is None:
        return "  ", ""
    if math.isnan(value):
        return "NN", _ODD
    if math.isinf(value):
        return ("+∞" if value > 0 else "-∞"), _ODD
    if value == 0 or not largest:
        return " ·", palette.MUTED
    level = min(len(_SHADES) - 1, int(abs(value) / largest * len(_SHADES)))
    shade = _SHADES[level]
    return (shade * 2, _POSITIVE) if value > 0 else (f"-{shade}", _NEGATIVE)


class HeatMapView(OwnRows, can_focus=True):
    """Shows a `HeatMap`; the arrows move over its cells, Enter draws the part around one larger."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1, 0)", "Up", show=False),
        Binding("down,j", "move(1, 0)", "Down", show=False),
        Binding("left", "move(0, -1)", "Left", show=False),
        Binding("right", "move(0, 1)", "Right", show=False),
        Binding("enter", "enlarge", "Enlarge"),
        Binding("escape", "whole", "Whole tile", show=False),
        Binding("left_square_bracket", "plane(-1)", "Previous plane", show=False),
        Binding("right_square_bracket", "plane(1)", "Next plane", show=False),
    ]
    DEFAULT_CSS = """
    HeatMapView { background: $surface; }
    HeatMapView:focus { background: $surface-lighten-1; }
    """

    class Zoomed(Message):
        """A request for another part of the tile: its first and its end element; () for all."""

        def __init__(self, begin: tuple[int, ...], end: tuple[int, ...]) -> None:
            self.begin, self.end = begin, end
            super().__init__()

    class ProgramPicked(Message):
        """A program picked by Enter on its value, named as the console takes it."""

        def __init__(self, program: str) -> None:
            self.program = program
            super().__init__()

    class PlaneTurned(Message):
        """A request for another plane of the tile, so many further."""

        def __init__(self, step: int) -> None:
            self.step = step
            super().__init__()

    class RoomChanged(Message):
        """A change of the number of cells that fit."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._heat: HeatMap | None = None
        self._row = self._column = 0

    @property
    def room(self) -> tuple[int, int]:
        """Return how many rows and columns of cells fit."""
        size = self.content_size
        rows = size.height - _ROWS_ABOVE - _ROWS_BELOW
        return max(1, rows), max(1, size.width // _CELL_WIDTH)

    def show(self, heat: HeatMap | None) -> None:
        """Show another map; the cursor stays where it is if it can."""
        self._heat = heat
        self._clamp()
        self.refresh()

    @property
    def text(self) -> str:
        """The text that can be copied: the element at the cursor."""
        return "" if self._heat is None else self._at_cursor(self._heat)

    def on_resize(self) -> None:
        """Ask for as many cells as fit now."""
        self.post_message(self.RoomChanged())

    def render_line(self, y: int) -> Strip:
        """Draw one row."""
        width, heat = self.size.width, self._heat
        if heat is None:
            text = "no variable to draw" if y == 0 else ""
            return self._line(text, palette.MUTED, width)
        if y == 0:
            return self._line(_title(heat), palette.STRONG, width)
        if y == 1:
            return self._line(self._at_cursor(heat), palette.LABEL, width)
        row = y - _ROWS_ABOVE
        if row == len(heat.cells):
            return self._line(_legend(heat), palette.MUTED, width)
        if row > len(heat.cells):
            return self._line("", "", width)
        segments = []
        for column, value in enumerate(heat.cells[row]):
            text, style = cell_text(value, heat.largest)
            if self.has_focus and (row, column) == (self._row, self._column):
                text, style = _CURSOR, "bold reverse"  # a shade reversed is another shade
            segments.append(Segment(text, Style.parse(style)))
        return Strip(segments).adjust_cell_length(width).apply_style(self.base_style)

    def _line(self, text: str, style: str, width: int) -> Strip:
        strip = Strip([Segment(display.shown(text, max(1, width)), Style.parse(style))])
        return strip.adjust_cell_length(width).apply_style(self.base_style)

    def _at_cursor(self, heat: HeatMap) -> str:
        if not heat.cells:
            return "no elements"
        value = heat.cells[self._row][self._column]
        shown = "" if value is None else f" = {value:.6g}"
        is_whole = value is None or all(step == 1 for step in heat.step)
        which = "one" if value is not None and math.isnan(value) else "the largest"
        many = "" if is_whole else f", {which} of these"
        if heat.labels:
            index = self._label_index(heat)
            at = heat.labels[index] if index < len(heat.labels) else "-"
            return f"program {at}{shown}{many}"
        return f"{heat.name}[{self._slices(heat)}]{shown}{many}"

    def _label_index(self, heat: HeatMap) -> int:
        return (self._row * max(1, heat.wrap) + self._column) * heat.step[0]

    def _slices(self, heat: HeatMap) -> str:
        begin, end = self._elements(heat)
        parts = [str(place) for place in heat.plane]
        parts += [str(b) if e - b <= 1 else f"{b}:{e}" for b, e in zip(begin, end, strict=True)]
        return ", ".join(parts)

    def _elements(self, heat: HeatMap) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the elements of the cell at the cursor: the first, and one past the last."""
        cells: tuple[int, ...] = (self._row, self._column)
        if len(heat.step) == 1:
            cells = (self._row * heat.wrap + self._column,)
        begin = tuple(b + c * s for b, c, s in zip(heat.begin, cells, heat.step, strict=True))
        end = tuple(min(b + s, last) for b, s, last in zip(begin, heat.step, heat.end, strict=True))
        return begin, end

    def _clamp(self) -> None:
        cells = self._heat.cells if self._heat is not None else ()
        self._row = max(0, min(self._row, len(cells) - 1))
        self._column = max(0, min(self._column, len(cells[0]) - 1)) if cells else 0

    def action_move(self, rows: int, columns: int) -> None:
        """Move the cursor."""
        self._row, self._column = self._row + rows, self._column + columns
        self._clamp()
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on the cell clicked."""
        self._row, self._column = event.y - _ROWS_ABOVE, event.x // _CELL_WIDTH
        self._clamp()
        self.refresh()

    def action_enlarge(self) -> None:
        """Draw a quarter of each axis, around the cursor; select the program of a scalar."""
        heat = self._heat
        if heat is not None and heat.labels and heat.step == (1,):
            if (index := self._label_index(heat)) < len(heat.labels):
                self.post_message(self.ProgramPicked(heat.labels[index].strip("()")))
            return
        if heat is None or not heat.cells or all(step == 1 for step in heat.step):
            self.app.notify("each cell is an element already", timeout=2)
            return
        begin, end = self._elements(heat)
        found = []
        for b, e, low, high in zip(begin, end, heat.begin, heat.end, strict=True):
            length = max(1, -(-(high - low) // 4))
            start = max(low, min((b + e - length) // 2, high - length))
            found.append((start, start + length))
        self._row = self._column = 0
        self.post_message(self.Zoomed(tuple(f[0] for f in found), tuple(f[1] for f in found)))

    def action_whole(self) -> None:
        """Draw the whole tile."""
        self.post_message(self.Zoomed((), ()))

    def action_plane(self, step: int) -> None:
        """Draw another plane of a tile of more than two axes."""
        self.post_message(self.PlaneTurned(step))


def _title(heat: HeatMap) -> str:
    whose = f" of program {heat.program}" if heat.program else ""
    if heat.labels:
        whose = " in the programs here"
    part = ""
    if heat.begin != (0,) * len(heat.begin) or heat.end != heat.shape:
        slices = (f"{b}:{e}" for b, e in zip(heat.begin, heat.end, strict=True))
        part = f"  [{', '.join(slices)}], Esc: all"
    elif heat.plane:
        part = f"  plane {list(heat.plane)}, [ ]: others"
    return f"{heat.name}  {heat.kind}{whose}{part}"


def _legend(heat: HeatMap) -> str:
    names = ("negative", "zero", "positive", "NaN", "Inf")
    counts = [
        f"{display.count(number)} {name}"
        for number, name in zip(heat.counts, names, strict=True)
        if number
    ]
    shades = f"█ to {heat.largest:.4g}   " if heat.largest else ""
    return shades + ", ".join(counts)
