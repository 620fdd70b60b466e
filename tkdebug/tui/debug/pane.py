"""The Debug pane: a launch that is stopped, seen and moved as at the console.

It holds no state but what it shows: each key asks the debugger in the script's process, whose
answer is the next picture.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict
from typing import ClassVar, Literal

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from tkdebug.debugger.remote.records import SetBreakpoint, View
from tkdebug.instrument.session import Session
from tkdebug.tui.debug.command import AnswerLog, CommandLine
from tkdebug.tui.debug.heat import HeatMapView
from tkdebug.tui.debug.link import (
    Ahead,
    Answer,
    Breakpoints,
    DebugAsked,
    Gone,
    Runs,
    Said,
    SourceText,
)
from tkdebug.tui.debug.program_grid import ProgramGrid, program_id
from tkdebug.tui.debug.source import DebugSource, SourceFiles, breakpoint_marks
from tkdebug.tui.debug.stop_view import StopView, Variables
from tkdebug.tui.debug.timeline import MomentChosen, TimeLog
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.messages import TabMarked
from tkdebug.tui.pane import Pane, ScriptTraits
from tkdebug.tui.session.snapshot import ScriptState, Snapshot
from tkdebug.tui.widgets.find import FindBar
from tkdebug.tui.widgets.line_list import LineList
from tkdebug.tui.widgets.typing_keys import take_keys, typing_key

Phase = Literal["none", "before", "running", "stopped", "gone"]
# Letters that begin a longer command, which is typed in the command line.
_LETTERS = "rptwhjl"
_SHOWN_AS_RUNNING_S = 0.3
# Keys that were pressed and not yet answered; one that is held down is to stop soon after.
_MOST_UNANSWERED = 8
_REFUSED = ("*** no kernel is stopped",)
_WAITING = ("waits for the next stop",)
_LONGEST_REASON = 60
# The exit status of a run that found faults and ended well otherwise.
_FAULTS_FOUND = 3


class DebugPane(Pane):
    """Source, variables with a map of one of them, programs, time, and a command line."""

    DEFAULT_CSS = """
    #debug-title, #debug-frames { height: 1; padding: 0 1; text-wrap: nowrap; }
    #debug-title, #debug-frames { text-overflow: ellipsis; }
    #debug-frames { background: $boost; }
    """
    TAB = "debug"
    KEYS = (
        ("n s c", "next line, into functions, to the next breakpoint"),
        ("N S C", "the same backwards, as rn, rs, rc"),
        ("u d", "to the caller, to the called function"),
        ("b, Enter", "a breakpoint at the line at the cursor, or none; also a click beside it"),
        ("P", "stop what runs, as soon as it comes to a line"),
        ("Esc", "forget the commands that wait for the next stop of what runs"),
        (": r p t w", "type a command, as at the console; Esc leaves, ↑ what was typed before"),
        ("Tab", "source, answers, variables, map, programs, time"),
        ("variables", "the one at the cursor is drawn; Enter: in full, Esc: what was bound last"),
        ("map", "Enter: larger around the cursor, Esc: all, [ ]: planes; of programs: select one"),
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
        Binding("escape", "forget", "Forget", show=False),
        Binding("L", "times", "Lines passed", show=False),
        typing_key("slash", "find", "Find", show=False),
        typing_key("colon", "type('')", "Command"),
        *(typing_key(letter, f"type('{letter}')", "Type", show=False) for letter in _LETTERS),
    ]

    def __init__(self, can_stop: bool) -> None:
        super().__init__(id="debug-pane")
        self._phase: Phase = "before" if can_stop else "none"
        self._shown_phase: Phase = self._phase
        self._can_stop = can_stop
        self._state = ScriptState("starting")
        self._view: View | None = None
        self._files = SourceFiles()
        self._file = ""
        self._breakpoints: tuple[SetBreakpoint, ...] = ()
        # Keys, and what they sent, that have no answer yet.
        self._unanswered: deque[str] = deque()
        self._ahead = 0

    @classmethod
    def make(cls, script: ScriptTraits) -> Pane:
        """Make a pane, which says so if no script can be stopped."""
        return cls(script.can_stop)

    def compose(self) -> ComposeResult:
        """Lay out source and answers, variables, map and programs, time, command line."""
        yield Static(id="debug-title")
        yield Static(id="debug-frames")
        yield StopView(self._files.line_text)
        yield FindBar()
        yield CommandLine(id="debug-command")

    def on_mount(self) -> None:
        """Begin empty."""
        self._show_phase()

    # Calls of the app

    def show(self, snapshot: Snapshot | None, state: ScriptState, session: Session | None) -> None:
        """Show the state of the script; all else comes by `hear`."""
        if self.is_ready and state != self._state:
            self._state = state
            if not state.going_on and self._can_stop:
                self._phase = "gone"
            self._show_phase()

    def hear(self, said: Said) -> None:
        """Show the debugger's message."""
        match said:
            case View():
                self._show_view(said)
            case Answer(command=command, lines=lines):
                is_of_key = command in self._unanswered
                if is_of_key:
                    self._unanswered.remove(command)
                if is_of_key and lines == _REFUSED:
                    self.app.notify(_REFUSED[0].removeprefix("*** "), timeout=2)
                elif not is_of_key or lines != _WAITING:  # the title says how many wait
                    self.query_one(StopView).answer(command, lines)
            case Ahead(count=count):
                self._ahead = count
            case Breakpoints(all=found):
                self._breakpoints = found
                self._show_marks()
            case SourceText(file=file, code=code):
                self._files.add(file, code)
                self._show_source()
                self.query_one(StopView).texts_came()
            case Runs():
                self._phase = "running"
                self.query_one(StopView).forget_place()
                # Most steps take less; what stands there would flicker.
                self.set_timer(_SHOWN_AS_RUNNING_S, self._show_phase)
                return
            case Gone():
                self._phase = "gone"
                self._ahead = 0
        self._show_phase()

    def show_failure(self, failure: str) -> None:
        """Ignore a recording that cannot be read: all that is shown comes from the debugger."""

    def focus_main(self) -> None:
        """Focus the source."""
        take_keys(self.query_one("#debug-source"))

    def tab_mark(self) -> Text:
        """Return a mark if a launch is stopped, else an empty text."""
        is_stopped = self._shown_phase == "stopped"
        return Text(" ■", style=palette.FAULT) if is_stopped else Text("")

    def must_hear_all(self) -> bool:
        """Whether there is a debugger, whose answers and sources are kept by its parts."""
        return self._can_stop

    def has_nothing(self) -> bool:
        """Whether the run is not one that can be stopped."""
        return not self._can_stop

    def copied_text(self) -> str:
        """Return the text of the part in focus: the line, the answers, the element."""
        focused = self.screen.focused
        if isinstance(focused, AnswerLog | HeatMapView):
            return focused.text
        return focused.cursor_text if isinstance(focused, LineList) else ""

    # Pictures

    def _show_view(self, view: View) -> None:
        is_new = self._view is None or self._view.timeline.now != view.timeline.now
        before, self._view, self._phase = self._view, view, "stopped"
        place = view.place
        if place is not None:
            for each in {frame.file for frame in view.frames}:
                self._ask_for(each)
            if is_new or before is None or before.place != place:
                self._open_file(place.file)
        self._show_source()
        stop_view = self.query_one(StopView)
        stop_view.show(view)
        if is_long(view) and (before is None or is_new or before.reasons != view.reasons):
            stop_view.answer("", view.reasons)
        names = tuple(each.name for each in view.variables)
        self.query_one("#debug-command", CommandLine).know(names)

    def _open_file(self, file: str) -> None:
        self._file = file
        self._ask_for(file)
        self._show_source()

    def _ask_for(self, file: str) -> None:
        if file and self._files.is_missing(file):
            self.post_message(DebugAsked({"do": "source", "file": file}))

    def _show_source(self) -> None:
        """Show the file of the frame, its line lit."""
        code = self._files.code(self._file)
        source = self.query_one("#debug-source", DebugSource)
        if code is None:
            return
        if source.code is not code:
            source.show_code(code, {})
            self._show_marks()
        place = None if self._view is None else self._view.place
        is_there = place is not None and place.file == self._file and self._phase == "stopped"
        lit = (place.line,) if place is not None and is_there else ()
        if source.lit != frozenset(lit):
            source.light(lit, scroll=False)
            for line in lit:
                source.bring_in_sight(line)

    def _show_marks(self) -> None:
        marks = breakpoint_marks(self._breakpoints, self._file)
        self.query_one("#debug-source", DebugSource).show_marks(marks)

    def _show_phase(self) -> None:
        """Show the rows above: the place where the launch is stopped, or why none is."""
        if self._shown_phase != self._phase:
            self._shown_phase = self._phase
            self.post_message(TabMarked())
        if self._phase in ("gone", "running") and self._view is not None:
            self.query_one("#debug-source", DebugSource).light((), scroll=False)
        title = self.query_one("#debug-title", Static)
        frames = self.query_one("#debug-frames", Static)
        view = self._view
        is_stopped = self._phase == "stopped" and view is not None
        if is_stopped and view is not None:
            title.update(stop_line(view, self._ahead))
            frames.update(frames_line(view))
        else:
            title.update(why_nothing(self._phase, self._state, view, self._ahead))
        frames.display = is_stopped and view is not None and len(view.frames) > 1
        source = self.query_one("#debug-source", DebugSource)
        source.empty_text = (
            "a launch that is stopped shows here: at breakpoint() in a kernel, or at a breakpoint "
            "that b in 3 Kernel has set"
            if self._can_stop
            else "a recorded run cannot be stopped; tkdebug debug --tui script.py runs one that can"
        )
        self.query_one("#debug-command").display = self._can_stop
        source.refresh()

    # Requests

    def _ask(self, **message: object) -> None:
        if self._phase in ("none", "gone"):
            self.app.notify("no script is there to be stopped", timeout=2)
            return
        self.post_message(DebugAsked(message))

    def _run(self, line: str) -> None:
        self._ask(do="command", line=line)

    def action_command(self, line: str) -> None:
        """Run a command of the console; while a launch runs, at its next stop."""
        if self._phase not in ("stopped", "running"):
            self.app.notify("no kernel is stopped", timeout=2)
        elif len(self._unanswered) < _MOST_UNANSWERED:
            self._unanswered.append(line)
            self._run(line)

    def action_type(self, text: str) -> None:
        """Type a command."""
        if self._can_stop:
            self.query_one("#debug-command", CommandLine).begin(text)

    def action_toggle_breakpoint(self) -> None:
        """Set a breakpoint at the line at the cursor, or remove it."""
        source = self.query_one("#debug-source", DebugSource)
        if source.line_count:
            self._ask(do="break", file=self._file, line=source.line)

    def action_pause(self) -> None:
        """Stop what runs."""
        if self._phase == "stopped":
            self.app.notify("it is stopped already", timeout=2)
            return
        self._ask(do="pause")

    def action_forget(self) -> None:
        """Forget the commands that wait for the next stop."""
        if self._ahead:
            self._ask(do="forget")
        elif isinstance(self.screen.focused, Variables):
            self.query_one(StopView).draw_latest()

    def action_times(self) -> None:
        """Switch between the source and the lines passed."""
        listed = self.query_one(StopView).toggle_class("-times").has_class("-times")
        self.query_one("#debug-times" if listed else "#debug-source").focus()

    def action_find(self) -> None:
        """Find text in the source."""
        self.query_one(FindBar).open(self.query_one("#debug-source", DebugSource))

    @on(StopView.LookChanged)
    def _ask_for_look(self, event: StopView.LookChanged) -> None:
        """Ask for another view."""
        event.stop()
        if self._phase not in ("none", "gone"):
            self._ask(do="look", look=asdict(event.look))

    @on(CommandLine.Typed)
    def _run_typed(self, event: CommandLine.Typed) -> None:
        """Run the command."""
        event.stop()
        self._run(event.line)

    @on(CommandLine.Left)
    def _leave_command_line(self, event: CommandLine.Left) -> None:
        """Focus the source."""
        event.stop()
        self.focus_main()

    @on(DebugSource.GutterClicked)
    def _toggle_clicked_line(self, event: DebugSource.GutterClicked) -> None:
        """Set a breakpoint at the line clicked, or remove it."""
        event.stop()
        self.action_toggle_breakpoint()

    @on(LineList.Chosen)
    def _act_on_line(self, event: LineList.Chosen) -> None:
        """Act on Enter in the source, or on a line passed."""
        event.stop()
        match event.line_list:
            case DebugSource():
                self.action_toggle_breakpoint()
            case TimeLog(moment=str(moment)):
                self.action_command(f"moment {moment}")
            case Variables(key=str(name)):
                self._run(f"p {name}")

    @on(ProgramGrid.ProgramChosen)
    def _select_program(self, event: ProgramGrid.ProgramChosen) -> None:
        """Select the program: steps follow it from now on."""
        event.stop()
        if self._view is None:
            return
        grid = self._view.grid
        self.action_command(
            "pid all" if event.program is None else f"pid {program_id(event.program, grid)}"
        )

    @on(HeatMapView.ProgramPicked)
    def _select_picked_program(self, event: HeatMapView.ProgramPicked) -> None:
        """Select the program whose scalar was picked."""
        event.stop()
        self.action_command(f"pid {event.program}")

    @on(MomentChosen)
    def _go_to_moment(self, event: MomentChosen) -> None:
        """Go to the moment."""
        event.stop()
        self.action_command(f"moment {event.moment}")


def stop_line(view: View, ahead: int = 0) -> Text:
    """Return the reason of a stop, its launch, and the number of programs at each place.

    Args:
        view: the view of the stop.
        ahead: commands that wait for the next one.
    """
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append("■ ", style=palette.FAULT)
    reason = "; ".join(view.reasons)
    if is_long(view):
        reason = f"{view.reasons[0]} (below)"
    if reason:
        text.append(f"{display.shown(reason, 200)}  ", style=palette.WARNING)
    if not view.kernel:
        text.append("the script's own lines", style=palette.STRONG)
        if view.launch:
            text.append(f", behind launch {view.launch}")
        text.append(_waiting(ahead), style=palette.WARNING)
        return text
    if not view.frames:
        text.append("ended  ", style=palette.WARNING)
    kernel = f"{display.shown(view.kernel, 60)} {display.grid(view.grid)}"
    text.append(f"launch {view.launch} of {kernel}", style=palette.STRONG)
    selected = "" if view.selection == "all programs" else f"{view.selection}; "
    text.append(f"  {selected}{display.shown(view.census, 300)}")
    text.append(_waiting(ahead), style=palette.WARNING)
    return text


def is_long(view: View) -> bool:
    """Whether the reasons of a stop would leave no room for its place."""
    return sum(map(len, view.reasons)) > _LONGEST_REASON


def frames_line(view: View) -> Text:
    """Return the chain of calls, innermost first, with the selected one bright."""
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append("in ", style=palette.MUTED)
    for depth, place in enumerate(reversed(view.frames)):
        text.append(" ← " if depth else "", style=palette.MUTED)
        style = palette.STRONG if depth == view.frame else palette.MUTED
        text.append(f"{display.shown(place.function, 60)}:{place.line}", style=style)
    text.append("   u d", style=palette.MUTED)
    return text


def why_nothing(
    phase: Literal["none", "before", "running", "stopped", "gone"],
    script: ScriptState,
    view: View | None,
    ahead: int = 0,
) -> Text:
    """Return why no launch is stopped.

    Args:
        phase: the state of the debugger.
        script: the state of the script.
        view: the last stop; None if there was none.
        ahead: commands that wait for the next one.
    """
    match phase:
        case "running":
            said = f"running; P stops it{_waiting(ahead)}"
        case "gone" if script.phase == "signalled":
            said = f"the script was killed by signal {script.number}"
        case "gone" if not script.going_on and script.number not in (None, 0, _FAULTS_FOUND):
            said = f"the script has ended with exit status {script.number}; 4 Output says why"
        case "gone" if not script.going_on:
            said = "the script has ended"
        case "gone":
            said = "the debugger has gone: nothing stops any more"
        case "none":
            said = "a recorded run"
        case _:
            said = "nothing has stopped yet"
    if phase == "gone" and view is not None:
        said += "; below is where it was stopped last"
    return Text(said, style=palette.MUTED)


def _waiting(ahead: int) -> str:
    if not ahead:
        return ""
    return f"; {ahead} command{'s' * (ahead != 1)} for the next stop, Esc forgets"
