"""The home pane: kernels, the annotated source of one, and what is known of the line chosen there.

Responsible for what is chosen and how keys change it; the model of a run is read in a thread.
"""

from __future__ import annotations

import os
import re
import time
from typing import ClassVar, NamedTuple

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import TabPane

from tkdebug.errors import SessionError
from tkdebug.instrument.home.records import LaunchModel, Place, RunModel, Step
from tkdebug.instrument.session import Session
from tkdebug.tui.debug.link import Breakpoints, DebugAsked, Said
from tkdebug.tui.drawing import display
from tkdebug.tui.home.facts import Panel, line_facts
from tkdebug.tui.home.kernels import Kernels
from tkdebug.tui.home.sheet import Finding, RunIndex, Sheet
from tkdebug.tui.home.source import HomeSource
from tkdebug.tui.home.strip import TimeStripView
from tkdebug.tui.home.view import NO_STAGE, Chosen, HomeView
from tkdebug.tui.messages import FollowLine, Jumped, ModelRead, OpenKernel, SessionFailed, TabMarked
from tkdebug.tui.pane import Pane
from tkdebug.tui.session.snapshot import ScriptState, Snapshot
from tkdebug.tui.widgets.find import FindBar
from tkdebug.tui.widgets.line_list import LineList
from tkdebug.tui.widgets.typing_keys import typing_key

# Between two reads of a run that goes on: so many times as long as the last one took, and no less.
_REST = 8
_LEAST_REST_S = 1.0
# Texts of stages take longest to read: up to so many launches the rest is shown before.
_MOST_READ_TWICE = 50_000
_ASSIGNED = re.compile(r"\s*([^\W\d]\w*)\s*(?::[^=]+)?(?:[-+*/%|&^@]|//|<<|>>)?=(?!=)")


class Position(NamedTuple):
    """A place of the pane, to come back to: kernel, variant, line and panel."""

    kernel: str
    variant: str
    place: Place | None
    file: str


class HomePane(Pane):
    """The annotated source of a kernel between the list of kernels and the facts of its line.

    Attributes:
        is_reading: whether the session is being read.
    """

    TAB = "home"
    KEYS = (
        ("j k", "next, previous line"),
        ("n p g", "next, previous, first finding: a fault ✖, advice ◆"),
        ("J K", "next, previous kernel; v: its next specialisation"),
        ("u", "unfold the function inlined at the line, or fold it"),
        ("f", "all facts of the line, on the whole screen"),
        ("s", "next form of the kernel: Tile IR, GPU IR, LLVM, PTX, SASS"),
        ("[ ] ← →", "zoom the strip of time; choose a launch"),
        ("h", "what heat measures: time, instructions, sectors"),
        ("e", "the line in $EDITOR"),
        ("b l Enter", "breakpoint; follow the line through passes; the line in 3 Kernel"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back"),
        typing_key("slash", "find", "Find"),
        typing_key("colon", "find(True)", "Go to line", show=False),
        Binding("j", "line(1)", "Line", show=False),
        Binding("k", "line(-1)", "Line above", show=False),
        Binding("n", "finding(1)", "Finding", key_display="n p"),
        Binding("p", "finding(-1)", "Previous finding", show=False),
        Binding("g", "first_finding", "First finding", show=False),
        Binding("J", "kernel(1)", "Kernel", key_display="J K"),
        Binding("K", "kernel(-1)", "Previous kernel", show=False),
        Binding("v", "variant", "Specialisation", show=False),
        Binding("u", "unfold", "Unfold"),
        Binding("f", "facts", "All facts"),
        Binding("s", "stage(1)", "Stage"),
        Binding("S", "stage(-1)", "Previous stage", show=False),
        Binding("h", "heat", "Heat", show=False),
        Binding("left_square_bracket", "zoom(False)", "Zoom", show=False),
        Binding("right_square_bracket", "zoom(True)", "Zoom in", show=False),
        Binding("right", "launch(1)", "Launch", key_display="← →"),
        Binding("left", "launch(-1)", "Previous launch", show=False),
        Binding("b", "toggle_breakpoint", "Breakpoint", show=False),
        Binding("l", "follow", "Follow", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="home-pane")
        self._index: RunIndex | None = None
        self._kernel, self._variant, self._finding = 0, 0, -1
        self._file = ""
        self._unfolded: frozenset[Place] = frozenset()
        self._stage = ""
        self._has_moved = False
        self._snapshot: Snapshot | None = None
        self._state = ScriptState("starting")
        self._session: Session | None = None
        self._failure = ""
        self._seen: tuple[object, ...] = ()
        self.is_reading = False
        self._due_s = 0.0
        self._breakpoints: dict[Place, str] = {}

    def came_in_sight(self) -> None:
        """Read what came meanwhile."""
        self._read()
        if self._index is None:
            self._view.show_empty()

    def compose(self) -> ComposeResult:
        """Lay out its parts."""
        yield HomeView(self._chosen)

    def on_mount(self) -> None:
        """Begin empty."""
        self._view.show_empty()
        self._source.show_breakpoints(self._breakpoints)

    def focus_main(self) -> None:
        """Focus the source, or the facts where they have the screen."""
        self._view.focus_main()

    @property
    def _view(self) -> HomeView:
        return self.query_one(HomeView)

    @property
    def _source(self) -> HomeSource:
        return self._view.source

    def _chosen(self) -> Chosen:
        return Chosen(
            self._index,
            self.sheet,
            self._kernel,
            self._finding,
            self._stage,
            self.is_reading,
            self._has_moved,
            self._why_empty(),
        )

    def _why_empty(self) -> str:
        if self._failure:
            return f"the recording cannot be read: {display.shown(self._failure, 300)}"
        if self.is_reading and self._snapshot is not None and self._snapshot.launch_count:
            return f"reading {display.count(self._snapshot.launch_count)} launches…"
        if self._state.going_on:
            return (
                "no kernel was launched yet; its source is shown here once it is. "
                "4 has what the script prints, i types to it"
            )
        return "no kernel was launched: 4 has what the script printed"

    @property
    def model(self) -> RunModel | None:
        """The model that is shown, or None."""
        return None if self._index is None else self._index.model

    @property
    def index(self) -> RunIndex | None:
        """The index of the model that is shown, or None."""
        return self._index

    # Reading

    def show(self, snapshot: Snapshot | None, state: ScriptState, session: Session | None) -> None:
        """Read the run again if there is more of it."""
        self._snapshot, self._state, self._session = snapshot, state, session
        if self.is_ready:
            self._read()
            if self._index is None:
                self._view.show_empty()

    def _is_in_sight(self) -> bool:
        return isinstance(self.parent, TabPane) and self.parent.display

    def _read(self) -> None:
        snapshot, session = self._snapshot, self._session
        if snapshot is None or session is None or self.is_reading or not self._is_in_sight():
            return
        seen = snapshot.launch_count, len(snapshot.kernels), self._state.going_on
        if (*seen, id(snapshot.faults)) == self._seen:
            return
        rest_s = self._due_s - time.monotonic()
        if self._state.going_on and rest_s > 0:
            self.set_timer(rest_s + 0.01, self._read)
            return
        self._seen, self.is_reading = (*seen, id(snapshot.faults)), True
        reads_twice = self._index is None and snapshot.launch_count <= _MOST_READ_TWICE

        def read() -> None:
            # Not before: it takes a while to import.
            from tkdebug.instrument.home.model import model_of

            begin_s = time.monotonic()
            try:
                if reads_twice:
                    index = RunIndex(model_of(session, code=False))
                    if index.findings:  # else it opens at the line of most instructions
                        self.post_message(ModelRead(index))
                index = RunIndex(model_of(session))
            except SessionError as error:
                self.post_message(ModelRead(None, str(error)))
                return
            self.post_message(ModelRead(index, took_s=time.monotonic() - begin_s))

        self.run_worker(read, thread=True, group="home")

    @on(ModelRead)
    def _show_model(self, event: ModelRead) -> None:
        """Show the model that was read; what is chosen stays."""
        event.stop()
        if event.took_s is not None or event.failure:
            self.is_reading = False
            rest_s = max(_LEAST_REST_S, _REST * (event.took_s or 0.0))
            self._due_s = time.monotonic() + rest_s
        if self._failure != event.failure:
            self.app.post_message(SessionFailed(event.failure))
        self._failure = event.failure
        if event.index is None:
            self._seen = ()  # read again when the pane comes in sight again
            if self._index is None:
                self._view.show_empty()
            return
        before, position = self._index, self.position()
        self._index = event.index
        if before is None or not self._has_moved or not isinstance(position, Position):
            self._open_first()
        else:
            self._finding = -1
            self._restore(position)
        self._view.strip.show_model(event.index.model)
        self._view.show_all()
        self.post_message(TabMarked())
        self._read()

    def _open_first(self) -> None:
        assert self._index is not None
        found = self._index.first_place()
        if found is not None:
            self._go_to_finding(0)
        else:
            self._go_to_kernel(0)

    # What is chosen

    @property
    def sheet(self) -> Sheet | None:
        """The specialisation that is shown, or None."""
        if self._index is None:
            return None
        if self._kernel >= len(self._index.model.kernels):
            return None
        return self._index.sheet(self._kernel, self._variant)

    def position(self) -> object:
        """Return the kernel and the line that are looked at."""
        sheet = self.sheet if self.is_ready else None
        if sheet is None:
            return None
        variant = "" if sheet.variant is None else sheet.variant.key
        return Position(sheet.name, variant, self._source.place, self._file)

    def restore(self, position: object) -> None:
        """Look again at a kernel and a line."""
        if self._index is None or not isinstance(position, Position):
            return
        self._restore(position)
        self._view.show_all()

    def _restore(self, position: Position) -> None:
        assert self._index is not None
        self._kernel, self._variant = self._index.sheet_of(position.variant, position.kernel)
        self._file = position.file
        self._show_place(position.place)

    def _go_to_finding(self, number: int) -> None:
        assert self._index is not None
        finding = self._index.findings[number]
        self._finding = number
        self._open(finding)

    def _open(self, finding: Finding) -> None:
        assert self._index is not None
        self._kernel, self._variant = self._index.sheet_of(finding.variant, finding.kernel)
        self._file = finding.place.file
        self._show_place(finding.place, centre=True)

    def _go_to_kernel(self, kernel: int, variant: int = 0, place: Place | None = None) -> None:
        assert self._index is not None
        kernels = self._index.model.kernels
        if not kernels:
            return
        self._kernel, self._variant, self._finding = kernel % len(kernels), variant, -1
        sheet = self.sheet
        self._file = kernels[self._kernel].file
        wanted = place or (None if sheet is None else sheet.opening())
        self._show_place(wanted, centre=True)

    def _show_place(self, place: Place | None, *, centre: bool = False) -> None:
        sheet = self.sheet
        if sheet is None:
            return
        if place is not None:
            self._unfolded |= sheet.way_to(place)
        source = self._source
        source.show_rows(sheet.rows(self._unfolded, self._file))
        if place is not None:
            source.go_to(place, centre=centre)

    def go_to(self, variant: str, kernel: str, place: Place | None) -> None:
        """Jump to a kernel's line; to the kernel's first where there is none."""
        if self._index is None:
            return
        self._jump()
        number, variant_number = self._index.sheet_of(variant, kernel)
        if number < 0 and place is not None:
            self._open(Finding("fault", 0, kernel, variant, place))
        else:
            self._go_to_kernel(max(0, number), variant_number, place)
        self._finding = self._finding_at(place)
        self._view.show_all()

    def _finding_at(self, place: Place | None) -> int:
        assert self._index is not None
        found = enumerate(self._index.findings)
        return next((number for number, one in found if one.place == place), -1)

    def _jump(self) -> None:
        """Post the present place, to which the user can come back."""
        self._has_moved = True
        self.post_message(Jumped(self.TAB, self.position()))

    # Keys

    @on(LineList.Moved)
    def _show_line_at_cursor(self, event: LineList.Moved) -> None:
        """Show the facts of the line that is chosen now."""
        event.stop()
        if event.line_list is self._source:
            self._has_moved = True
            assert self._index is not None
            self._finding = self._finding_at(self._source.place)
            self._view.show_line()
            self._view.show_kernels()

    @on(LineList.Chosen)
    def _open_line(self, event: LineList.Chosen) -> None:
        """Go from a row of a stage to its line, from a line to the kernel pane."""
        event.stop()
        sheet = self.sheet
        if sheet is None:
            return
        if event.line_list is self._source:
            place = self._source.place
            kernel_hash = sheet.variant.hashes[-1] if sheet.variant is not None else None
            if place is not None:
                self._jump()
                self.post_message(OpenKernel(kernel_hash, sheet.name, place.file, place.line))
            return
        place = self._view.stage.source_of(event.index)
        if place is not None:
            self._show_place(place)
            self._view.show_line()

    def action_line(self, step: int) -> None:
        """Go to another line."""
        self._source.action_move(step)

    def action_finding(self, step: int) -> None:
        """Go to the next or the previous finding."""
        findings = () if self._index is None else self._index.findings
        if not findings:
            self.app.notify("no findings")
            return
        self._jump()
        number = self._finding + step if self._finding >= 0 or step > 0 else -1
        self._go_to_finding(number % len(findings))
        self._view.show_all()

    def action_first_finding(self) -> None:
        """Go to the first finding."""
        self._finding = -1
        self.action_finding(1)

    def action_kernel(self, step: int) -> None:
        """Go to the next or the previous kernel."""
        if self._index is not None and self._index.model.kernels:
            self._jump()
            self._go_to_kernel(max(0, self._kernel) + step)
            self._view.show_all()

    def action_variant(self) -> None:
        """Show the next specialisation of the kernel, at the same line."""
        sheet = self.sheet
        kernel = None if sheet is None else sheet.kernel
        if kernel is None or len(kernel.variants) < 2:
            self.app.notify("this kernel has one specialisation")
            return
        self._jump()
        next_ = (self._variant + 1) % len(kernel.variants)
        self._go_to_kernel(self._kernel, next_, self._source.place)
        self._view.show_all()

    def action_unfold(self) -> None:
        """Unfold what is inlined at the line, or fold it."""
        sheet, place = self.sheet, self._source.place
        if sheet is None or place is None:
            return
        if place in self._unfolded:
            self._unfolded -= {place}
        elif place in sheet.calls:
            self._unfolded |= {place}
        elif callers := [one for one in self._unfolded if place in sheet.calls.get(one, ())]:
            self._unfolded -= set(callers)
            place = callers[0]
        else:
            self.app.notify("no function is inlined at this line")
            return
        self._show_place(place)
        self._view.show_line()

    def action_facts(self) -> None:
        """Give the facts the whole screen, or take it back."""
        if self._source.place is None:
            self.app.notify(self._why_empty(), markup=False)
        else:
            self._view.turn_facts()

    def action_stage(self, step: int) -> None:
        """Show another form of the kernel; in one column, after the last one the facts again."""
        sheet = self.sheet
        stages = [] if sheet is None or sheet.code is None else sheet.code.stages
        names = [one.name for one in stages]
        if not names:
            self.app.notify(NO_STAGE)
            return
        at, is_shown = names.index(self._stage) if self._stage in names else 0, True
        if not self._view.lacks_stage:
            is_shown = not self._view.has_class("-one") or 0 <= at + step < len(names)
            at = (at + step) % len(names) if is_shown else 0
        self._stage = names[at]
        self._view.turn_stage(is_shown=is_shown)

    def action_heat(self) -> None:
        """Show the next measure of lines as heat in the gutter."""
        sheet = self.sheet
        if sheet is None or len(sheet.heats) < 2:
            self.app.notify("nothing else was measured by line; run --advise, or --stalls on a GPU")
            return
        at = sheet.heats.index(sheet.heat_by)
        sheet.heat_by = sheet.heats[(at + 1) % len(sheet.heats)]
        self._show_place(self._source.place)
        self._view.show_line()

    def action_zoom(self, is_in: bool) -> None:
        """Show a shorter or longer time."""
        self._view.strip.zoom(is_in)

    def action_launch(self, step: int) -> None:
        """Choose the next or the previous launch."""
        launches = () if self._index is None else self._launches()
        if not launches:
            self.app.notify("no launches")
            return
        now = self._view.strip.launch
        at = next((i for i, one in enumerate(launches) if now and one.seq == now.seq), None)
        if at is None:
            at = -1 if step > 0 else 0
        self._choose_launch(launches[(at + step) % len(launches)])

    def _launches(self) -> tuple[LaunchModel, ...]:
        assert self._index is not None
        return tuple(sorted(self._index.model.launches, key=lambda one: one.start_ns))

    def _choose_launch(self, launch: LaunchModel) -> None:
        """Choose a launch, and show its kernel if that is another one."""
        assert self._index is not None
        self._view.strip.show_launch(launch)
        sheet = self.sheet
        variant = "" if sheet is None or sheet.variant is None else sheet.variant.key
        if launch.variant != variant and launch.kernel >= 0:
            name = self._index.model.kernels[launch.kernel].name
            kernel, number = self._index.sheet_of(launch.variant, name)
            place = self._source.place if kernel == self._kernel else None
            self._jump()
            self._go_to_kernel(kernel, number, place)
            self._view.show_all()

    @on(TimeStripView.Chosen)
    def _choose_clicked_launch(self, event: TimeStripView.Chosen) -> None:
        """Choose the launch that was clicked."""
        event.stop()
        for launch in self._launches():
            if launch.seq == event.seq:
                self._choose_launch(launch)

    @on(Kernels.Picked)
    def _choose_kernel(self, event: Kernels.Picked) -> None:
        """Show the kernel, or the finding, that was clicked."""
        event.stop()
        self._jump()
        if event.finding >= 0:
            self._go_to_finding(event.finding)
        else:
            self._go_to_kernel(event.kernel)
        self._view.show_all()
        self.focus_main()

    def on_click(self, event: events.Click) -> None:
        """Go to the step that was clicked."""
        step = self._view.step_at(event)
        if step is not None and step.place is not None and self._index is not None:
            self.go_to(step.variant, self._kernel_of(step), step.place)

    def _kernel_of(self, step: Step) -> str:
        assert self._index is not None
        model = self._index.model
        if step.kind == "advice":
            return model.remarks[step.number].kernel
        return model.faults[step.number].kernel

    def action_find(self, line: bool = False) -> None:
        """Find text, or go to a line, in the source or the stage in focus."""
        stage = self._view.stage
        view: LineList = stage if stage.has_focus else self._source
        self.query_one(FindBar).open(view, line=line)

    def action_follow(self) -> None:
        """Follow the line through every pass."""
        sheet, place = self.sheet, self._source.place
        if sheet is not None and sheet.variant is not None and place is not None:
            self._jump()
            self.post_message(FollowLine(sheet.variant.hashes[-1], place.file, place.line))

    def action_toggle_breakpoint(self) -> None:
        """Set a breakpoint at the line, or remove it."""
        place = self._source.place
        if place is not None:
            self.post_message(DebugAsked.to_toggle(place.file, place.line))

    def hear(self, said: Said) -> None:
        """Show breakpoints in the gutter."""
        if isinstance(said, Breakpoints):
            self._breakpoints = {
                Place(one.file, one.line): "breakpoint" if one.is_enabled else "disabled"
                for one in said.all
            }
            if self.is_ready:
                self._source.show_breakpoints(self._breakpoints)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Permit `leave` only if the facts or the stage have another's place."""
        if action == "leave":
            return self.is_ready and self._view.has_other
        return super().check_action(action, parameters)

    def action_leave(self) -> None:
        """Leave what has the whole screen, or the stage that has the facts' place."""
        self._view.leave()

    def recolour(self) -> None:
        """Draw again what differs where there are no colours."""
        if self.is_ready:
            self._view.show_line()

    def source_place(self) -> tuple[str, int] | None:
        """The file and line at the cursor, or None."""
        return self._source.place

    def watched(self) -> str:
        """Return the value that the line at the cursor assigns, for --watch; "" for none."""
        place = self._source.place if self.is_ready else None
        lines = () if self._index is None or place is None else self._index.files[place.file]
        if place is None or not 0 < place.line <= len(lines):
            return ""
        assigned = _ASSIGNED.match(lines[place.line - 1])
        if assigned is None:
            return ""
        here = os.path.relpath(place.file)
        return f"{place.file if here.startswith('..') else here}:{place.line}:{assigned[1]}"

    def copied_text(self) -> str:
        """The line at the cursor with all that is known of it; of a stage, its row."""
        if self._view.stage.has_focus:
            return self._view.stage.cursor_text
        sheet, place = self.sheet, self._source.place
        if sheet is None or place is None:
            return ""
        rows = line_facts(sheet, place, Panel(72, is_plain=True))
        return "\n".join(row.plain.rstrip() for row in rows)
