"""The rows around source and stage in the kernel pane: what is shown, and where a line is from."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from tkdebug.errors import Frame
from tkdebug.instrument.records import RecordedKernel
from tkdebug.linemap.line_columns import resources_short
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.kernel.text import KernelText
from tkdebug.tui.session.snapshot import FaultGroup
from tkdebug.tui.widgets.dialogs import kernel_title

_MOST_FRAMES = 20


def title_text(kernels: Sequence[RecordedKernel], shown: KernelText) -> Text:
    """Which of the kernels it is, what it takes of the GPU, how long it was compiled."""
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
    """Which file it is, of how many."""
    title = _row().append(display.file_name(shown.file))
    if len(shown.files) > 1:
        title.append(f"  f: {len(shown.files)} files", style=palette.MUTED)
    return title


def stage_title(kernels: Sequence[RecordedKernel], shown: KernelText) -> Text:
    """Which stage it is, of how many, and where there are more."""
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
    """Where more stages are: the same kernel may have been compiled for a GPU besides."""
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
    """Where a line of a stage is from, innermost first.

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
