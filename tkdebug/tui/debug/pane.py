"""The Debug pane: a launch that is stopped, seen and moved as at the console.

It holds no state but what it shows: each key asks the debugger in the script's process, whose
answer is the next picture.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import ClassVar, Literal

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.widgets import Static

from tkdebug.debugger.remote.records import Look, SetBreakpoint, Variable, View
from tkdebug.instrument.session import Session
from tkdebug.tui import display, palette
from tkdebug.tui.debug.command import AnswerLog, CommandLine
from tkdebug.tui.debug.heat import HeatMapView
from tkdebug.tui.debug.link import (
    Answer,
    Begins,
    Breakpoints,
    DebugAsked,
    Gone,
    Runs,
    Said,
    SourceText,
)
from tkdebug.tui.debug.program_grid import ProgramGrid, legend, program_id
from tkdebug.tui.debug.source import DebugSource, SourceFiles, breakpoint_marks
from tkdebug.tui.debug.timeline import AroundWanted, MomentChosen, TimeLog, TimeSlider
from tkdebug.tui.debug.titles import frames_line, stop_line, why_nothing
from tkdebug.tui.find import FindBar
from tkdebug.tui.line_list import LineList
from tkdebug.tui.pane import Pane
from tkdebug.tui.snapshot import ScriptState, Snapshot
from tkdebug.tui.table import Cell, Column, Table

Phase = Literal["none", "before", "running", "stopped", "gone"]
_NAME_WIDTH = 12
# Of these a letter begins a longer command, which is typed in the command line.
_LETTERS = "rptwhjl"


class DebugPane(Pane):
    """Source, variables with a map of one of them, programs, time, and a command line."""

    SCOPED_CSS = False
    DEFAULT_CSS = """
    #debug-title, #debug-frames { height: 1; padding: 0 1; text-wrap: nowrap; }
    #debug-title, #debug-frames { text-overflow: ellipsis; }
    #debug-frames { background: $boost; }
    #debug-split { height: 1fr; layout: vertical; }
    #debug-left { height: 1fr; }
    #debug-source { height: 1fr; }
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
    .-very-wide #debug-right { width: 68; }
    .-wide #debug-right > *, .-very-wide #debug-right > * { width: 1fr; border-left: none; }
    .-wide #debug-log, .-very-wide #debug-log { height: 10; }
    .-wide #debug-heat, .-very-wide #debug-heat { border-top: tall $background; }
    .-wide #debug-programs, .-very-wide #debug-programs {
        height: auto; max-height: 30%; border-top: tall $background;
    }
    .-wide #debug-legend, .-very-wide #debug-legend { height: auto; max-height: 6; }
    DebugPane.-times #debug-source { display: none; }
    DebugPane.-times #debug-times { display: block; }
    """
    TAB = "debug"
    KEYS = (
        ("n s c", "next line, into functions, to the next breakpoint"),
        ("N S C", "the same backwards, as rn, rs, rc"),
        ("u d", "to the caller, to the called function"),
        ("b, Enter", "a breakpoint at the line at the cursor, or none; also a click beside it"),
        ("P", "stop what runs, as soon as it comes to a line"),
        (": r p t w", "type a command, as at the console; Esc leaves, ↑ what was typed before"),
        ("Tab", "source, answers, variables, map, programs, time"),
        ("variables", "the one at the cursor is drawn"),
        ("map", "Enter: larger around the cursor, Esc: all, [ ]: planes"),
        ("programs", "← → ↑ ↓ show another one's values, Enter selects it, a: all"),
        ("time", "← → PgUp PgDn look at lines passed, Enter goes there; L: all as a list"),
        ("# ≠ a w . -", "here, differs, elsewhere, waiting, ended, not begun"),
        ("░▒▓█ -▓ · NN", "magnitude, negative, zero, NaN"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "command('n')", "Next"),
        Binding("s", "command('s')", "Step"),
        Binding("c", "command('c')", "Continue"),
        Binding("N", "command('rn')", "Back"),
        Binding("S", "command('rs')", "Step back", show=False),
        Binding("C", "command('rc')", "Continue back", show=False),
        Binding("u", "command('u')", "Caller", show=False),
        Binding("d", "command('d')", "Called", show=False),
        Binding("b", "toggle_breakpoint", "Breakpoint"),
        Binding("P", "pause", "Pause"),
        Binding("L", "times", "Lines passed", show=False),
        Binding("slash", "find", "Find", show=False),
        Binding("colon", "type('')", "Command", key_display=":"),
        *(Binding(letter, f"type('{letter}')", show=False) for letter in _LETTERS),
    ]

    def __init__(self, has_script: bool) -> None:
        super().__init__(id="debug-pane")
        self._phase: Phase = "before" if has_script else "none"
        self._has_script = has_script
        self._state = ScriptState("starting")
        self._view: View | None = None
        self._files = SourceFiles()
        self._file = ""
        self._look = Look()
        self._breakpoints: tuple[SetBreakpoint, ...] = ()
        self._variables: tuple[Variable, ...] = ()
        self._awaits_answer = False

    @classmethod
    def make(cls, has_script: bool) -> Pane:
        """One that says so where there is no script to be stopped."""
        return cls(has_script)

    def compose(self) -> ComposeResult:
        """Source and answers, variables, map and programs; time, command line."""
        yield Static(id="debug-title")
        yield Static(id="debug-frames")
        with Container(id="debug-split"):
            with Vertical(id="debug-left"):
                yield DebugSource(id="debug-source")
                yield TimeLog(self._files.line_text, id="debug-times")
                yield AnswerLog(id="debug-log")
            with Container(id="debug-right"):
                columns = (Column("variable", _NAME_WIDTH, keep_end=True), Column("value", 0))
                yield Table(columns, id="debug-variables")
                yield HeatMapView(id="debug-heat")
                with Vertical(id="debug-programs"):
                    yield ProgramGrid(id="debug-grid")
                    with VerticalScroll(id="debug-legend", can_focus=False):
                        yield Static(id="debug-legend-text")
        yield FindBar()
        yield TimeSlider(self._files.line_text, id="debug-slider")
        yield CommandLine(id="debug-command")

    def on_mount(self) -> None:
        """Begin empty."""
        self._show_phase()

    # What the app tells

    def show(self, snapshot: Snapshot | None, state: ScriptState, session: Session | None) -> None:
        """How the script stands; all else comes by `hear`."""
        if state != self._state:
            self._state = state
            if not state.going_on and self._has_script:
                self._phase = "gone"
            self._show_phase()

    def hear(self, said: Said) -> None:
        """Show what the debugger says."""
        match said:
            case View():
                self._show_view(said)
            case Answer(command=command, lines=lines):
                self._awaits_answer = False
                if lines:  # steps answer by the next picture
                    self.query_one("#debug-log", AnswerLog).add(command, lines)
            case Breakpoints(all=found):
                self._breakpoints = found
                self._show_marks()
            case SourceText(file=file, code=code):
                self._files.add(file, code)
                self._show_source()
                self.query_one("#debug-slider").refresh()
                self.query_one("#debug-times").refresh()
            case Begins(script=script):
                self._phase = "stopped"
                self._open_file(script)
            case Runs():
                self._phase = "running"
            case Gone():
                self._phase = "gone"
        self._show_phase()

    def focus_main(self) -> None:
        """Focus the source."""
        self.query_one("#debug-source").focus()

    def tab_mark(self) -> Text:
        """Whether a launch is stopped."""
        is_stopped = self._phase == "stopped"
        return Text(" ■", style=palette.FAULT) if is_stopped else Text("")

    def copied_text(self) -> str:
        """Of the part in focus: the line, the answers, the element."""
        focused = self.screen.focused
        if isinstance(focused, AnswerLog | HeatMapView):
            return focused.text
        return focused.cursor_text if isinstance(focused, LineList) else ""

    # Pictures

    def _show_view(self, view: View) -> None:
        is_new = self._view is None or self._view.timeline.now != view.timeline.now
        before, self._view, self._phase = self._view, view, "stopped"
        self._awaits_answer = False
        place = view.place
        if place is not None:
            for each in {frame.file for frame in view.frames}:
                self._ask_for(each)
            if is_new or before is None or before.place != place:
                self._open_file(place.file)
        self._show_source()
        self._show_variables(view)
        self.query_one("#debug-heat", HeatMapView).show(view.heat)
        self.query_one("#debug-grid", ProgramGrid).show(view.programs)
        self.query_one("#debug-legend-text", Static).update(legend(view.programs))
        slider = self.query_one("#debug-slider", TimeSlider)
        slider.show(view.timeline, keeps_place=self._look.around is not None)
        self.query_one("#debug-times", TimeLog).show(view.timeline, self._look.around)

    def _show_variables(self, view: View) -> None:
        self._variables = found = view.variables
        table = self.query_one("#debug-variables", Table)
        table.show_rows([each.name for each in found], lambda i: _cells(found[i]))
        if view.heat is not None:
            table.select_key(view.heat.name)

    def _open_file(self, file: str) -> None:
        self._file = file
        self._ask_for(file)
        self._show_source()

    def _ask_for(self, file: str) -> None:
        if file and self._files.is_missing(file):
            self.post_message(DebugAsked({"do": "source", "file": file}))

    def _show_source(self) -> None:
        """The file of the frame, its line lit."""
        code = self._files.code(self._file)
        source = self.query_one("#debug-source", DebugSource)
        if code is None:
            return
        if source.code is not code:
            source.show_code(code, {})
            self._show_marks()
        place = None if self._view is None else self._view.place
        lit = () if place is None or place.file != self._file else (place.line,)
        if source.lit != frozenset(lit):
            source.light(lit, scroll=False)
            for line in lit:
                source.go_to(line)

    def _show_marks(self) -> None:
        marks = breakpoint_marks(self._breakpoints, self._file)
        self.query_one("#debug-source", DebugSource).show_marks(marks)

    def _show_phase(self) -> None:
        """The rows above: where it is stopped, or why nothing is."""
        if self._phase == "gone" and self._view is not None:
            self.query_one("#debug-source", DebugSource).light((), scroll=False)
        title = self.query_one("#debug-title", Static)
        frames = self.query_one("#debug-frames", Static)
        view = self._view
        is_stopped = self._phase == "stopped" and view is not None
        if is_stopped and view is not None:
            title.update(stop_line(view))
            frames.update(frames_line(view))
        else:
            title.update(why_nothing(self._phase, self._state, view))
        frames.display = is_stopped and view is not None and len(view.frames) > 1
        source = self.query_one("#debug-source", DebugSource)
        source.empty_text = (
            "a launch that is stopped shows here: at breakpoint() in a kernel, or at a breakpoint "
            "that b in 3 Kernel has set"
            if self._has_script
            else "a recorded run cannot be stopped; tkdebug debug --tui script.py runs one that can"
        )
        self.query_one("#debug-command").display = self._has_script
        source.refresh()

    # What is asked

    def _ask(self, **message: object) -> None:
        if self._phase in ("none", "gone"):
            self.app.notify("no script is there to be stopped", timeout=2)
            return
        self.post_message(DebugAsked(message))

    def _run(self, line: str) -> None:
        self._ask(do="command", line=line)

    def action_command(self, line: str) -> None:
        """Run a command of the console; keys that are held down wait for the picture."""
        if self._phase != "stopped":
            self.app.notify("no kernel is stopped", timeout=2)
            return
        if not self._awaits_answer:
            self._awaits_answer = True
            self._run(line)

    def action_type(self, text: str) -> None:
        """Type a command."""
        if self._has_script:
            self.query_one("#debug-command", CommandLine).begin(text)

    def action_toggle_breakpoint(self) -> None:
        """A breakpoint at the line at the cursor, or none."""
        source = self.query_one("#debug-source", DebugSource)
        if source.line_count:
            self._ask(do="break", file=self._file, line=source.line)

    def action_pause(self) -> None:
        """Stop what runs."""
        if self._phase == "stopped":
            self.app.notify("it is stopped already", timeout=2)
            return
        self._ask(do="pause")

    def action_times(self) -> None:
        """The lines passed in place of the source, and back."""
        self.toggle_class("-times")
        listed = self.has_class("-times")
        self.query_one("#debug-times" if listed else "#debug-source").focus()

    def action_find(self) -> None:
        """Find text in the source."""
        self.query_one(FindBar).open(self.query_one("#debug-source", DebugSource))

    def _look_at(self, look: Look) -> None:
        if look != self._look:
            self._look = look
            if self._phase == "stopped" and self._view is not None:
                self._ask(do="look", look=asdict(look))

    def on_command_line_typed(self, event: CommandLine.Typed) -> None:
        """Run it."""
        event.stop()
        self._run(event.line)

    def on_command_line_left(self, event: CommandLine.Left) -> None:
        """Back to the source."""
        event.stop()
        self.focus_main()

    def on_code_view_gutter_clicked(self, event: DebugSource.GutterClicked) -> None:
        """A breakpoint there, or none."""
        event.stop()
        self.action_toggle_breakpoint()

    def on_line_list_chosen(self, event: LineList.Chosen) -> None:
        """Enter in the source, or on a line passed."""
        event.stop()
        match event.line_list:
            case DebugSource():
                self.action_toggle_breakpoint()
            case TimeLog(moment=str(moment)):
                self.action_command(f"moment {moment}")

    def on_line_list_moved(self, event: LineList.Moved) -> None:
        """Draw the variable at the cursor; the slider follows the list of lines."""
        event.stop()
        match event.line_list:
            case Table(key=str(name)) if self._is_drawn(name):
                self._look_at(replace(self._look, variable=name, begin=(), end=(), plane=0))
            case TimeLog(index=index):
                self.query_one("#debug-slider", TimeSlider).put(index)

    def _is_drawn(self, name: str) -> bool:
        return any(each.name == name and each.is_drawn for each in self._variables)

    def on_heat_map_view_zoomed(self, event: HeatMapView.Zoomed) -> None:
        """Draw another part."""
        event.stop()
        self._look_at(replace(self._look, begin=event.begin, end=event.end))

    def on_heat_map_view_plane_turned(self, event: HeatMapView.PlaneTurned) -> None:
        """Draw another plane."""
        event.stop()
        self._look_at(replace(self._look, plane=max(0, self._look.plane + event.step)))

    def on_heat_map_view_room_changed(self, event: HeatMapView.RoomChanged) -> None:
        """Ask for as many cells as fit."""
        event.stop()
        room = self.query_one("#debug-heat", HeatMapView).room
        self._look_at(replace(self._look, cells=room))

    def on_program_grid_program_moved(self, event: ProgramGrid.ProgramMoved) -> None:
        """Show the values of another program."""
        event.stop()
        self._look_at(replace(self._look, program=event.program))

    def on_program_grid_program_chosen(self, event: ProgramGrid.ProgramChosen) -> None:
        """Select it: steps follow it from now on."""
        event.stop()
        if self._view is None:
            return
        grid = self._view.grid
        self.action_command(
            "pid all" if event.program is None else f"pid {program_id(event.program, grid)}"
        )

    def on_around_wanted(self, event: AroundWanted) -> None:
        """Read the lines around another moment, where they are not there."""
        event.stop()
        timeline = None if self._view is None else self._view.timeline
        if timeline is None:
            return
        last = timeline.first + len(timeline.lines)
        if timeline.first <= event.index < last:
            self.query_one("#debug-times", TimeLog).show(timeline, event.index)
        else:
            self._look_at(replace(self._look, around=event.index))

    def on_moment_chosen(self, event: MomentChosen) -> None:
        """Go there."""
        event.stop()
        self.action_command(f"moment {event.moment}")


def _cells(variable: Variable) -> tuple[Cell, ...]:
    style = "" if variable.is_drawn else palette.MUTED
    return (
        Cell(display.shown(variable.name, 100), style),
        Cell(display.shown(variable.text, 400), style),
    )
