"""The faults pane: what went wrong, where, by which program, and what would mend it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Container, Horizontal, VerticalScroll
from textual.widgets import Static

from tkdebug.errors import Frame, SessionError
from tkdebug.events import Fault
from tkdebug.instrument.records import RecordedKernel
from tkdebug.tui import display, palette
from tkdebug.tui.follow import RecordedRun
from tkdebug.tui.kernel_text import Code, read_source
from tkdebug.tui.messages import OpenKernel
from tkdebug.tui.snapshot import FaultGroup, ScriptState, Snapshot
from tkdebug.tui.table import Cell, Column, Table

CONTEXT_LINES = 3
MAX_EXCERPT_CHARS = 300
MAX_FRAMES = 64
_COLUMNS = (
    Column("kind", 17),
    Column("kernel", 0),
    Column("line", 16),
    Column("tensor", 8),
    Column("count", 8, right=True),
)


class FaultsPane(Container):
    """One row per fault, whatever the number of launches that had it."""

    def __init__(self) -> None:
        super().__init__(id="faults-pane")
        self._groups: tuple[FaultGroup, ...] = ()
        self._snapshot: Snapshot | None = None
        self._session: RecordedRun | None = None
        self._shown: FaultGroup | None = None

    @property
    def _kernels(self) -> tuple[RecordedKernel, ...]:
        return self._snapshot.kernels if self._snapshot is not None else ()

    def compose(self) -> ComposeResult:
        """List and details."""
        with Horizontal(id="fault-split"):
            yield Table(_COLUMNS, id="fault-table")
            with VerticalScroll(id="fault-detail", can_focus=True):
                yield Static(id="fault-text")
        yield Static(id="fault-note")

    def on_mount(self) -> None:
        """Begin empty."""
        self.show(None, ScriptState("starting"), None)

    def focus_main(self) -> None:
        """Focus the list."""
        self.query_one("#fault-table", Table).focus()

    def show(
        self, snapshot: Snapshot | None, state: ScriptState, session: RecordedRun | None
    ) -> None:
        """Take a new snapshot."""
        self._snapshot, self._session = snapshot, session
        table = self.query_one("#fault-table", Table)
        note = self.query_one("#fault-note", Static)
        note.display = snapshot is not None and snapshot.fault_limit_reached
        note.update(Text("only the first of the different faults are listed"))
        if state.going_on:
            empty = "no fault so far"
        elif snapshot is not None and snapshot.launch_count == 0:
            empty = "no kernel was launched, so none could fault; press 4 for the script's output"
        else:
            empty = "no fault: every checked access was within its tensor"
        if empty != table.empty_text:
            table.empty_text = empty
            table.refresh()
        self.query_one("#fault-detail").display = bool(snapshot and snapshot.faults)
        if snapshot is None or snapshot.faults is self._groups:
            return
        groups = self._groups = snapshot.faults
        table.show_rows([group.key for group in groups], lambda i: _cells(groups[i]))
        self._show_selected()

    def on_line_list_moved(self, event: Table.Moved) -> None:
        """Show the fault that is selected now."""
        event.stop()
        self._show_selected()

    def _show_selected(self) -> None:
        index = self.query_one("#fault-table", Table).cursor
        group = self._groups[index] if index < len(self._groups) else None
        if group == self._shown:
            return
        other = group is None or self._shown is None or group.key != self._shown.key
        self._shown = group
        detail = self.query_one("#fault-text", Static)
        if group is None or self._session is None:
            detail.update(Text(""))
            return
        try:
            detail.update(fault_text(group, self._session, self._kernels))
        except SessionError as error:
            detail.update(Text(display.shown(str(error))))
        if other:
            self.query_one("#fault-detail").scroll_home(animate=False)

    def on_line_list_chosen(self, event: Table.Chosen) -> None:
        """Go to the line in the kernel."""
        event.stop()
        if self._shown is None or self._snapshot is None:
            return
        fault = self._shown.first.fault
        process = self._shown.first.process
        kernel_hash = next(
            (
                row.kernel_hash
                for row in self._snapshot.rows
                if row.key == (process, fault.launch_id)
            ),
            None,
        )
        self.post_message(OpenKernel(kernel_hash, fault.kernel, fault.file, fault.line))


def _cells(group: FaultGroup) -> tuple[Cell, ...]:
    fault = group.first.fault
    mark, style = palette.MARKS["fault" if fault.severity == "error" else "warning"]
    return (
        Cell(f"{mark} {display.shown(fault.kind, 30)}", style),
        Cell(display.shown(fault.kernel, 200)),
        Cell(display.place(fault.frames[-1]) if fault.frames else "-"),
        Cell(display.shown(fault.tensor, 60) if fault.tensor is not None else "-"),
        Cell(display.count(group.count)),
    )


def fault_text(group: FaultGroup, session: RecordedRun, kernels: Sequence[RecordedKernel]) -> Text:
    """Everything known of a fault, the most useful first.

    Raises:
        SessionError: the session cannot be read.
    """
    fault = group.first.fault
    mark, style = palette.MARKS["fault" if fault.severity == "error" else "warning"]
    sources = _Sources(session, kernels)
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
    return text


def _facts(group: FaultGroup, fault: Fault) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    if fault.program_id is not None:
        facts.append(("program", f"({', '.join(map(str, fault.program_id))})"))
    if fault.lane:
        facts.append(("lane", f"[{', '.join(map(str, fault.lane[:16]))}]"))
    if fault.tensor is not None:
        facts.append(("tensor", display.shown(fault.tensor, 100)))
    if fault.index is not None:
        facts.append(("index", _index_and_range(fault.index, fault.legal)))
    launches = "1 launch" if group.launches == 1 else f"{display.count(group.launches)} launches"
    times = "once" if group.count == 1 else f"{display.count(group.count)} times"
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

    def __init__(self, session: RecordedRun, kernels: Sequence[RecordedKernel]) -> None:
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
    for number in range(begin, end + 1):
        raw = source.lines[number - source.first_line]
        faulting = number == frame.line
        arrow = ("> ", palette.FAULT) if faulting else ("  ", "")
        text.append(*arrow)
        text.append(f"{number:>{digits}} ", style=palette.MUTED)
        text.append(
            f"{display.shown_code(raw, MAX_EXCERPT_CHARS)}\n", style="bold" if faulting else ""
        )
        if faulting and 0 < column <= min(len(raw) + 1, MAX_EXCERPT_CHARS):
            indent = len(raw[: column - 1].expandtabs(4)) + digits + 3
            text.append(f"{' ' * indent}^\n", style=palette.FAULT)
