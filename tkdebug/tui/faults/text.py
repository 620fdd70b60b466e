"""A fault as text: message, fix, source excerpt with a caret, who and where, the call chain."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from tkdebug.errors import Frame
from tkdebug.instrument.records import Launch, RecordedKernel
from tkdebug.instrument.session import Session
from tkdebug.records.events import Fault
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.drawing.lines import Code
from tkdebug.tui.launches.details import append_arguments
from tkdebug.tui.session.snapshot import FaultGroup
from tkdebug.tui.session.sources import read_source

CONTEXT_LINES = 3
MAX_EXCERPT_CHARS = 1000
MIN_EXCERPT_CHARS = 20
MAX_FRAMES = 64
# Why a fault does not count.
STATES = {"ignored": "a comment ignores it", "known": "it is in the baseline"}


def fault_text(
    group: FaultGroup,
    session: Session,
    kernels: Sequence[RecordedKernel],
    width: int,
    launch: Launch | None = None,
) -> Text:
    """Everything known of a fault, the most useful first.

    Args:
        group: the fault.
        session: where its source is.
        kernels: their own text is shown where a file was not recorded.
        width: cells there are for a line of source; longer ones are cut, lest the caret is lost.
        launch: the first that had it, where that is known.

    Raises:
        SessionError: the session cannot be read.
    """
    fault = group.first.event
    mark, style = palette.mark_of(fault)
    sources = _Sources(session, kernels, width)
    text = Text(overflow="fold")
    text.append(f"{mark} {display.shown(fault.kind, 30)}", style=style)
    text.append("  in ")
    text.append(f"{display.shown(fault.kernel, 200)}\n", style=palette.STRONG)
    for line in fault.message.splitlines()[:40]:
        text.append(f"{display.shown(line)}\n")
    if fault.hint:
        text.append("fix  ", style=palette.GOOD)
        text.append(f"{display.shown(fault.hint, 2000)}\n")
    if fault.frames:
        text.append("\n")
        _append_excerpt(text, fault.frames[-1], fault.column, sources)
    text.append("\n")
    for label, value in _facts(group, fault):
        text.append(f"{label:<9}", style=palette.LABEL)
        text.append(f"{value}\n")
    if len(fault.frames) > 1:
        text.append("\ncalled from\n", style=palette.STRONG)
        for frame in list(reversed(fault.frames[:-1]))[:MAX_FRAMES]:
            _append_excerpt(text, frame, 0, sources, context=0)
    if launch is not None:
        text.append(f"\nlaunch {launch.id}", style=palette.STRONG)
        text.append(f"  grid {display.grid(launch.grid)}\n", style=palette.LABEL)
        append_arguments(text, launch)
    return text


def _facts(group: FaultGroup, fault: Fault) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    if not fault.is_open:
        facts.append(("counts", f"no: {STATES.get(fault.state, fault.state)}"))
    if fault.program_id is not None:
        facts.append(("program", f"({', '.join(map(str, fault.program_id))})"))
    if fault.lane:
        facts.append(("element", f"[{', '.join(map(str, fault.lane[:16]))}]"))
    if fault.tensor is not None:
        facts.append(("tensor", display.shown(fault.tensor, 100)))
    if fault.index is not None:
        facts.append(("index", _index_and_range(fault.index, fault.legal)))
    launches = "1 launch" if group.launches == 1 else f"{display.count(group.launches)} launches"
    times = "once" if group.count == 1 else f"{display.count(group.count)} times"
    if fault.launch_id:  # what does not compile is never launched
        facts.append(("count", f"{times} in {launches}, first in launch {fault.launch_id}"))
    if group.first.rank:
        facts.append(("rank", str(group.first.rank)))
    return facts


def _index_and_range(index: int, legal: tuple[int, int] | None) -> str:
    if legal is None:
        return display.count(index)
    begin, end = legal
    text = f"{display.count(index)}, legal {display.count(begin)} to {display.count(end - 1)}"
    if begin >= end:
        return f"{display.count(index)}, the tensor is empty"
    if index >= end:
        past = index - end + 1
        return f"{text}: {display.count(past)} past the end"
    if index < begin:
        return f"{text}: {display.count(begin - index)} before the beginning"
    return f"{text}: between its elements"


class _Sources:
    """Reads each file of a call chain once."""

    def __init__(self, session: Session, kernels: Sequence[RecordedKernel], width: int) -> None:
        self.width = width
        self._session = session
        self._kernels = kernels
        self._codes: dict[str, Code] = {}

    def code(self, frame: Frame) -> Code:
        """The text of the frame's file, or of the kernel there that holds its line."""
        if frame.file not in self._codes:
            of_file = [k for k in self._kernels if k.file == frame.file and k.line <= frame.line]
            kernel = max(of_file, key=lambda k: k.line, default=None)
            self._codes[frame.file] = read_source(self._session, kernel, frame.file)
        return self._codes[frame.file]


def _append_excerpt(
    text: Text, frame: Frame, column: int, sources: _Sources, context: int = CONTEXT_LINES
) -> None:
    """The line of `frame` with its neighbours, an arrow, and a caret at `column` if given."""
    text.append(display.shown(f"{frame.file}:{frame.line}", 200), style="underline")
    text.append(f"  in {display.shown(frame.function, 100)}\n", style=palette.MUTED)
    source = sources.code(frame)
    if source.index(frame.line) is None:
        text.append("  (its source was not recorded)\n", style=palette.MUTED)
        return
    last = source.first_line + len(source.lines) - 1
    begin, end = max(source.first_line, frame.line - context), min(last, frame.line + context)
    digits = len(str(end))
    room = max(MIN_EXCERPT_CHARS, sources.width - digits - 3)
    for number in range(begin, end + 1):
        raw = source.lines[number - source.first_line]
        faulting = number == frame.line
        arrow = ("> ", palette.FAULT) if faulting else ("  ", "")
        text.append(*arrow)
        text.append(f"{number:>{digits}} ", style=palette.MUTED)
        code = display.shown_code(raw, MAX_EXCERPT_CHARS)
        text.append(f"{_fitted(code, room)}\n", style="bold" if faulting else "")
        before = cell_len(display.shown_code(raw[: max(0, column - 1)], MAX_EXCERPT_CHARS))
        if faulting and 0 < column <= len(raw) + 1 and before < room:
            indent = before + digits + 3
            text.append(f"{' ' * indent}^\n", style=palette.FAULT)


def _fitted(code: str, room: int) -> str:
    return code if cell_len(code) <= room else set_cell_size(code, room - 1) + "…"
