"""The picture of a stop: source and answers, variables and a map of one, programs, lines passed.

It keeps what the user looks at, and posts a message when that changes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.message import Message
from textual.widgets import Static

from tkdebug.debugger.remote.records import Look, Variable, View
from tkdebug.tui.debug.command import AnswerLog
from tkdebug.tui.debug.heat import HeatMapView
from tkdebug.tui.debug.program_grid import ProgramGrid, legend
from tkdebug.tui.debug.source import DebugSource, LineText
from tkdebug.tui.debug.timeline import AroundWanted, TimeLog, TimeSlider
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.widgets.line_list import LineList
from tkdebug.tui.widgets.table import Cell, Column, Table

_NO_WAY_BACK = "the script's own lines cannot be gone back to, a kernel's can"
_COLUMNS = (Column("variable", 12, keep_end=True), Column("value", 0))


class Variables(Table):
    """The variables of the frame."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "Print")]


class StopView(Container):
    """Shows `View`s.

    Args:
        line_text: gives the text of a line, "" if it is not known.

    Attributes:
        look: the view of a stop that is shown.
    """

    SCOPED_CSS = False
    DEFAULT_CSS = """
    StopView { height: 1fr; }
    #debug-split { height: 1fr; layout: vertical; }
    #debug-left { height: 1fr; }
    #debug-source { height: 1fr; scrollbar-size-horizontal: 0; }
    #debug-log { height: 4; border-top: tall $background; }
    #debug-right { height: 8; layout: horizontal; }
    #debug-variables { width: 1fr; height: 1fr; }
    #debug-heat { width: 26; height: 1fr; border-left: tall $background; }
    #debug-programs { width: 22; height: 1fr; border-left: tall $background; }
    #debug-grid { height: auto; max-height: 60%; }
    #debug-legend { height: 1fr; scrollbar-size: 1 1; }
    #debug-times { display: none; height: 1fr; }
    .-short #debug-right { height: 6; }
    .-short #debug-log { height: 2; }
    .-wide #debug-split, .-very-wide #debug-split { layout: horizontal; }
    .-wide #debug-left, .-very-wide #debug-left { width: 1fr; height: 1fr; }
    .-wide #debug-right, .-very-wide #debug-right {
        width: 50; height: 1fr; layout: vertical; border-left: tall $background;
    }
    .-very-wide #debug-right { width: 42%; }
    .-wide #debug-right > *, .-very-wide #debug-right > * { width: 1fr; border-left: none; }
    .-wide #debug-log, .-very-wide #debug-log { height: 10; }
    .-wide #debug-heat, .-very-wide #debug-heat { border-top: tall $background; }
    .-wide #debug-programs, .-very-wide #debug-programs {
        height: auto; max-height: 30%; border-top: tall $background;
    }
    .-wide #debug-legend, .-very-wide #debug-legend { height: auto; max-height: 6; }
    #debug-log:focus { height: 80%; }
    .-narrow #debug-variables:focus { width: 80%; }
    StopView.-times #debug-source { display: none; }
    StopView.-times #debug-times { display: block; }
    """

    class LookChanged(Message):
        """A request to see something else."""

        def __init__(self, look: Look) -> None:
            self.look = look
            super().__init__()

    def __init__(self, line_text: LineText) -> None:
        super().__init__(id="debug-stop")
        self._line_text = line_text
        self._view: View | None = None
        self._variables: tuple[Variable, ...] = ()
        self.look = Look()

    def compose(self) -> ComposeResult:
        """Lay the parts out beside each other, or above each other on a narrow screen."""
        with Container(id="debug-split"):
            with Vertical(id="debug-left"):
                yield DebugSource(id="debug-source")
                yield TimeLog(self._line_text, id="debug-times")
                yield AnswerLog(id="debug-log")
            with Container(id="debug-right"):
                yield Variables(_COLUMNS, id="debug-variables")
                yield HeatMapView(id="debug-heat")
                with Vertical(id="debug-programs"):
                    yield ProgramGrid(id="debug-grid")
                    with VerticalScroll(id="debug-legend", can_focus=False):
                        yield Static(id="debug-legend-text")
        yield TimeSlider(self._line_text, id="debug-slider")

    def on_mount(self) -> None:
        """Hide the answers until there are some."""
        self.query_one("#debug-log").display = False

    def show(self, view: View) -> None:
        """Show a stop without its source."""
        before, self._view = self._view, view
        # Of the same stop, it may be an answer to what was looked at before: cursors stay.
        is_new = before is None or not self._is_same_stop(before, view)
        self._show_variables(view, follows=is_new or _drawn_in(before) != _drawn_in(view))
        self.query_one("#debug-heat", HeatMapView).show(view.heat)
        self.query_one("#debug-grid", ProgramGrid).show(view.programs, follows=is_new)
        self.query_one("#debug-legend-text", Static).update(legend(view.programs))
        slider = self.query_one("#debug-slider", TimeSlider)
        why_none = "" if view.kernel else _NO_WAY_BACK
        slider.show(view.timeline, keeps_place=not is_new, why_none=why_none)
        times = self.query_one("#debug-times", TimeLog)
        # In the list the cursor may be ahead of what the slider has heard of.
        leads = not is_new and times.has_focus
        times.show(view.timeline, times.index if leads else slider.index)

    @staticmethod
    def _is_same_stop(one: View, other: View) -> bool:
        places = ((v.launch, v.timeline.now, v.timeline.total, v.frames) for v in (one, other))
        return next(places) == next(places)

    def answer(self, command: str, lines: tuple[str, ...]) -> None:
        """Show the output of a command; steps are answered by the next view alone."""
        log = self.query_one("#debug-log", AnswerLog)
        if lines:
            log.display = True
            log.add(command, lines)

    def texts_came(self) -> None:
        """Show lines whose texts have become known."""
        self.query_one("#debug-slider").refresh()
        self.query_one("#debug-times").refresh()

    def forget_place(self) -> None:
        """Forget the zoom and the moment of the last stop."""
        self.look = replace(self.look, begin=(), end=(), around=None)

    def _show_variables(self, view: View, *, follows: bool) -> None:
        """Show the variables, the cursor at the drawn one unless the user has moved it."""
        before, self._variables = self._variables, view.variables
        found = view.variables
        table = self.query_one("#debug-variables", Table)
        table.show_rows([each.name for each in found], lambda i: _cells(found[i]))
        is_chosen = self._is_drawn(self.look.variable)
        others = [each.name for each in before] != [each.name for each in found]
        if view.heat is not None and (others if is_chosen else follows):
            table.select_key(view.heat.name)

    def draw_latest(self) -> None:
        """Draw the variable bound last again, instead of the user's choice."""
        if self.look.variable:
            self._look_at(replace(self.look, variable="", begin=(), end=(), plane=0))

    def _look_at(self, look: Look) -> None:
        if look != self.look:
            self.look = look
            self.post_message(self.LookChanged(look))

    @on(LineList.Moved)
    def _follow_cursor(self, event: LineList.Moved) -> None:
        """Draw the variable at the cursor; the slider follows the list of lines."""
        event.stop()
        match event.line_list:
            case Table(key=str(name)) if self._is_drawn(name) and name != self._wanted:
                self._look_at(replace(self.look, variable=name, begin=(), end=(), plane=0))
            case TimeLog(index=index):
                self.query_one("#debug-slider", TimeSlider).put(index)
                self._read_around(index)

    @property
    def _wanted(self) -> str:
        """The variable that is drawn, or soon will be."""
        chosen = self.look.variable
        return chosen if self._is_drawn(chosen) else _drawn_in(self._view)

    def _is_drawn(self, name: str) -> bool:
        return any(each.name == name and each.is_drawn for each in self._variables)

    @on(HeatMapView.Zoomed)
    def _draw_part(self, event: HeatMapView.Zoomed) -> None:
        """Draw another part."""
        event.stop()
        self._look_at(replace(self.look, begin=event.begin, end=event.end))

    @on(HeatMapView.PlaneTurned)
    def _draw_plane(self, event: HeatMapView.PlaneTurned) -> None:
        """Draw another plane."""
        event.stop()
        self._look_at(replace(self.look, plane=max(0, self.look.plane + event.step)))

    @on(HeatMapView.RoomChanged)
    def _ask_for_room(self, event: HeatMapView.RoomChanged) -> None:
        """Ask for as many cells as fit."""
        event.stop()
        room = self.query_one("#debug-heat", HeatMapView).room
        self._look_at(replace(self.look, cells=room))

    @on(ProgramGrid.ProgramMoved)
    def _show_program(self, event: ProgramGrid.ProgramMoved) -> None:
        """Show the values of another program."""
        event.stop()
        self._look_at(replace(self.look, program=event.program))

    @on(AroundWanted)
    def _show_around(self, event: AroundWanted) -> None:
        """Read the lines around another moment, if they are not there."""
        event.stop()
        if self._view is not None:
            self.query_one("#debug-times", TimeLog).show(self._view.timeline, event.index)
            self._read_around(event.index)

    def _read_around(self, index: int) -> None:
        """Request more lines when the cursor is near the last loaded one."""
        timeline = None if self._view is None else self._view.timeline
        if timeline is None:
            return
        last = timeline.first + len(timeline.lines) - 1
        is_first = index <= timeline.first and timeline.first > 0
        if is_first or (index >= last and last < timeline.total - 1):
            self._look_at(replace(self.look, around=index))


def _drawn_in(view: View | None) -> str:
    return "" if view is None or view.heat is None else view.heat.name


def _cells(variable: Variable) -> tuple[Cell, ...]:
    style = "" if variable.is_drawn else palette.MUTED
    name, text = display.shown(variable.name, 100), display.shown(variable.text, 400)
    if not variable.has_nan:
        return Cell(name, style), Cell(text, style)
    # The text ends in how many they are, which may be out of sight.
    return Cell(name, palette.FAULT), Cell(f"NaN! {text}", palette.FAULT)
