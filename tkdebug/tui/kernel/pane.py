"""The kernel pane: source beside one stage of the compiler, each line tied to its lines there."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from tkdebug.debugger.remote.records import SetBreakpoint
from tkdebug.errors import SessionError
from tkdebug.instrument.records import RecordedKernel
from tkdebug.instrument.session import Session
from tkdebug.tui.debug.link import Breakpoints, DebugAsked, Said
from tkdebug.tui.debug.source import breakpoint_marks
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.kernel.sides import (
    KernelSides,
    source_title,
    stage_title,
    stages_elsewhere,
    title_text,
)
from tkdebug.tui.kernel.text import (
    FIRST_STAGE,
    KernelText,
    first_to_show,
    load_kernel_text,
    nothing_compiled,
)
from tkdebug.tui.messages import FollowLine, KernelLoaded, OpenKernel, SessionFailed
from tkdebug.tui.pane import Pane
from tkdebug.tui.session.snapshot import FaultGroup, ScriptState, Snapshot
from tkdebug.tui.widgets.code_view import CodeView
from tkdebug.tui.widgets.dialogs import KERNEL_DETAILS, Choice, PickScreen, kernel_choices
from tkdebug.tui.widgets.find import FindBar
from tkdebug.tui.widgets.typing_keys import take_keys, typing_key

LINES_ABOVE_KERNEL = 2


class KernelPane(Pane):
    """Left (or above) the source, right (or below) a stage; the cursor of one lights the other."""

    TAB = "kernel"
    KEYS = (
        ("↑ ↓", "on either side light what belongs to it on the other"),
        ("[ ]", "previous, next lit line on the other side"),
        ("Enter", "to the other side; to the file that the op is from"),
        ("p n N", "pick a kernel, next, previous"),
        ("s S t", "next stage of the compiler, previous, pick one"),
        ("l", "follow the source line through every pass"),
        ("b", "a breakpoint at the source line, for this launch or the next; or none"),
        ("f", "next source file"),
        ("x", "next faulting line"),
        ("v", "sides beside or above each other"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        typing_key("slash", "find", "Find"),
        typing_key("colon", "find(True)", "Go to line", show=False),
        Binding("p", "pick_kernel", "Kernel"),
        Binding("s", "stage(1)", "Stage"),
        Binding("S", "stage(-1)", "Previous stage", show=False),
        Binding("t", "pick_stage", "Pick stage", show=False),
        Binding("l", "follow", "Follow"),
        Binding("b", "toggle_breakpoint", "Breakpoint", show=False),
        Binding("n", "kernel(1)", "Next kernel", show=False),
        Binding("N", "kernel(-1)", "Previous kernel", show=False),
        Binding("f", "file", "File", show=False),
        Binding("v", "turn", "Turn split", show=False),
        Binding("x", "next_fault", "Fault"),
        Binding("right_square_bracket", "next_lit(1)", "Next lit line", show=False),
        Binding("left_square_bracket", "next_lit(-1)", "Previous lit line", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="kernel-pane")
        self._session: Session | None = None
        self._kernels: tuple[RecordedKernel, ...] = ()
        self._faults: tuple[FaultGroup, ...] = ()
        self._breakpoints: tuple[SetBreakpoint, ...] = ()
        self._stage = FIRST_STAGE
        self._text: KernelText | None = None
        self._wanted: tuple[str | None, str] | None = None

    def compose(self) -> ComposeResult:
        """Lay out the title, the two sides, and the origin of the op at the cursor."""
        yield Static(id="kernel-title")
        yield KernelSides(self._show_chain)
        yield FindBar()
        yield Static(id="kernel-chain")

    def on_mount(self) -> None:
        """Begin empty."""
        self._show_empty(ScriptState("starting"))

    def focus_main(self) -> None:
        """Focus the source."""
        take_keys(self._sides.source)

    def show(self, snapshot: Snapshot | None, state: ScriptState, session: Session | None) -> None:
        """Take a new snapshot; the first kernel is shown when it comes."""
        if not self.is_ready:
            return
        self._session = session
        if snapshot is None:
            self._kernels, self._faults, self._text = (), (), None
            self._show_empty(state)
            return
        self._kernels = snapshot.kernels
        if self._faults is not snapshot.faults:
            self._faults = snapshot.faults
            self._show_marks()
        if self._text is None and self._wanted is None and self._kernels:
            self._load(first_to_show(self._kernels), None, None)
        if self._text is None:
            self._show_empty(state)
        else:
            self._show_title()

    def open(self, request: OpenKernel) -> None:
        """Show the requested kernel."""
        named = [k for k in self._kernels if k.name == request.name]
        kernel = next((k for k in self._kernels if k.hash == request.kernel_hash), None)
        kernel = kernel or (named[0] if named else None)
        if kernel is None and request.file is None:
            self.app.notify(
                f"kernel {display.shown(request.name, 60)} was not recorded", markup=False
            )
            return
        line = request.line
        if line is None and kernel is not None:
            line = kernel.line
        self._load(kernel, request.file, line)

    def _load(self, kernel: RecordedKernel | None, file: str | None, line: int | None) -> None:
        session = self._session
        if session is None:
            return
        if file is None and kernel is not None:
            file = kernel.file
            line = kernel.line if line is None else line
        path, stage, shown = file or "", self._stage, self._text
        self._wanted = (kernel.hash if kernel is not None else None, path)

        is_new = kernel is not None and not (
            shown is not None and shown.kernel == kernel and shown.has_read_code
        )

        def load() -> None:
            try:
                text = load_kernel_text(session, kernel, path, stage, shown, reads_code=not is_new)
                self.post_message(KernelLoaded(text, line))
                if is_new:
                    # It takes nvdisasm, for which nobody has to wait to read the source.
                    text = load_kernel_text(session, kernel, path, stage, shown)
                    if text.table is not None or text.note:
                        self.post_message(KernelLoaded(text, None))
            except SessionError as error:
                self.app.post_message(SessionFailed(str(error)))

        self.run_worker(load, thread=True, exclusive=True, group="kernel")

    @on(KernelLoaded)
    def _show_loaded(self, event: KernelLoaded) -> None:
        """Show the kernel that was read, unless another has been asked for meanwhile."""
        event.stop()
        text = event.text
        if self._wanted != (text.kernel.hash if text.kernel is not None else None, text.file):
            return
        before, self._text = self._text, text
        source = self._sides.source
        at = source.line
        self._sides.show(text, self._source_marks(text), self._faults)
        if event.line is not None:
            kernel = text.kernel
            begins = kernel is not None and (kernel.file, kernel.line) == (text.file, event.line)
            # A kernel is read from its decorators on.
            top = event.line - LINES_ABOVE_KERNEL if begins else None
            source.go_to(text.line_with_ops(event.line), top)
        elif before is not None and (before.kernel, before.file) == (text.kernel, text.file):
            source.go_to(at, None)
        self._show_title()
        self._sides.light_stage(source.line)

    def _show_empty(self, state: ScriptState) -> None:
        self._sides.clear()
        self._sides.source.empty_text = (
            "no kernel compiled yet; its source and Tile IR show here once it is launched"
            if state.going_on
            else nothing_compiled(bool(self._faults))
        )
        self.query_one("#kernel-title", Static).update(Text("kernel", style=palette.MUTED))
        self.query_one("#source-title", Static).update(Text("source"))
        self.query_one("#stage-title", Static).update(Text("Tile IR"))
        self.query_one("#kernel-chain", Static).update(Text(""))

    def _show_title(self) -> None:
        shown = self._text
        if shown is None:
            return
        kernels = self._kernels
        for name, text in (
            ("#kernel-title", title_text(kernels, shown)),
            ("#source-title", source_title(shown)),
            ("#stage-title", stage_title(kernels, shown)),
        ):
            self.query_one(name, Static).update(text)

    def _show_marks(self) -> None:
        if self._text is not None:
            self._sides.show_marks(self._source_marks(self._text), self._faults)

    def _source_marks(self, text: KernelText) -> dict[int, str]:
        marks = breakpoint_marks(self._breakpoints, text.file)
        return {**text.source_marks(self._faults), **marks}

    def hear(self, said: Said) -> None:
        """Show breakpoints in the gutter."""
        if isinstance(said, Breakpoints):
            self._breakpoints = said.all
            self._show_marks()

    def action_toggle_breakpoint(self) -> None:
        """Set a breakpoint at the source line at the cursor, or remove it."""
        if self._text is not None and self._text.file:
            line = self._sides.source.line
            self.post_message(DebugAsked.to_toggle(self._text.file, line))

    @on(CodeView.GutterClicked)
    def _toggle_clicked_line(self, event: CodeView.GutterClicked) -> None:
        """Set a breakpoint at the source line clicked, or remove it."""
        event.stop()
        if event.line_list.id == "source":
            self.action_toggle_breakpoint()

    @on(CodeView.Chosen)
    def _go_across(self, event: CodeView.Chosen) -> None:
        """Go to the other side by Enter, or to another file if the op is from there."""
        event.stop()
        source, stage = self._sides.source, self._sides.stage
        if event.line_list is source:
            if source.lit:
                stage.focus()
            return
        frames = self._text.frames(stage.line) if self._text is not None else ()
        if self._text is not None and frames and frames[-1].file != self._text.file:
            self._load(self._text.kernel, frames[-1].file, frames[-1].line)
        source.focus()

    def position(self) -> object:
        """Return the kernel, file and line that are looked at."""
        text = self._text
        return None if text is None else (text.kernel, text.file, self._sides.source.line)

    def restore(self, position: object) -> None:
        """Look again at a kernel's line."""
        match position:
            case (RecordedKernel() | None as kernel, str(file), int(line)):
                self._load(kernel, file, line)

    def source_place(self) -> tuple[str, int] | None:
        """The file and source line at the cursor, or None."""
        text = self._text
        return None if text is None or not text.file else (text.file, self._sides.source.line)

    def copied_text(self) -> str:
        """The line at the cursor of the side in focus."""
        return self._sides.focused.cursor_text

    @property
    def _sides(self) -> KernelSides:
        return self.query_one(KernelSides)

    def _show_chain(self, chain: Text) -> None:
        self.query_one("#kernel-chain", Static).update(chain)

    def action_stage(self, step: int) -> None:
        """Show another stage."""
        if self._text is None or not self._text.stages:
            self.app.notify("no stage of the compiler was recorded")
            return
        stages = self._text.stages
        if len(stages) == 1:
            kernel = self._text.kernel
            more = stages_elsewhere(self._kernels, kernel).strip() if kernel else ""
            said = f"{display.shown(stages[0], 60)} is the only stage"
            self.app.notify(f"{said}; {more}" if more else said, markup=False)
            return
        at = stages.index(self._text.stage) if self._text.stage in stages else 0
        self._show_stage(stages[(at + step) % len(stages)])

    def _show_stage(self, stage: str) -> None:
        self._stage = stage
        if self._text is not None:
            line = self._sides.source.line
            self._load(self._text.kernel, self._text.file, line)

    def action_pick_stage(self) -> None:
        """Choose a stage from a list."""
        shown = self._text
        if shown is None or not shown.stages:
            return
        stages = shown.stages
        choices = [Choice(display.shown(stage, 60), "") for stage in stages]

        def picked(index: int | None) -> None:
            if index is not None:
                self._show_stage(stages[index])

        at = stages.index(shown.stage) if shown.stage in stages else 0
        self.app.push_screen(PickScreen("Stages", choices, begin=at), picked)

    def action_follow(self) -> None:
        """Follow the source line at the cursor through every pass."""
        shown = self._text
        if shown is None or shown.kernel is None:
            return
        line = self._sides.source.line
        self.post_message(FollowLine(shown.kernel.hash, shown.file, line))

    def action_kernel(self, step: int) -> None:
        """Show another specialisation."""
        if not self._kernels:
            return
        shown = self._text.kernel.hash if self._text and self._text.kernel else None
        at = next((i for i, k in enumerate(self._kernels) if k.hash == shown), -step)
        self._load(self._kernels[(at + step) % len(self._kernels)], None, None)

    def action_pick_kernel(self) -> None:
        """Choose a specialisation from a list."""
        kernels = self._kernels
        if not kernels:
            return
        shown = self._text.kernel.hash if self._text and self._text.kernel else None
        at = next((i for i, k in enumerate(kernels) if k.hash == shown), 0)

        def picked(index: int | None) -> None:
            if index is not None:
                self._load(kernels[index], None, None)

        screen = PickScreen("Kernels", kernel_choices(kernels), KERNEL_DETAILS, at)
        self.app.push_screen(screen, picked)

    def action_file(self) -> None:
        """Show the next file that this kernel's ops come from."""
        if self._text is None or len(self._text.files) < 2:
            return
        files = self._text.files
        at = files.index(self._text.file) if self._text.file in files else -1
        file = files[(at + 1) % len(files)]
        chains = (self._text.chains or {}).values()
        lines = [f.line for chain in chains for f in chain if f.file == file]
        self._load(self._text.kernel, file, min(lines, default=1))

    def action_turn(self) -> None:
        """Put the sides above each other, or beside each other."""
        self._sides.toggle_class("turned")

    def action_next_lit(self, step: int) -> None:
        """Scroll the other side to its next highlighted line, from the last one to the first."""
        self._sides.next_lit(step)

    def action_find(self, line: bool = False) -> None:
        """Find text, or go to a line, on the side in focus."""
        self.query_one(FindBar).open(self._sides.focused, line=line)

    def action_next_fault(self) -> None:
        """Go to the next line with a fault."""
        if self._text is None:
            return
        source = self._sides.source
        marks = self._text.source_marks(self._faults)
        lines = sorted(line for line, mark in marks.items() if mark != "call")
        if not lines:
            self.app.notify("no fault in this file")
            return
        line = next((line for line in lines if line > source.line), lines[0])
        source.go_to(line)
        self._sides.light_stage(line)
