"""The advice pane: what would make the kernels faster, what saves most of their time first."""

from __future__ import annotations

import time

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from tkdebug.errors import Frame, SessionError
from tkdebug.instrument.advice import AT_THE_ROOF, Advice, advice_of, launch_costs
from tkdebug.instrument.session import Session
from tkdebug.tui import display, palette
from tkdebug.tui.messages import AdviceLoaded, OpenKernel, SessionFailed, TabMarked
from tkdebug.tui.pane import Pane
from tkdebug.tui.snapshot import ScriptState, Snapshot
from tkdebug.tui.table import Cell, Column, Table

_COLUMNS = (
    Column("#", 3, right=True),
    Column("saves", 6, right=True),
    Column("kernel", 7, right=True, from_width=70),
    Column("what", 22, keep_end=True),
    Column("line", 22),
    Column("in", 0, keep_end=True),
)
_RELOAD_S = 2.0


class AdvicePane(Pane):
    """Remarks by rank; they are read anew as launches are added, in a thread."""

    DEFAULT_CSS = """
    #advice-table { height: auto; max-height: 50%; min-height: 4; }
    #advice-detail { height: 1fr; background: $panel; padding: 0 1; scrollbar-size: 1 1; }
    #advice-detail:focus { background: $panel-lighten-1; }
    """
    TAB = "advice"
    KEYS = (
        ("saves", "share of the time of all kernels of the run"),
        ("kernel", "how many times as fast its kernel would be"),
        ("Enter", "show the line in the kernel"),
    )

    def __init__(self) -> None:
        super().__init__(id="advice-pane")
        self._advice: tuple[Advice, ...] = ()
        self._session: Session | None = None
        self._seen: tuple[int, bool] | None = None
        self._loaded_s = 0.0
        self._snapshot: Snapshot | None = None
        self._state = ScriptState("starting")
        self._was_sought = False
        self._text = Text("")

    def compose(self) -> ComposeResult:
        """The remarks, and the one at the cursor in full."""
        with Vertical():
            yield Table(_COLUMNS, id="advice-table")
            with VerticalScroll(id="advice-detail", can_focus=True):
                yield Static(id="advice-text")

    def on_mount(self) -> None:
        """Begin empty."""
        self._show_rows()

    def focus_main(self) -> None:
        """Focus the list."""
        self.query_one("#advice-table", Table).focus()

    def copied_text(self) -> str:
        """The remark at the cursor."""
        return self._text.plain

    def tab_mark(self) -> Text:
        """How many remarks there are, without those that say that all is well."""
        number = sum(one.kind != AT_THE_ROOF for one in self._advice)
        return Text(f" {display.count(number)}", style=palette.GOOD) if number else Text("")

    def show(self, snapshot: Snapshot | None, state: ScriptState, session: Session | None) -> None:
        """Read the remarks anew where there may be others."""
        self._snapshot, self._state, self._session = snapshot, state, session
        if snapshot is None or session is None:
            self._show_rows()
            return
        seen = (snapshot.launch_count, state.going_on)
        is_due = not state.going_on or time.monotonic() - self._loaded_s >= _RELOAD_S
        if seen == self._seen or not is_due:
            self._show_rows()
            return
        self._seen, self._loaded_s = seen, time.monotonic()

        def load() -> None:
            try:
                found = AdviceLoaded(advice_of(session), bool(launch_costs(session)))
            except SessionError as error:
                self.app.post_message(SessionFailed(str(error)))
                return
            self.post_message(found)

        self.run_worker(load, thread=True, exclusive=True, group="advice")

    def on_advice_loaded(self, event: AdviceLoaded) -> None:
        """Show them."""
        event.stop()
        self._advice, self._was_sought = event.advice, event.was_sought
        self._show_rows()
        self.post_message(TabMarked())

    def _show_rows(self) -> None:
        table, advice = self.query_one("#advice-table", Table), self._advice
        table.empty_text = self._why_none()
        table.show_rows(
            [(one.kernel, one.file, one.line, one.kind) for one in advice],
            lambda i: _cells(advice[i]),
        )
        self.query_one("#advice-detail").display = bool(advice)
        self._show_selected()

    def _why_none(self) -> str:
        if self._snapshot is None or not self._snapshot.launch_count:
            return (
                "no remarks: no kernel was launched yet"
                if self._state.going_on
                else "no remarks: no kernel was launched"
            )
        if self._was_sought or self._advice:
            return "no remarks: nothing found that would help"
        if self._snapshot.run.mode == "native":
            return (
                "no remarks: kernels ran on the GPU, advice is made of interpreted ones; "
                "tkdebug advise script.py interprets them"
            )
        return (
            "no remarks: launches were not looked at for advice; tkdebug run --advise script.py "
            "does that"
        )

    def on_line_list_moved(self, event: Table.Moved) -> None:
        """Show the remark that is selected now."""
        event.stop()
        self._show_selected()

    def _show_selected(self) -> None:
        index = self.query_one("#advice-table", Table).cursor
        text = Text("")
        if index < len(self._advice):
            text = _remark_text(self._advice[index], self._session)
        if text != self._text:
            self._text = text
            self.query_one("#advice-text", Static).update(text)

    def on_line_list_chosen(self, event: Table.Chosen) -> None:
        """Go to the line in the kernel."""
        event.stop()
        one = self._advice[event.index]
        self.post_message(OpenKernel(None, one.kernel, one.file, one.line))


def _cells(one: Advice) -> tuple[Cell, ...]:
    is_well = one.kind == AT_THE_ROOF
    style = palette.MUTED if is_well else ""
    return (
        Cell(str(one.rank), style),
        Cell("-" if is_well else f"{100 * one.predicted_gain:.0f} %", style or palette.STRONG),
        Cell("-" if is_well else f"{one.speedup:.3g}x", style),
        Cell(display.shown(one.kind, 60), style or palette.WARNING),
        Cell(display.place(Frame(one.file, one.line, one.kernel), 22), style),
        Cell(display.shown(one.kernel, 200), style),
    )


def _remark_text(one: Advice, session: Session | None) -> Text:
    """Where, the line itself, what is said of it."""
    text = Text()
    text.append(f"{display.shown(one.file, 300)}:{one.line}", style=palette.LABEL)
    text.append(f"  {display.shown(one.kernel, 100)}", style=palette.STRONG)
    text.append(f"  {display.shown(one.kind, 60)}\n", style=palette.WARNING)
    try:
        line = None if session is None else session.source_line(one.file, one.line)
    except SessionError as error:
        line = str(error)
    if line is not None:
        text.append(f"{display.shown_code(line.strip(), 300)}\n", style=palette.GOOD)
    text.append("\n" + display.shown(one.message, 2000))
    return text
