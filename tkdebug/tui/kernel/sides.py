"""The two sides of the kernel pane, source and one stage, and the rows around them.

The cursor of one side lights the lines of the other that belong to its line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.widgets import Static

from tkdebug.errors import Frame
from tkdebug.instrument.records import RecordedKernel
from tkdebug.linemap.line_counts import resources_short
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.drawing.lines import Code
from tkdebug.tui.kernel.text import KernelText
from tkdebug.tui.session.snapshot import FaultGroup
from tkdebug.tui.widgets.code_view import CodeView
from tkdebug.tui.widgets.dialogs import kernel_title

_MOST_FRAMES = 20


class KernelSides(Container):
    """Source and stage.

    Args:
        show_chain: shows the origin of the line at the cursor, or the lines that it became.
    """

    def __init__(self, show_chain: Callable[[Text], None]) -> None:
        super().__init__(id="kernel-split")
        self._show_chain = show_chain
        self._text: KernelText | None = None
        self._faults: tuple[FaultGroup, ...] = ()

    def compose(self) -> ComposeResult:
        """Lay out each side under its title."""
        for name in ("source", "stage"):
            with Vertical(classes="side"):
                yield Static(id=f"{name}-title", classes="side-title")
                yield CodeView(id=name)

    @property
    def source(self) -> CodeView:
        """The source."""
        return self.query_one("#source", CodeView)

    @property
    def stage(self) -> CodeView:
        """The stage."""
        return self.query_one("#stage", CodeView)

    @property
    def focused(self) -> CodeView:
        """The side in focus; the source if none is."""
        return self.stage if self.stage.has_focus else self.source

    def clear(self) -> None:
        """Show nothing."""
        self._text = None
        for side in (self.source, self.stage):
            side.show_code(Code(), {})

    def show(
        self, text: KernelText, marks: Mapping[int, str], faults: tuple[FaultGroup, ...]
    ) -> None:
        """Show another text; a source that is there already keeps its cursor.

        Args:
            text: the text of both.
            marks: marks in the gutter of the source.
            faults: the faults of the run.
        """
        self._text = text
        source, stage = self.source, self.stage
        if source.code is not text.source:
            source.show_code(text.source, marks)
        stage.show_code(text.stage_code, text.stage_marks(faults))
        source.empty_text = "the source of this file was not recorded"
        stage.empty_text = (
            "no Tile IR: this kernel did not compile, see 2 Faults"
            if text.kernel is None
            else "nothing of the compiler was recorded for this kernel"
        )
        self._faults = faults

    def show_marks(self, marks: Mapping[int, str], faults: tuple[FaultGroup, ...]) -> None:
        """Show other marks in the gutters, the stage's by its faults."""
        self._faults = faults
        if self._text is not None:
            self.source.show_marks(marks)
            self.stage.show_marks(self._text.stage_marks(faults))

    @on(CodeView.Moved)
    def _light_other_side(self, event: CodeView.Moved) -> None:
        """Light on the other side what belongs to the line at the cursor."""
        event.stop()
        view = event.line_list
        if not isinstance(view, CodeView):
            return
        if view.id == "source":
            self.light_stage(view.line)
        else:
            self._light_source(view.line)

    def light_stage(self, line: int) -> None:
        """Light the stage's lines of a source line, and show their costs."""
        if self._text is None:
            return
        lines = self._text.stage_lines(line)
        self.source.light((line,) if lines else (), scroll=False)
        self.stage.light(lines, scroll=True)
        chain = Text(no_wrap=True, overflow="ellipsis")
        if self._text.stage is not None:
            ops = "1 line" if len(lines) == 1 else f"{len(lines)} lines"
            chain.append(f"line {line}: {ops} of {display.shown(self._text.stage, 60)}")
            cost = self._text.costs.get(line)
            if cost is not None:
                chain.append(f"   {cost}", style=palette.GOOD)
        chain.append_text(fault_note(self._text.file, line, self._faults))
        self._show_chain(chain)

    def _light_source(self, stage_line: int) -> None:
        if self._text is None:
            return
        lines = self._text.source_lines(stage_line)
        source = self.source
        source.light(lines, scroll=False)
        self.stage.light((stage_line,) if lines else (), scroll=False)
        if lines:
            source.go_to(lines[0])
        frames = self._text.frames(stage_line)
        chain = chain_text(frames, self._text.file)
        self._show_chain(chain)

    def next_lit(self, step: int) -> None:
        """Scroll the other side to its next highlighted line, from the last one to the first."""
        other = self.source if self.focused is self.stage else self.stage
        lines = sorted(other.lit)
        if lines:
            beyond = [line for line in lines if (line - other.line) * step > 0]
            ordered = beyond or lines
            other.go_to(ordered[0] if step > 0 else ordered[-1])


def title_text(kernels: Sequence[RecordedKernel], shown: KernelText) -> Text:
    """Return the kernel's title: its name, its needs of the GPU, the time of its compile."""
    kernel, table = shown.kernel, shown.table
    if kernel is None:
        return _row().append("not compiled", style=palette.FAULT)
    title = kernel_title(kernels, kernel)
    if table is not None and table.resources is not None:
        title.append(f"  {resources_short(table.resources)}", style=palette.GOOD)
    for note in table.notes if table is not None else ():
        title.append(f"  {note.code}: {display.shown(note.message, 100)}", palette.WARNING)
    title.append(f"  {display.shown(kernel.signature, 300)}", style=palette.MUTED)
    if kernel.error is not None:
        error = display.shown(kernel.error, 300)
        title.append(f"  did not compile: {error}", style=palette.FAULT)
    else:
        cached = "from the cache" if kernel.cache_hit else "compiled"
        time = display.duration(kernel.compile_ns)
        title.append(f"  {cached} in {time}", style=palette.MUTED)
    return title


def source_title(shown: KernelText) -> Text:
    """Return the name of the file, and the number of files."""
    title = _row().append(display.file_name(shown.file))
    if len(shown.files) > 1:
        title.append(f"  f: {len(shown.files)} files", style=palette.MUTED)
    return title


def stage_title(kernels: Sequence[RecordedKernel], shown: KernelText) -> Text:
    """Return the name of the stage, its place among all, and the way to others."""
    title, kernel = _row(), shown.kernel
    if kernel is None or shown.stage is None:
        return title.append("no stage", style=palette.MUTED)
    at = shown.stages.index(shown.stage)
    title.append(f"{at + 1}/{len(shown.stages)} ", style=palette.MUTED)
    title.append(display.shown(shown.stage, 60))
    title.append(stages_elsewhere(kernels, kernel), style=palette.GOOD)
    if len(shown.stages) > 1:
        title.append("   s: next, S: previous, t: pick", style=palette.MUTED)
    if shown.note:
        title.append(f"   {display.shown(shown.note, 200)}", style=palette.WARNING)
    return title


def stages_elsewhere(kernels: Sequence[RecordedKernel], kernel: RecordedKernel) -> str:
    """Say where more stages are: the kernel may have been compiled for a GPU besides."""
    if kernel.options.get("arch") or any(s.startswith("gpu-ir") for s in kernel.stages):
        return ""
    others = (k.options.get("arch") for k in kernels if k.name == kernel.name)
    arch = next(filter(None, others), None)
    if arch is not None:
        return f"   n: PTX, SASS for {display.shown(str(arch), 20)}"
    return "" if kernel.error else "   for PTX, SASS: tkdebug run --target sm_90a"


def fault_note(file: str, line: int, faults: Sequence[FaultGroup]) -> Text:
    """The first fault of a source line."""
    note = Text()
    for group in faults:
        fault = group.first.event
        if (fault.file, fault.line) == (file, line):
            mark, style = palette.mark_of(fault)
            note.append(f"   {mark} {display.shown(fault.message, 200)}", style=style)
            break
    return note


def chain_text(frames: Sequence[Frame], file: str) -> Text:
    """Return the source lines that a line of a stage is from, innermost first.

    Args:
        frames: outermost first.
        file: the source file that is shown.
    """
    chain = _row()
    if not frames:
        chain.append("this line comes from no source line", style=palette.MUTED)
    for depth, frame in enumerate(list(reversed(frames))[:_MOST_FRAMES]):
        chain.append(" ← " if depth else "from ", style=palette.MUTED)
        chain.append(f"{display.place(frame)} {display.shown(frame.function, 60)}")
    if frames and frames[-1].file != file:
        chain.append("   Enter: open that file", style=palette.GOOD)
    return chain


def _row() -> Text:
    return Text(no_wrap=True, overflow="ellipsis")
