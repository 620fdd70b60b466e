"""The lines that a launch has passed: a slider over all of them, and a list of nearby ones."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip

from tkdebug.debugger.remote.records import PassedLine, Timeline
from tkdebug.tui.debug.source import LineText
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.widgets.line_list import LineList
from tkdebug.tui.widgets.rows_view import OwnRows

_LABEL = " time "
_NONE_YET = "no line was passed yet"


class MomentChosen(Message):
    """A request to go to a moment, as the console's `moment` takes it."""

    def __init__(self, moment: str) -> None:
        self.moment = moment
        super().__init__()


class AroundWanted(Message):
    """A request for the lines around another one, by its index among all."""

    def __init__(self, index: int) -> None:
        self.index = index
        super().__init__()


class TimeSlider(OwnRows, can_focus=True):
    """One row: the stop's place among the lines passed. ← → look at others, Enter goes there."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "look(-1)", "Earlier", show=False),
        Binding("right", "look(1)", "Later", show=False),
        Binding("pageup,shift+left", "look_far(-1)", "Much earlier", show=False),
        Binding("pagedown,shift+right", "look_far(1)", "Much later", show=False),
        Binding("home", "look_at(0)", "First", show=False),
        Binding("end", "look_at(-1)", "Last", show=False),
        Binding("enter", "go", "Go there"),
    ]
    DEFAULT_CSS = """
    TimeSlider { height: 1; background: $panel; }
    TimeSlider:focus { background: $primary 40%; }
    """

    def __init__(self, line_text: LineText, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._line_text = line_text
        self._timeline: Timeline | None = None
        self._index = 0
        self._why_none = _NONE_YET

    def show(
        self, timeline: Timeline | None, *, keeps_place: bool = False, why_none: str = ""
    ) -> None:
        """Show other lines; the handle is at the stop unless it `keeps_place`."""
        self._timeline, self._why_none = timeline, why_none or _NONE_YET
        if timeline is not None and not keeps_place:
            self._index = max(0, timeline.now)
        self.refresh()

    @property
    def index(self) -> int:
        """The index, among all lines passed, of the one at the handle."""
        return self._index

    def put(self, index: int) -> None:
        """Put the handle on a line."""
        self._index = index
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw the slider, and the line at its handle."""
        width, timeline = self.size.width, self._timeline
        base = self.base_style
        if timeline is None or not timeline.total:
            text = f"{_LABEL}{self._why_none}"
            strip = Strip([Segment(text, Style.parse(palette.MUTED))])
            return strip.adjust_cell_length(width).apply_style(base)
        bar = self._bar_width
        at, now = self._column(self._index), self._column(timeline.now)
        track = ["─"] * bar
        track[now] = "┼"
        track[at] = "●"
        sign = "at" if self._index == timeline.now else "→"
        text = f" {display.count(self._index + 1)}/{display.count(timeline.total)} {sign} "
        segments = [
            Segment(_LABEL, Style.parse(palette.LABEL)),
            Segment("".join(track), Style.parse(palette.GOOD)),
            Segment(text + self._shown(timeline)),
        ]
        return Strip(segments).adjust_cell_length(width).apply_style(base)

    def _shown(self, timeline: Timeline) -> str:
        line = _line_of(timeline, self._index)
        if line is None:
            return "…"
        return f"line {line.place.line}: {display.shown(self._line_text(line.place), 200)}"

    @property
    def _bar_width(self) -> int:
        return max(8, min(40, self.size.width // 3))

    def _column(self, index: int) -> int:
        total = self._timeline.total if self._timeline is not None else 1
        share = max(0, index) / max(1, total - 1)
        return min(self._bar_width - 1, round(share * (self._bar_width - 1)))

    def action_look(self, step: int) -> None:
        """Look at the line before, or after."""
        self._look_at(self._index + step)

    def action_look_far(self, step: int) -> None:
        """Look a twentieth of all lines further."""
        total = self._timeline.total if self._timeline is not None else 0
        self._look_at(self._index + step * max(1, total // 20))

    def action_look_at(self, index: int) -> None:
        """Look at the first line, or the last one."""
        total = self._timeline.total if self._timeline is not None else 0
        self._look_at(index if index >= 0 else total - 1)

    def _look_at(self, index: int) -> None:
        timeline = self._timeline
        if timeline is None or not timeline.total:
            return
        self._index = max(0, min(index, timeline.total - 1))
        self.refresh()
        self.post_message(AroundWanted(self._index))

    def on_click(self, event: events.Click) -> None:
        """Look at the moment clicked; a second click goes there."""
        timeline, column = self._timeline, event.x - len(_LABEL)
        if timeline is None or not 0 <= column < self._bar_width:
            return
        self._look_at(round(column / max(1, self._bar_width - 1) * (timeline.total - 1)))
        if event.chain == 2:
            self.action_go()

    def action_go(self) -> None:
        """Go to the line at the handle."""
        line = None if self._timeline is None else _line_of(self._timeline, self._index)
        if line is not None:
            self.post_message(MomentChosen(line.moment))


class TimeLog(LineList):
    """The lines passed around the slider's handle, one a row."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "Go there")]

    def __init__(self, line_text: LineText, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._line_text = line_text
        self._timeline: Timeline | None = None
        self.empty_text = _NONE_YET

    def show(self, timeline: Timeline | None, index: int | None = None) -> None:
        """Show other lines, with the cursor at that index; None for the stop's."""
        self._timeline = timeline
        self.content_changed()
        if timeline is not None and timeline.lines:
            at = max(0, timeline.now if index is None else index) - timeline.first
            self.move_cursor(at, last=at)
        self.refresh()

    @property
    def index(self) -> int:
        """The index, among all lines passed, of the one at the cursor."""
        return self.cursor + (self._timeline.first if self._timeline is not None else 0)

    @property
    def moment(self) -> str | None:
        """The moment at which the line at the cursor was passed, or None without a line."""
        line = None if self._timeline is None else _line_of(self._timeline, self.index)
        return None if line is None else line.moment

    @property
    def line_count(self) -> int:
        """The number of lines."""
        return 0 if self._timeline is None else len(self._timeline.lines)

    def line_text(self, index: int) -> str:
        """Return number and text of the line."""
        assert self._timeline is not None
        place = self._timeline.lines[index].place
        return f"{place.line}  {self._line_text(place)}"

    def render_item(self, index: int, width: int, left: int) -> Strip:
        """Draw a line: a sign at the stop, the number of programs, line number and text."""
        timeline = self._timeline
        assert timeline is not None
        line = timeline.lines[index]
        sign = "▶" if index + timeline.first == timeline.now else " "
        style = Style.parse("" if line.is_of_shown else palette.MUTED)
        text = f"{line.programs:>5}  {line.place.line:>4}  "
        text += display.shown_code(self._line_text(line.place), max(1, width))
        return Strip([Segment(sign, Style.parse(palette.GOOD)), Segment(text, style)])


def _line_of(timeline: Timeline, index: int) -> PassedLine | None:
    at = index - timeline.first
    return timeline.lines[at] if 0 <= at < len(timeline.lines) else None
