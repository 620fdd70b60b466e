"""Launches in time: a row for each stream, each kernel in its own fill and colour."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widget import Widget

from tkdebug.instrument.home.pictures import TIMES
from tkdebug.instrument.home.records import LaunchModel, RunModel, Span, TimeStrip, Track
from tkdebug.tui.drawing import palette
from tkdebug.tui.drawing.display import duration, shown

MOST_TRACKS = 4
_LABEL_CELLS = 22
_BORDER = "▐"
_ZOOM = 1.6
_LEAST_WINDOW_NS = 100.0
# A cell in which less of the time is used is dimmed.
_LEAST_BUSY = 0.4
_TICK_CELLS = 12


def kernel_style(number: int) -> str:
    """The colour of a kernel, by its place in the order of shares."""
    last = len(palette.KERNELS) - 1
    return palette.KERNELS[min(number, last) if number >= 0 else last]


def kernel_fill(number: int) -> str:
    """The fill of a kernel, by its place in the order of shares."""
    last = len(palette.KERNEL_FILLS) - 1
    return palette.KERNEL_FILLS[min(number, last) if number >= 0 else last]


@dataclass(frozen=True, slots=True)
class Window:
    """A part of the time of a run."""

    begin_ns: float
    end_ns: float

    @property
    def span_ns(self) -> float:
        """Its length."""
        return max(1.0, self.end_ns - self.begin_ns)

    def zoomed(self, factor: float, whole_ns: float, around_ns: float | None) -> Window:
        """Return a longer or shorter window, within the whole, around a time."""
        span = min(whole_ns, max(_LEAST_WINDOW_NS, self.span_ns * factor))
        middle = (self.begin_ns + self.end_ns) / 2 if around_ns is None else around_ns
        begin = max(0.0, min(middle - span / 2, whole_ns - span))
        return Window(begin, begin + span)

    def showing(self, begin_ns: float, end_ns: float, whole_ns: float) -> Window:
        """Return a window of the same length that shows a span of time."""
        if self.begin_ns <= begin_ns and end_ns <= self.end_ns:
            return self
        begin = max(0.0, min(begin_ns - self.span_ns / 4, whole_ns - self.span_ns))
        return Window(begin, begin + self.span_ns)


class TimeStripView(Widget):
    """The strip: a row of times, and rows of tracks.

    Attributes:
        window: the part that is shown.
        launch: the chosen launch, None for none.
    """

    DEFAULT_CSS = "TimeStripView { height: auto; width: 1fr; }"

    class Chosen(Message):
        """A launch was clicked."""

        def __init__(self, seq: int) -> None:
            self.seq = seq
            super().__init__()

    def __init__(self) -> None:
        super().__init__(id="home-strip")
        self._model: RunModel | None = None
        self._strip: TimeStrip | None = None
        self._faulty: frozenset[int] = frozenset()
        self.window = Window(0, 1)
        self.launch: LaunchModel | None = None
        self.most_tracks = MOST_TRACKS
        self.has_head = True

    def show_model(self, model: RunModel) -> None:
        """Show the launches of a model; a window that was zoomed stays."""
        before = self._strip
        is_whole = before is None or self.window.span_ns >= before.end_ns
        self._model, self._strip = model, model.strip
        self._faulty = frozenset(one.seq for one in model.launches if one.faults)
        if is_whole:
            self.window = Window(0, max(1, self._strip.end_ns))
        self.refresh(layout=True)

    def show_launch(self, launch: LaunchModel | None) -> None:
        """Choose a launch, and bring it in sight."""
        self.launch = launch
        span = self._span_of(launch)
        if span is not None and self._strip is not None:
            begin, end = span.start_ns, span.start_ns + span.duration_ns
            self.window = self.window.showing(begin, end, self._strip.end_ns)
        self.refresh()

    def zoom(self, is_in: bool) -> None:
        """Show a shorter or longer time, around the chosen launch."""
        if self._strip is None:
            return
        span = self._span_of(self.launch)
        around = None if span is None else span.start_ns + span.duration_ns / 2
        factor = 1 / _ZOOM if is_in else _ZOOM
        self.window = self.window.zoomed(factor, max(1, self._strip.end_ns), around)
        self.refresh()

    def _span_of(self, launch: LaunchModel | None) -> Span | None:
        if launch is None or self._strip is None:
            return None
        spans = (span for track in self._strip.tracks for span in track.spans)
        return next((span for span in spans if span.launch == launch.seq), None)

    @property
    def _tracks(self) -> Sequence[Track]:
        return () if self._strip is None else self._strip.tracks[: self.most_tracks]

    @property
    def row_count(self) -> int:
        """The rows that it takes."""
        return len(self._tracks) + (1 if self.has_head and self._tracks else 0)

    def get_content_height(self, *args: object) -> int:
        """Return the rows that it takes."""
        return self.row_count

    @property
    def _label_cells(self) -> int:
        return _LABEL_CELLS if self.size.width >= 100 else 0

    def render(self) -> Text:
        """Draw times and tracks."""
        width = self.size.width - self._label_cells
        lines = [self._head(width)] if self.has_head and self._tracks else []
        lines += [self._track(track, width) for track in self._tracks]
        return Text("\n", no_wrap=True).join(lines)

    def _head(self, width: int) -> Text:
        """Return the times, or the chosen launch in words."""
        window = self.window
        line = Text(no_wrap=True, overflow="ellipsis")
        if self._label_cells:
            said = f"{duration(window.span_ns)}  [ ] zoom"
            line.append(f" {said:<{self._label_cells - 1}}", style=palette.MUTED)
        rest = self._hidden_text()
        room = width - len(rest)
        if self.launch is not None and self._model is not None:
            launch = self._launch_text(self.launch)
            launch.truncate(max(0, room), pad=True)
            line.append_text(launch)
        else:
            line.append(_ticks(window, max(0, room)), style=palette.MUTED)
        line.append(rest, style=palette.MUTED)
        return line

    def _hidden_text(self) -> str:
        more = 0 if self._strip is None else len(self._strip.tracks) - len(self._tracks)
        step = 0 if self._strip is None else self._strip.step_ns
        parts = [f"and {more} more stream{'s' * (more > 1)}"] if more > 0 else []
        parts += [f"launches within {duration(step)} are one bar"] if step else []
        return ", ".join(parts)

    def _launch_text(self, launch: LaunchModel) -> Text:
        assert self._model is not None
        kernels = self._model.kernels
        name = kernels[launch.kernel].name if 0 <= launch.kernel < len(kernels) else "?"
        text = Text()
        text.append(f"{kernel_fill(launch.kernel)} ", style=kernel_style(launch.kernel))
        text.append(f"launch {launch.id} {shown(name, 40)}", style=palette.STRONG)
        grid = f" {TIMES} ".join(map(str, launch.grid[: 3 if launch.grid[2] > 1 else 2]))
        grid = grid if launch.grid[1] > 1 or launch.grid[2] > 1 else str(launch.grid[0])
        text.append(f"  grid {grid}")
        if launch.duration_ns is not None:
            text.append(f"  {duration(launch.duration_ns)} {launch.basis}")
        if launch.faults:
            text.append(f"  ✖ {len(launch.faults)}", style=palette.FAULT)
        if launch.error:
            text.append(f"  ✖ {shown(launch.error, 60)}", style=palette.FAULT)
        return text

    def _track(self, track: Track, width: int) -> Text:
        window = self.window
        line = Text(no_wrap=True)
        if self._label_cells:
            used = sum(_inside(span, window) for span in track.spans)
            if track.basis == "measured":
                said = f"busy {100 * min(1.0, used / window.span_ns):.0f} %"
            else:
                said = track.basis
            room = self._label_cells - len(said) - 3
            if room < len(track.name):  # the name matters more
                said, room = "", self._label_cells - 3
            line.append(f" {shown(track.name, room):<{room}} ", style=palette.LABEL)
            line.append(f"{said} ", style=palette.MUTED)
        for cell in self._cells(track, max(1, width)):
            line.append(*cell)
        return line

    def _cells(self, track: Track, width: int) -> list[tuple[str, str]]:
        """Return a character and a style for each cell of a track."""
        window, each = self.window, self.window.span_ns / width
        busy: list[dict[int, float]] = [defaultdict(float) for _ in range(width)]
        chosen: set[int] = set()
        faulty: set[int] = set()
        starts: set[int] = set()
        for span in track.spans:
            begin, end = span.start_ns - window.begin_ns, 0.0
            end = begin + max(1, span.duration_ns)
            if end <= 0 or begin >= window.span_ns:
                continue
            first = max(0, int(begin / each))
            last = min(width - 1, math.ceil(end / each) - 1)
            part = span.busy_ns / max(1, span.duration_ns)
            for cell in range(first, max(first, last) + 1):
                inside = min(end, (cell + 1) * each) - max(begin, cell * each)
                busy[cell][span.kernel] += max(0.0, inside) * part
            if last > first and begin >= 0 and busy[first - 1 if first else 0].get(span.kernel):
                starts.add(first)
            if span.launch and span.launch in self._faulty:
                faulty.add(first)
            if self.launch is not None and span.launch == self.launch.seq:
                chosen.update(range(first, max(first, last) + 1))
        cells = [
            self._cell(found, each, number in faulty, number in chosen)
            for number, found in enumerate(busy)
        ]
        for number in starts - faulty - {0}:
            # A gap between two launches of one kernel, which would be one bar without it.
            cells[number] = _BORDER, cells[number][1]
        return cells

    @staticmethod
    def _cell(
        busy: dict[int, float], each: float, is_faulty: bool, is_chosen: bool
    ) -> tuple[str, str]:
        over = " reverse" if is_chosen else ""
        if is_faulty:
            return "✖", palette.FAULT + over
        if not busy:
            return " ", over.strip()
        kernel = max(busy, key=lambda one: busy[one])
        dim = " dim" if sum(busy.values()) < _LEAST_BUSY * each else ""
        return kernel_fill(kernel), kernel_style(kernel) + dim + over

    def on_click(self, event: events.Click) -> None:
        """Choose the launch that was clicked."""
        place = event.get_content_offset(self)
        if place is None or self._strip is None:
            return
        row = place.y - (self.row_count - len(self._tracks))
        width = self.size.width - self._label_cells
        column = place.x - self._label_cells
        if not 0 <= row < len(self._tracks) or column < 0:
            return
        each = self.window.span_ns / max(1, width)
        begin = self.window.begin_ns + column * each
        spans = [span for span in self._tracks[row].spans if span.launch]
        hit = [s for s in spans if s.start_ns < begin + each and s.start_ns + s.duration_ns > begin]
        if hit:
            self.post_message(self.Chosen(max(hit, key=lambda s: s.duration_ns).launch))


def _ticks(window: Window, width: int) -> str:
    """Return times at even steps; the text of each begins at its cell."""
    powers = (10.0**power for power in range(16))
    steps = sorted(first * power for power in powers for first in (1, 2, 5))
    least = window.span_ns / max(1, width) * _TICK_CELLS
    step = next((one for one in steps if one >= least), window.span_ns)
    text = ""
    number = math.ceil(window.begin_ns / step)
    while number * step < window.end_ns:
        column = round((number * step - window.begin_ns) / window.span_ns * width)
        said = _tick_text(number * step)
        if column >= len(text) and column + len(said) <= width:
            text = text.ljust(column) + said
        number += 1
    return text.ljust(width)


def _tick_text(time_ns: float) -> str:
    """A time in its largest unit, without digits that are zero."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if time_ns >= scale:
            return f"{time_ns / scale:.10g} {unit}"
    return f"{time_ns:.10g} ns" if time_ns else "0"


def _inside(span: Span, window: Window) -> float:
    """Return how long something of a span ran in a window."""
    begin, end = span.start_ns, span.start_ns + span.duration_ns
    inside = max(0.0, min(end, window.end_ns) - max(begin, window.begin_ns))
    return inside * span.busy_ns / span.duration_ns if span.duration_ns else 0.0
