"""The home pane: kernels, the annotated source of one, and what is known of the line chosen there.

Responsible for what is chosen and how keys change it; the model of a run is read in a thread.
"""

from __future__ import annotations

import time
from typing import ClassVar, NamedTuple

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.widgets import Static, TabPane

from tkdebug.errors import SessionError
from tkdebug.instrument.home.pictures import TIMES
from tkdebug.instrument.home.records import LaunchModel, Place, RunModel, Step
from tkdebug.instrument.session import Session
from tkdebug.tui.debug.link import Breakpoints, DebugAsked, Said
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.home.facts import Panel, line_facts, line_head
from tkdebug.tui.home.kernels import Kernels, next_steps
from tkdebug.tui.home.sheet import HEATS, Finding, RunIndex, Sheet
from tkdebug.tui.home.source import HomeSource
from tkdebug.tui.home.stage import StageView, stage_head
from tkdebug.tui.home.strip import TimeStripView
from tkdebug.tui.messages import FollowLine, Jumped, ModelRead, OpenKernel, SessionFailed, TabMarked
from tkdebug.tui.pane import Pane
from tkdebug.tui.session.snapshot import ScriptState, Snapshot
from tkdebug.tui.widgets.find import FindBar
from tkdebug.tui.widgets.line_list import LineList
from tkdebug.tui.widgets.rows_view import RowsView, wrapped
from tkdebug.tui.widgets.typing_keys import typing_key

# Between two reads of a run that goes on: so many times as long as the last one took, and no less.
_REST = 8
_LEAST_REST_S = 1.0
# Texts of stages take longest to read: up to so many launches the rest is shown before.
_MOST_READ_TWICE = 50_000
_LEAST_SIZE = (40, 10)
_ONE_COLUMN_BELOW = (110, 28)
_SMALL_BELOW = (80, 24)


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
    DEFAULT_CSS = """
    HomePane {
        & #home-next { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
        & #home-title, & #home-line, & #home-stage-head {
            height: 1; background: $panel; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis;
        }
        & #home-body { height: 1fr; layout: horizontal; }
        & Kernels { width: 22; height: 1fr; }
        & #home-middle { width: 1fr; height: 1fr; }
        & #home-source { height: 1fr; }
        & #home-source > .lines--cursor { background: $primary 30%; text-style: none; }
        & #home-source > .lines--cursor-blurred { background: $primary 18%; }
        & #home-right { width: 40; height: 1fr; border-left: solid $panel-lighten-1; }
        & #home-facts { height: 3fr; padding: 0 1; }
        & #home-stage-box { height: 2fr; }
        & #home-stage { scrollbar-size-horizontal: 0; }
        & #home-stage > .lines--cursor { background: $primary 30%; text-style: none; }
        & #home-small { display: none; padding: 1 1; }
        &.-large Kernels { width: 30; }
        &.-large #home-right { width: 40%; }
        &.-one #home-body { layout: vertical; }
        &.-one Kernels { width: 1fr; height: 1; }
        &.-one #home-right { width: 1fr; height: 36%; min-height: 9; border-left: none; }
        &.-one #home-title { display: none; }
        &.-one #home-stage-box { display: none; height: 1fr; }
        &.-one.-stage #home-stage-box { display: block; }
        &.-one.-stage #home-facts { display: none; }
        &.-one.-stage #home-line { display: none; }
        &.-small #home-right, &.-small Kernels, &.-small #home-strip { display: none; }
        &.-small.-stage #home-right { display: block; height: 50%; }
        &.-all #home-middle, &.-all Kernels, &.-all #home-stage-box { display: none; }
        &.-all #home-right { display: block; width: 1fr; height: 1fr; border-left: none; }
        &.-all #home-facts { display: block; }
        &.-all #home-line { display: block; }
        &.-none #home-right, &.-none Kernels, &.-none #home-title { display: none; }
        &.-tiny > * { display: none; }
        &.-tiny #home-small { display: block; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
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
        Binding("escape", "leave", "Back", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="home-pane")
        self._index: RunIndex | None = None
        self._kernel, self._variant, self._finding = 0, 0, -1
        self._file = ""
        self._unfolded: frozenset[Place] = frozenset()
        self._stage = ""
        self._has_moved = False
        self._step_columns: list[tuple[int, int, Step]] = []
        self._snapshot: Snapshot | None = None
        self._state = ScriptState("starting")
        self._session: Session | None = None
        self._failure = ""
        self._seen: tuple[object, ...] = ()
        self.is_reading = False
        self._due_s = 0.0
        self._breakpoints: dict[Place, str] = {}

    def compose(self) -> ComposeResult:
        """Lay out words, strip, and kernels, source and facts beside each other."""
        yield Static(id="home-small")
        yield Static(id="home-next")
        yield TimeStripView()
        yield Container(
            Kernels(),
            Vertical(Static(id="home-title"), HomeSource(), id="home-middle"),
            Vertical(
                Static(id="home-line"),
                RowsView(id="home-facts"),
                Vertical(Static(id="home-stage-head"), StageView(), id="home-stage-box"),
                id="home-right",
            ),
            id="home-body",
        )
        yield FindBar()

    def on_mount(self) -> None:
        """Begin empty."""
        self._lay_out()
        self._show_empty()
        self._source.show_breakpoints(self._breakpoints)

    def came_in_sight(self) -> None:
        """Read what came meanwhile."""
        self._read()

    def focus_main(self) -> None:
        """Focus the source, or the facts where they have the screen."""
        if self.has_class("-all"):
            self.query_one("#home-facts").focus()
        else:
            self._source.focus()

    @property
    def _source(self) -> HomeSource:
        return self.query_one(HomeSource)

    @property
    def _stage_view(self) -> StageView:
        return self.query_one(StageView)

    @property
    def model(self) -> RunModel | None:
        """The model that is shown."""
        return None if self._index is None else self._index.model

    @property
    def index(self) -> RunIndex | None:
        """The model as it is looked up in."""
        return self._index

    # Reading

    def show(self, snapshot: Snapshot | None, state: ScriptState, session: Session | None) -> None:
        """Read the run again if there is more of it."""
        self._snapshot, self._state, self._session = snapshot, state, session
        if self.is_ready:
            self._read()
            if self._index is None:
                self._show_empty()

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

    def on_model_read(self, event: ModelRead) -> None:
        """Show the model that was read; what is chosen stays."""
        event.stop()
        if event.took_s is not None or event.failure:
            self.is_reading = False
            rest_s = max(_LEAST_REST_S, _REST * (event.took_s or 0.0))
            self._due_s = time.monotonic() + rest_s
        self._failure = event.failure
        if event.index is None:
            self.app.post_message(SessionFailed(event.failure))
            if self._index is None:
                self._show_empty()
            return
        before, position = self._index, self.position()
        self._index = event.index
        if before is None or not self._has_moved or not isinstance(position, Position):
            self._open_first()
        else:
            self._finding = -1
            self._restore(position)
        self.query_one(TimeStripView).show_model(event.index.model)
        self._show_all()
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
        """The specialisation that is shown."""
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
        self._show_all()

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
        self._show_all()

    def _finding_at(self, place: Place | None) -> int:
        assert self._index is not None
        found = enumerate(self._index.findings)
        return next((number for number, one in found if one.place == place), -1)

    def _jump(self) -> None:
        """Note where one was, to come back to."""
        self._has_moved = True
        self.post_message(Jumped(self.TAB, self.position()))

    # Showing

    def _show_all(self) -> None:
        self._show_words()
        self._show_kernels()
        self._show_line()

    def _show_empty(self) -> None:
        self._show_words()
        self.set_class(True, "-none")
        self._source.empty_text = self._why_empty()
        self._source.show_rows(())

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

    def _show_words(self) -> None:
        line = self.query_one("#home-next", Static)
        if self._index is None:
            line.update(Text(""))
            return
        text, self._step_columns = next_steps(self._index, max(40, self.size.width))
        line.update(text, layout=False)

    def _show_kernels(self) -> None:
        index, kernels = self._index, self.query_one(Kernels)
        if index is None:
            return
        is_row = self.has_class("-one")
        width = self.size.width if is_row else kernels.size.width or 22
        kernels.show_index(
            index, self._kernel, self._finding, is_row=is_row, width=width, height=self._height()
        )

    def _height(self) -> int:
        return max(1, self.query_one("#home-body").size.height)

    def _show_line(self) -> None:
        """Show what is known of the line at the cursor."""
        sheet, place = self.sheet, self._source.place
        was_none, is_none = self.has_class("-none"), sheet is None or place is None
        self.set_class(is_none, "-none")
        if was_none and not is_none:
            # What comes in sight now has its size only then.
            self.call_after_refresh(self._show_all)
        if sheet is None or self._index is None:
            self._source.empty_text = self._why_empty()
            return
        self._source.empty_text = "the source of this kernel was not recorded"
        self._show_title(sheet)
        if place is None:
            return
        facts = self.query_one("#home-facts", RowsView)
        width = max(20, facts.content_size.width)
        self.query_one("#home-line", Static).update(line_head(sheet, place, width), layout=False)
        has_source = self._source.is_whole and not self.has_class("-all")
        panel = Panel(width, facts.size.height, palette.is_plain(self.app), has_source)
        rows = line_facts(sheet, place, panel)
        facts.show_rows(wrapped(rows, width, self.app.console))
        self._show_stage(sheet, place)

    def _show_stage(self, sheet: Sheet, place: Place) -> None:
        view, found = self._stage_view, sheet.lines.get(place)
        view.show_stage(sheet.code, self._stage)
        rows = dict(found.rows or {}) if found is not None else {}
        width = self.query_one("#home-stage-head").size.width - 2
        head = stage_head(sheet.code, self._stage, rows, width)
        self.query_one("#home-stage-head", Static).update(head, layout=False)
        view.empty_text = self._why_no_stage(sheet)
        view.light_place(place)

    def _why_no_stage(self, sheet: Sheet) -> str:
        if self.is_reading and sheet.code is None:
            return "reading the forms of this kernel…"
        if sheet.variant is not None and sheet.variant.error:
            return "it did not compile"
        return "no form of this kernel was recorded; tkdebug run --target sm_90a compiles it"

    def _show_title(self, sheet: Sheet) -> None:
        title = Text(no_wrap=True, overflow="ellipsis")
        title.append("✖", style=palette.FAULT)
        title.append("◆", style=palette.ADVICE)
        title.append("◉ ", style=palette.VALUE)
        heat = HEATS.get(sheet.heat_by)
        said = " ".join(filter(None, heat)) if heat else "no heat: run --advise weighs lines"
        title.append(said, style=palette.MUTED)
        title.append(f"   {display.shown(sheet.name, 60)}", style=palette.STRONG)
        kernel, variant = sheet.kernel, sheet.variant
        if kernel is not None and len(kernel.variants) > 1 and variant is not None:
            number = kernel.variants.index(variant) + 1
            title.append(f"  v {number}/{len(kernel.variants)} ", style=palette.MUTED)
            title.append(display.shown(variant.differs, 80))
        if variant is not None and variant.launches:
            title.append(f"  {display.count(variant.launches)} {TIMES}", style=palette.MUTED)
        self.query_one("#home-title", Static).update(title, layout=False)

    def on_resize(self, event: events.Resize) -> None:
        """Lay out for the size."""
        self._lay_out()

    def _lay_out(self) -> None:
        width, height = self.app.size
        self.set_class(width < _LEAST_SIZE[0] or height < _LEAST_SIZE[1], "-tiny")
        is_small = width < _SMALL_BELOW[0] or height < _SMALL_BELOW[1]
        is_one = is_small or width < _ONE_COLUMN_BELOW[0] or height < _ONE_COLUMN_BELOW[1]
        self.set_class(is_small, "-small")
        self.set_class(is_one, "-one")
        self.set_class(width >= 152, "-large")
        strip = self.query_one(TimeStripView)
        strip.most_tracks = 1 if is_one else 2 if height < 40 else 4
        strip.has_head = not is_one
        strip.refresh(layout=True)
        needed = f"needs {_LEAST_SIZE[0]} columns and {_LEAST_SIZE[1]} rows"
        self.query_one("#home-small", Static).update(Text(needed))
        # What is in it is laid out for its own width, known only then.
        self.call_after_refresh(self._show_all)

    # Keys

    def on_line_list_moved(self, event: LineList.Moved) -> None:
        """Show the facts of the line that is chosen now."""
        event.stop()
        if event.line_list is self._source:
            self._has_moved = True
            assert self._index is not None
            self._finding = self._finding_at(self._source.place)
            self._show_line()
            self._show_kernels()

    def on_line_list_chosen(self, event: LineList.Chosen) -> None:
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
        place = self._stage_view.source_of(event.index)
        if place is not None:
            self._show_place(place)
            self._show_line()

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
        self._show_all()

    def action_first_finding(self) -> None:
        """Go to the first finding."""
        self._finding = -1
        self.action_finding(1)

    def action_kernel(self, step: int) -> None:
        """Go to the next or the previous kernel."""
        if self._index is not None and self._index.model.kernels:
            self._jump()
            self._go_to_kernel(max(0, self._kernel) + step)
            self._show_all()

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
        self._show_all()

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
        self._show_line()

    def action_facts(self) -> None:
        """Give the facts the whole screen, or take it back."""
        self.toggle_class("-all")
        self.focus_main()
        self.call_after_refresh(self._show_line)

    def action_stage(self, step: int) -> None:
        """Show another form of the kernel; in one column, after the last one the facts again."""
        sheet = self.sheet
        stages = [] if sheet is None or sheet.code is None else sheet.code.stages
        names = [one.name for one in stages]
        if not names:
            self.app.notify(
                "no form of this kernel was recorded; tkdebug run --target sm_90a compiles it"
            )
            return
        at = names.index(self._stage) if self._stage in names else 0
        if self.has_class("-one") and not self.has_class("-stage"):
            self.add_class("-stage")
            at = at if self._stage in names else 0
        elif self.has_class("-one") and not 0 <= at + step < len(names):
            self.remove_class("-stage")
            at = 0
        else:
            at = (at + step) % len(names)
        self._stage = names[at]
        self.remove_class("-all")
        self.focus_main()
        self.call_after_refresh(self._show_line)

    def action_heat(self) -> None:
        """Let heat measure something else."""
        sheet = self.sheet
        if sheet is None or len(sheet.heats) < 2:
            self.app.notify("nothing else was measured by line; run --advise, or --stalls on a GPU")
            return
        at = sheet.heats.index(sheet.heat_by)
        sheet.heat_by = sheet.heats[(at + 1) % len(sheet.heats)]
        self._show_place(self._source.place)
        self._show_line()

    def action_zoom(self, is_in: bool) -> None:
        """Show a shorter or longer time."""
        self.query_one(TimeStripView).zoom(is_in)

    def action_launch(self, step: int) -> None:
        """Choose the next or the previous launch."""
        launches = () if self._index is None else self._launches()
        if not launches:
            self.app.notify("no launches")
            return
        now = self.query_one(TimeStripView).launch
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
        self.query_one(TimeStripView).show_launch(launch)
        sheet = self.sheet
        variant = "" if sheet is None or sheet.variant is None else sheet.variant.key
        if launch.variant != variant and launch.kernel >= 0:
            name = self._index.model.kernels[launch.kernel].name
            kernel, number = self._index.sheet_of(launch.variant, name)
            place = self._source.place if kernel == self._kernel else None
            self._jump()
            self._go_to_kernel(kernel, number, place)
            self._show_all()

    def on_time_strip_view_chosen(self, event: TimeStripView.Chosen) -> None:
        """Choose the launch that was clicked."""
        event.stop()
        for launch in self._launches():
            if launch.seq == event.seq:
                self._choose_launch(launch)

    def on_kernels_picked(self, event: Kernels.Picked) -> None:
        """Show the kernel, or the finding, that was clicked."""
        event.stop()
        self._jump()
        if event.finding >= 0:
            self._go_to_finding(event.finding)
        else:
            self._go_to_kernel(event.kernel)
        self._show_all()
        self.focus_main()

    def on_click(self, event: events.Click) -> None:
        """Go to the step that was clicked."""
        if event.widget is None or event.widget.id != "home-next":
            return
        for begin, end, step in self._step_columns:
            if begin <= event.x < end and step.place is not None and self._index is not None:
                self.go_to(step.variant, self._kernel_of(step), step.place)

    def _kernel_of(self, step: Step) -> str:
        assert self._index is not None
        model = self._index.model
        if step.kind == "advice":
            return model.remarks[step.number].kernel
        return model.faults[step.number].kernel

    def action_find(self, line: bool = False) -> None:
        """Find text, or go to a line, in the source or the stage in focus."""
        view: LineList = self._stage_view if self._stage_view.has_focus else self._source
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
        """Permit to leave only what has taken another's place."""
        if action == "leave":
            return self.has_class("-all") or self.has_class("-stage")
        return super().check_action(action, parameters)

    def action_leave(self) -> None:
        """Leave what has the whole screen, or the stage that has the facts' place."""
        if self.has_class("-all"):
            self.action_facts()
        elif self.has_class("-stage"):
            self.remove_class("-stage")
            self.call_after_refresh(self._show_line)

    def recolour(self) -> None:
        """Draw again what differs where there are no colours."""
        if self.is_ready:
            self._show_line()

    def source_place(self) -> tuple[str, int] | None:
        """The line at the cursor."""
        return self._source.place

    def copied_text(self) -> str:
        """The line at the cursor with all that is known of it; of a stage, its row."""
        if self._stage_view.has_focus:
            return self._stage_view.cursor_text
        sheet, place = self.sheet, self._source.place
        if sheet is None or place is None:
            return ""
        rows = line_facts(sheet, place, Panel(72, is_plain=True))
        return "\n".join(row.plain.rstrip() for row in rows)
