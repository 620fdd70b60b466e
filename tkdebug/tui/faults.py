"""The faults pane: a table of faults, and one in full: message, fix, source with a caret, calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Input, Static

from tkdebug.errors import Frame, SessionError
from tkdebug.instrument.records import Launch, RecordedKernel
from tkdebug.instrument.session import Session
from tkdebug.records.events import Cause, Fault
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.drawing.lines import Code
from tkdebug.tui.launches.details import append_arguments
from tkdebug.tui.messages import OpenFault, OpenKernel
from tkdebug.tui.pane import FilteredPane
from tkdebug.tui.session.snapshot import FaultGroup, ScriptState, Snapshot, read_source
from tkdebug.tui.widgets.table import Cell, Column, Table
from tkdebug.tui.widgets.typing_keys import take_keys, typing_key

CONTEXT_LINES = 3
MAX_EXCERPT_CHARS = 1000
MIN_EXCERPT_CHARS = 20
MAX_FRAMES = 64
MAX_EDITS = 5
# Why a fault does not count.
STATES = {"ignored": "a comment ignores it", "known": "it is in the baseline"}
PLACE_WIDTH = 20
_COLUMNS = (
    Column("kind", 15),
    Column("kernel", 0, keep_end=True),
    Column("line", PLACE_WIDTH),
    Column("tensor", 10, from_width=66),
    Column("count", 7, right=True),
)


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
        session: the session that has its source.
        kernels: kernels whose own text is shown if a file was not recorded.
        width: the cells for a line of source; longer ones are cut, lest the caret is lost.
        launch: the first launch that had it, if that is known.

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
    if fault.cause is not None:
        _append_cause(text, fault.cause, width)
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


def _append_cause(text: Text, cause: Cause, width: int) -> None:
    """Append the edits that fix a wrong launch, the facts without one, and a picture."""
    for number, edit in enumerate(cause.edits[:MAX_EDITS]):
        head = "with this edit the launch agrees" if number == 0 else "or with this one"
        where = " in fp64; what is left is rounding" if edit.is_in_fp64 else ""
        text.append(f"{head}{where}\n", style=palette.STRONG)
        for sign, lines, style in (
            ("-", edit.before, palette.REMOVED),
            ("+", edit.after, palette.ADDED),
        ):
            for offset, line in enumerate(lines[:MAX_FRAMES]):
                shown = f"{edit.line + offset} {sign} {line}"
                text.append(f"  {display.shown(shown, max(width, 20))}\n", style=style)
    for fact in cause.facts:
        text.append(f"{display.shown(fact, 500)}\n", style=palette.STRONG)
    for line in cause.picture:
        text.append(f"  {display.shown(line, 60)}\n", style=palette.MUTED)


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
    """Append the line of `frame`, its neighbours, an arrow, and a caret at `column` if given."""
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


class FaultsPane(FilteredPane):
    """One row per fault, whatever the number of launches that had it.

    Faults that are ignored or in the baseline come last, dimmed.
    """

    TAB = "faults"
    LISTS_LAUNCHES = True
    KEYS = (
        ("Enter", "show the line in the kernel"),
        ("/", "filter by kind, kernel, line or tensor; Esc shows all again"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        typing_key("slash", "filter", "Filter"),
        Binding("escape", "clear_filter", "Clear filter", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="faults-pane")
        self._listed: tuple[FaultGroup, ...] = ()
        self._groups: tuple[FaultGroup, ...] = ()
        self._empty_text = ""
        self._state = ScriptState("starting")
        self._snapshot: Snapshot | None = None
        self._session: Session | None = None
        self._shown: FaultGroup | None = None
        self._launch: Launch | None = None
        self._text = Text("")
        self._width = 0

    @property
    def _all(self) -> tuple[FaultGroup, ...]:
        return self._snapshot.faults if self._snapshot is not None else ()

    @property
    def _kernels(self) -> tuple[RecordedKernel, ...]:
        return self._snapshot.kernels if self._snapshot is not None else ()

    def compose(self) -> ComposeResult:
        """Filter, list and details."""
        yield Input(
            placeholder="kind, kernel, file:line or tensor contains…   Enter: keep   Esc: clear",
            id="fault-filter",
        )
        with Horizontal(id="fault-split"):
            yield Table(_COLUMNS, id="fault-table")
            with VerticalScroll(id="fault-detail", can_focus=True):
                yield Static(id="fault-text")
        yield Static(id="fault-note")

    def on_mount(self) -> None:
        """Hide the filter."""
        self.query_one("#fault-filter").display = False

    def focus_main(self) -> None:
        """Focus the list."""
        take_keys(self.query_one("#fault-table"))

    def show(self, snapshot: Snapshot | None, state: ScriptState, session: Session | None) -> None:
        """Take a new snapshot."""
        self._snapshot, self._state, self._session = snapshot, state, session
        if not self.is_ready:
            return
        if state.going_on:
            self._empty_text = "no fault so far"
        elif snapshot is not None and snapshot.launch_count == 0:
            self._empty_text = (
                "no kernel was launched, so none could fault; press 4 for the script's output"
            )
        elif snapshot is not None and snapshot.run.mode == "native":
            self._empty_text = (
                "no fault; accesses of native launches are checked with `tkdebug run "
                "--check-launches`, those of interpreted ones always"
            )
        else:
            self._empty_text = (
                "no fault: every checked access was within its tensor; `tkdebug run --check all` "
                "looks for more" + self.filling_text()
            )
        self.query_one("#fault-detail").display = bool(snapshot and snapshot.faults)
        if self._all is not self._listed:
            self._listed = self._all
            self._show_rows()
        self._show_notes()

    def filling(self) -> tuple[str, ...]:
        """Return the option that looks for every kind of fault, unless nothing was interpreted."""
        snapshot = self._snapshot
        is_due = snapshot is not None and snapshot.launch_count and snapshot.run.mode != "native"
        return ("--check", "all") if is_due and not self._state.going_on else ()

    def open(self, request: OpenFault) -> None:
        """Select a fault, if need be without the filter."""
        if all(group.key != request.key for group in self._groups):
            self.action_clear_filter()
        self.query_one("#fault-table", Table).select_key(request.key)
        self._show_selected()

    def has_nothing(self) -> bool:
        """Whether there are no faults."""
        return not self._all

    def source_place(self) -> tuple[str, int] | None:
        """The file and line of the fault at the cursor, or None."""
        fault = None if self._shown is None else self._shown.first.event
        if fault is None or not fault.file or fault.line is None:
            return None
        return fault.file, fault.line

    def copied_text(self) -> str:
        """Everything known of the fault."""
        return self._text.plain

    def tab_mark(self) -> Text:
        """Return the number of faults that count, and the number of warnings."""
        mark, snapshot = Text(""), self._snapshot
        if snapshot is not None and snapshot.failing:
            count = display.count(snapshot.failing)
            mark.append(f" ✖{count}{snapshot.more}", style=palette.FAULT)
        if snapshot is not None and snapshot.warnings:
            count = display.count(snapshot.warnings)
            mark.append(f" ▲{count}{snapshot.more}", style=palette.WARNING)
        return mark

    def _show_rows(self) -> None:
        """List the faults that the filter lets through."""
        wanted = self.filter_text.casefold()
        found = [group for group in self._all if wanted in _searched(group)]
        # Faults that do not count come last.
        found.sort(key=lambda group: not group.first.event.is_open)
        groups = self._groups = tuple(found)
        self.query_one("#fault-table", Table).show_rows(
            [group.key for group in groups], lambda i: _cells(groups[i])
        )
        self._show_selected()

    def _show_notes(self) -> None:
        """Say what is not listed, and why nothing is."""
        snapshot = self._snapshot
        parts = []
        if self.filter_text:
            parts.append(
                f"{display.count(len(self._groups))} of {display.count(len(self._all))} with "
                f"…{display.shown(self.filter_text, 60)}…; Esc: all"
            )
        if snapshot is not None and snapshot.fault_limit_reached:
            parts.append(
                f"only the first {display.count(len(self._all))} are listed; "
                "`tkdebug report` has all"
            )
        note = self.query_one("#fault-note", Static)
        note.display = bool(parts)
        note.update(Text("; ".join(parts), style=palette.MUTED))
        table = self.query_one("#fault-table", Table)
        text = "no such fault; Esc shows all" if self.filter_text else self._empty_text
        table.empty_text = text

    def show_filtered(self) -> None:
        """Show the rows that pass the filter, and the line about them."""
        self._show_rows()
        self._show_notes()

    @on(Table.Moved)
    def _show_fault_at_cursor(self, event: Table.Moved) -> None:
        """Show the fault that is selected now."""
        event.stop()
        self._show_selected()

    def on_resize(self) -> None:
        """Cut the excerpt's lines to the new width."""
        self.call_after_refresh(self._show_anew)

    def _show_anew(self) -> None:
        if self.query_one("#fault-detail").scrollable_content_region.width != self._width:
            self._shown = None
            self._show_selected()

    def _show_selected(self) -> None:
        index = self.query_one("#fault-table", Table).cursor
        group = self._groups[index] if index < len(self._groups) else None
        if group == self._shown:
            return
        other = group is None or self._shown is None or group.key != self._shown.key
        self._shown = group
        detail = self.query_one("#fault-text", Static)
        self._text, self._launch = Text(""), None
        if group is not None and self._session is not None:
            width = self._width = self.query_one("#fault-detail").scrollable_content_region.width
            try:
                first = group.first
                self._launch = self._session.launch_of(first.process, first.event.launch_id)
                self._text = fault_text(group, self._session, self._kernels, width, self._launch)
            except SessionError as error:
                self._text = Text(display.shown(str(error)))
        detail.update(self._text)
        if other:
            self.query_one("#fault-detail").scroll_home(animate=False)

    @on(Table.Chosen)
    def _open_line(self, event: Table.Chosen) -> None:
        """Go to the line in the kernel."""
        event.stop()
        if self._shown is None:
            return
        fault = self._shown.first.event
        kernel_hash = self._launch.kernel_hash if self._launch is not None else None
        self.post_message(OpenKernel(kernel_hash, fault.kernel, fault.file, fault.line))


def _searched(group: FaultGroup) -> str:
    """Return the text that the filter searches."""
    fault = group.first.event
    words = [fault.kind, fault.kernel, fault.tensor or "", "" if fault.is_open else fault.state]
    words += [f"{display.file_name(frame.file)}:{frame.line}" for frame in fault.frames]
    return " ".join(words).casefold()


def _cells(group: FaultGroup) -> tuple[Cell, ...]:
    fault = group.first.event
    mark, style = palette.mark_of(fault)
    rest = "" if fault.is_open else style
    return (
        Cell(f"{mark} {display.shown(fault.kind, 30)}", style),
        Cell(display.shown(fault.kernel, 200), rest),
        Cell(display.place(fault.frames[-1], PLACE_WIDTH) if fault.frames else "-", rest),
        Cell(display.shown(fault.tensor, 60) if fault.tensor is not None else "-", rest),
        Cell(display.count(group.count), rest),
    )
