"""The launches pane: times by kernel, the launches themselves, and the details of one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Input, Static

from tkdebug.errors import SessionError
from tkdebug.instrument.analyses.kernel_names import activity_name
from tkdebug.instrument.device_records import ActivityTotal
from tkdebug.instrument.records import KernelSummary, Launch
from tkdebug.instrument.renderers.timeline_section import timeline_text
from tkdebug.instrument.session import Session
from tkdebug.records.events import AutotuneChoice
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.launches.details import launch_text
from tkdebug.tui.messages import LaunchLoaded, OpenFault, OpenKernel, SessionFailed
from tkdebug.tui.pane import FilteredPane
from tkdebug.tui.session.snapshot import FaultGroup, ScriptState, Snapshot
from tkdebug.tui.widgets.table import Cell, Column, Table
from tkdebug.tui.widgets.typing_keys import take_keys, typing_key

BAR_CELLS = 12
# Before the name of what others than tkdebug launched, such as torch.
OTHER_MARK = "◇ "
AT_MOST = "events-at-most"
SUMMARY_COLUMNS = (
    Column("kernel", 0, keep_end=True),
    Column("count", 8, right=True),
    Column("total", 8, right=True),
    Column("mean", 8, right=True),
    Column("min", 8, right=True, from_width=92),
    Column("max", 8, right=True),
    Column("share", 6, right=True),
    Column("", BAR_CELLS, from_width=100),
)
LAUNCH_COLUMNS = (
    Column("#", 7, right=True),
    Column("kernel", 0, keep_end=True),
    Column("grid", 12, right=True),
    Column("time", 9, right=True),
    Column("state", 12),
)
# Interpreted launches take the CPU's time, which says nothing of a GPU: no bars as of a profile.
_CPU_SUMMARY_COLUMNS = tuple(
    replace(column, title="CPU time", width=9) if column.title == "total" else column
    for column in SUMMARY_COLUMNS[:-1]
)
_CPU_LAUNCH_COLUMNS = tuple(
    replace(column, title="CPU time", width=9) if column.title == "time" else column
    for column in LAUNCH_COLUMNS
)
_SUMMARY_KEYS: tuple[Callable[[KernelSummary], object] | None, ...] = (
    lambda s: s.kernel,
    lambda s: s.launches,
    lambda s: s.total_ns,
    lambda s: s.mean_ns,
    lambda s: s.min_ns,
    lambda s: s.max_ns,
    lambda s: s.total_ns,
    None,
)
# How many kernels are in sight at once, in panes of at least so many rows.
_SUMMARY_ROWS = ((30, 10), (16, 6), (0, 2))


def sorted_summaries(
    summaries: Iterable[KernelSummary], column: int, descending: bool
) -> list[KernelSummary]:
    """Kernels by one of `SUMMARY_COLUMNS`."""
    key = _SUMMARY_KEYS[column]
    return sorted(summaries, key=key, reverse=descending) if key else list(summaries)  # type: ignore[arg-type]


def other_summary(total: ActivityTotal) -> KernelSummary:
    """Return others' activities as a row of the table of kernels."""
    return KernelSummary(
        kernel=OTHER_MARK + activity_name(total.kind, total.name, total.in_graph),
        launches=total.count,
        finished=total.count,
        errors=0,
        total_ns=total.total_ns,
        min_ns=total.min_ns,
        max_ns=total.max_ns,
    )


def summary_cells(summary: KernelSummary, total_ns: int) -> tuple[Cell, ...]:
    """A kernel, its times, and its share of all kernels' times."""
    share = summary.total_ns / total_ns if total_ns else 0.0
    is_other = summary.kernel.startswith(OTHER_MARK)
    times = (summary.total_ns, summary.mean_ns, summary.min_ns, summary.max_ns)
    return (
        Cell(display.shown(summary.kernel, 200), palette.MUTED if is_other else palette.STRONG),
        Cell(display.count(summary.launches)),
        *(Cell(display.duration(t) if summary.finished else "-") for t in times),
        Cell(f"{share:.1%}"),
        Cell("█" * round(share * BAR_CELLS), palette.GOOD),
    )


class LaunchRows:
    """Launches as rows, at one moment.

    Args:
        snapshot: the snapshot of the run; None for nothing known of it.
        state: the state of the script.
    """

    def __init__(self, snapshot: Snapshot | None, state: ScriptState) -> None:
        self._snapshot, self._state = snapshot, state

    def sorted(self, rows: Sequence[Launch], column: int, descending: bool) -> list[Launch]:
        """Launches by one of `LAUNCH_COLUMNS`."""
        now_ns = time.time_ns()
        keys: tuple[Callable[[Launch], object], ...] = (
            lambda row: 0,  # as they come
            lambda row: row.title,
            lambda row: row.grid[0] * row.grid[1] * row.grid[2],
            lambda row: self._time_ns(row, now_ns),
            lambda row: self._state_cell(row).text,
        )
        if column == 0:
            return list(reversed(rows)) if descending else list(rows)
        return sorted(rows, key=keys[column], reverse=descending)  # type: ignore[arg-type]

    def cells(self, row: Launch) -> tuple[Cell, ...]:
        """Return the cells of a row; a running launch's as they are now."""
        time_ns = self._time_ns(row, time.time_ns())
        at_most = "≤" if row.time_source == AT_MOST else ""
        return (
            Cell(str(row.id), palette.MUTED),
            Cell(display.shown(row.title, 400)),
            Cell(display.grid(row.grid)),
            Cell(
                "-" if time_ns < 0 else at_most + display.duration(time_ns),
                palette.RUNNING if row.running else "",
            ),
            self._state_cell(row),
        )

    def _time_ns(self, row: Launch, now_ns: int) -> int:
        """Return the time it took, or has taken so far; -1 if unknown."""
        if row.duration_ns is not None:
            return row.duration_ns
        if row.running and self._state.going_on:
            return max(0, now_ns - row.start_ns)
        return -1

    def _state_cell(self, row: Launch) -> Cell:
        snapshot = self._snapshot
        if row.error is not None:
            return Cell("✖ error", palette.FAULT)
        if row.running:
            if not self._state.going_on:
                return Cell("… unfinished", palette.WARNING)
            progress = snapshot.progress.get(row.key) if snapshot is not None else None
            if progress is None or progress.programs <= 0:
                return Cell("▶ running", palette.RUNNING)
            return Cell(f"▶ {progress.programs_done / progress.programs:.0%}", palette.RUNNING)
        if snapshot is not None and row.key in snapshot.faulty:
            return Cell("✖ fault", palette.FAULT)
        if row.duration_ns is None:
            return Cell("✓ not timed", palette.MUTED)
        return Cell("✓ ok", palette.GOOD)


class LaunchesPane(FilteredPane):
    """Reads a launch's arguments from the session only when it is selected."""

    TAB = "launches"
    LISTS_LAUNCHES = True
    KEYS = (
        ("Enter", "on a launch: its kernel; on a kernel: only its launches"),
        ("/", "filter both tables by kernel or scope; Esc shows all again"),
        ("x", "what was wrong with it"),
        ("o r", "sort by the next column, reverse; or click a title"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        typing_key("slash", "filter", "Filter"),
        Binding("o", "sort", "Sort"),
        Binding("r", "reverse", "Reverse"),
        Binding("x", "faults", "Fault"),
        Binding("escape", "clear_filter", "Clear filter", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="launches-pane")
        self._snapshot: Snapshot | None = None
        self._state = ScriptState("starting")
        self._session: Session | None = None
        self._summary_sort = (2, True)
        self._launch_sort = (0, False)
        self._launch: Launch | None = None
        self._tunings: tuple[AutotuneChoice, ...] = ()
        self._inside: tuple[str, ...] = ()
        self._rows: list[Launch] = []
        self._shown_filter = ""
        self._chosen_kernel = ""
        self._shown: tuple[object, ...] | None = None
        self._text = Text("")
        self._fitted_height = 0

    def compose(self) -> ComposeResult:
        """Summary, filter, launches and details."""
        yield Table(SUMMARY_COLUMNS, id="summary")
        yield Input(placeholder="kernel or scope contains…   Enter: keep   Esc: clear", id="filter")
        with Horizontal(id="launch-split"):
            with Vertical(id="launch-list"):
                yield Table(LAUNCH_COLUMNS, id="launch-table")
                yield Static(id="launch-note")
            with VerticalScroll(id="launch-detail", can_focus=True):
                yield Static(id="launch-text")

    def on_mount(self) -> None:
        """Update the times of running launches."""
        self.query_one("#filter").display = False
        self.query_one("#launch-note").display = False
        self.query_one("#summary", Table).display = False
        self._show_empty()
        self.set_interval(0.25, self._tick)

    def show(self, snapshot: Snapshot | None, state: ScriptState, session: Session | None) -> None:
        """Take a new snapshot."""
        if not self.is_ready:
            return
        self._session = session
        before, self._snapshot, self._state = self._snapshot, snapshot, state
        if snapshot is None:
            self._show_empty()
            return
        shown = None if before is None else (before.summaries, before.others)
        if shown is None or shown != (snapshot.summaries, snapshot.others):
            self._show_summaries(snapshot)
        key = (snapshot.rows, snapshot.faulty, state)
        if self._shown is None or any(a is not b for a, b in zip(key, self._shown, strict=True)):
            self._shown = key
            self._show_rows()
            self._show_details()
        self._show_empty()

    def focus_main(self) -> None:
        """Focus the launches."""
        take_keys(self.query_one("#launch-table"))

    def _show_empty(self) -> None:
        table = self.query_one("#launch-table", Table)
        if self.filter_text:
            name = display.shown(self.filter_text, 60)
            text = f"no launch with …{name}… in its kernel or scopes; Esc: show all"
        elif self._snapshot is not None and self._snapshot.launch_count:
            text = f"reading {display.count(self._snapshot.launch_count)} launches…"
        elif self._state.going_on:
            text = "no kernel launched yet; press 4 to see what the script prints"
        elif self._snapshot is not None and self._snapshot.faults:
            text = "no kernel was launched; press 2 to see what was wrong"
        else:
            text = "no kernel was launched; press 4 to see what the script printed"
        table.empty_text = text

    def on_resize(self) -> None:
        """Fit the kernels into the new height."""
        if self._snapshot is not None and self.size.height != self._fitted_height:
            self._show_summaries(self._snapshot)

    def _tick(self) -> None:
        if self._snapshot is not None and self._state.going_on and self.is_on_screen:
            self.query_one("#launch-table", Table).refresh()

    def _show_summaries(self, snapshot: Snapshot) -> None:
        summaries = (*snapshot.summaries, *map(other_summary, snapshot.others))
        ordered = sorted_summaries(self._filtered_summaries(summaries), *self._summary_sort)
        total_ns = sum(summary.total_ns for summary in summaries)
        table = self.query_one("#summary", Table)
        is_interpreted = snapshot.run.mode == "interpret"
        table.columns = _CPU_SUMMARY_COLUMNS if is_interpreted else SUMMARY_COLUMNS
        table.display = bool(summaries)
        self._fitted_height = self.size.height
        rows = next(rows for height, rows in _SUMMARY_ROWS if self._fitted_height >= height)
        # Its height stays while a filter is typed, so that the rows below do not jump.
        table.styles.height = min(len(summaries), rows) + 1
        table.empty_text = "no kernel passes the filter"
        table.show_rows(
            [summary.kernel for summary in ordered],
            lambda index: summary_cells(ordered[index], total_ns),
            sorted_by=self._summary_sort,
        )

    def _filtered_summaries(self, summaries: tuple[KernelSummary, ...]) -> list[KernelSummary]:
        """Return the kernels that the filter names, or whose launches it leaves."""
        wanted = self.filter_text.casefold()
        # With a kernel chosen from the table, all stay to choose from.
        if not wanted or self._chosen_kernel == self.filter_text or self._snapshot is None:
            return list(summaries)
        kernels = {row.kernel for row in self._snapshot.rows if wanted in row.title.casefold()}
        return [s for s in summaries if s.kernel in kernels or wanted in s.kernel.casefold()]

    def _show_rows(self) -> None:
        snapshot = self._snapshot
        if snapshot is None:
            return
        wanted = self.filter_text.casefold()
        rows = [r for r in snapshot.rows if wanted in r.title.casefold()]
        made = LaunchRows(snapshot, self._state)
        rows = made.sorted(rows, *self._launch_sort)
        self._rows = rows
        table = self.query_one("#launch-table", Table)
        table.columns = LAUNCH_COLUMNS
        if snapshot.run.mode == "interpret":
            table.columns = _CPU_LAUNCH_COLUMNS
        table.show_rows(
            [row.seq for row in rows],
            lambda index: made.cells(rows[index]),
            # New rows are followed; rows that a filter lets in again are not.
            follow_last=self._launch_sort == (0, False) and wanted == self._shown_filter,
            sorted_by=self._launch_sort,
        )
        self._shown_filter = wanted
        self._show_note(snapshot, len(rows))

    def _show_note(self, snapshot: Snapshot, shown: int) -> None:
        note = self.query_one("#launch-note", Static)
        parts = []
        if self.filter_text:
            parts.append(
                f"{display.count(shown)} with …{display.shown(self.filter_text)}… "
                "in kernel or scopes"
            )
        if len(snapshot.rows) < snapshot.launch_count:
            latest, everything = (
                display.count(len(snapshot.rows)),
                display.count(snapshot.launch_count),
            )
            parts.append(f"the latest {latest} of {everything}; the table above counts all")
        note.display = bool(parts)
        note.update(Text("; ".join(parts), style=palette.MUTED))

    @on(Table.Moved)
    def _load_launch_at_cursor(self, event: Table.Moved) -> None:
        """Load the launch that is selected now."""
        event.stop()
        if event.line_list.id == "launch-table":
            self._load_launch()

    def _load_launch(self) -> None:
        seq = self.query_one("#launch-table", Table).key
        session = self._session
        if not isinstance(seq, int) or session is None:
            self.post_message(LaunchLoaded(None))
            return
        chosen, app = seq, self.app

        def load() -> None:
            try:
                launch = session.launch(chosen)
                kernel = "" if launch is None else launch.kernel
                tunings = session.records(AutotuneChoice, kernel=kernel)
                inside = () if launch is None else tuple(timeline_text(session, launch))
                self.post_message(LaunchLoaded(launch, tuple(t.event for t in tunings), inside))
            except SessionError as error:
                app.post_message(SessionFailed(str(error)))

        self.run_worker(load, thread=True, exclusive=True, group="launch")

    @on(LaunchLoaded)
    def _show_launch(self, event: LaunchLoaded) -> None:
        """Show the details, unless another launch has been selected meanwhile."""
        event.stop()
        launch = event.launch
        if launch is not None and self.query_one("#launch-table", Table).key != launch.seq:
            return
        same = launch is not None and self._launch is not None and launch.seq == self._launch.seq
        self._launch, self._tunings, self._inside = launch, event.tunings, event.inside
        self._show_details()
        if not same:
            self.query_one("#launch-detail").scroll_home(animate=False)

    def _show_details(self) -> None:
        launch = self._launch
        faults = self._faults_of(launch) if launch is not None else ()
        self._text = Text("")
        if launch is not None:
            self._text = launch_text(launch, self._tunings, faults, self._inside)
        self.query_one("#launch-text", Static).update(self._text)

    def _faults_of(self, launch: Launch) -> tuple[FaultGroup, ...]:
        """Return the faults that the launch may have had: they are counted by kernel."""
        snapshot = self._snapshot
        if snapshot is None or (launch.process, launch.id) not in snapshot.faulty:
            return ()
        return tuple(g for g in snapshot.faults if g.first.event.kernel == launch.kernel)

    def copied_text(self) -> str:
        """The details of the launch."""
        return self._text.plain

    def action_faults(self) -> None:
        """Show the first fault of the launch's kernel."""
        faults = self._faults_of(self._launch) if self._launch is not None else ()
        if faults:
            self.post_message(OpenFault(faults[0].key))
        else:
            self.app.notify("this launch had no fault")

    @on(Table.Chosen)
    def _open_row(self, event: Table.Chosen) -> None:
        """Open the kernel of a launch, or show only the launches of a kernel."""
        event.stop()
        table = event.line_list
        if table.id == "launch-table" and event.index < len(self._rows):
            row = self._rows[event.index]
            self.post_message(OpenKernel(row.kernel_hash, row.kernel))
        elif table.id == "summary" and isinstance(table, Table) and isinstance(table.key, str):
            if table.key.startswith(OTHER_MARK):
                self.app.notify("not launched by tkdebug: its launches are not listed")
                return
            self._chosen_kernel = "" if self.filter_text == table.key else table.key
            self.set_filter(self._chosen_kernel)
            self.query_one("#filter", Input).value = self.filter_text

    @on(Table.HeaderClicked)
    def _sort_by_clicked(self, event: Table.HeaderClicked) -> None:
        """Sort by the column clicked, in reverse if it was sorted by that already."""
        event.stop()
        self._sort_by(event.table, event.column)

    def _sort_by(self, table: Table, column: int) -> None:
        if table.id == "summary":
            old, descending = self._summary_sort
            self._summary_sort = (column, not descending if old == column else column > 0)
            if self._snapshot is not None:
                self._show_summaries(self._snapshot)
        else:
            old, descending = self._launch_sort
            self._launch_sort = (column, not descending if old == column else column in (2, 3))
            self._show_rows()
            # A user who sorts wants to see the first rows.
            table.move_cursor(0, announce=True)

    def _focused_table(self) -> tuple[Table, int]:
        summary = self.query_one("#summary", Table)
        if summary.has_focus:
            return summary, self._summary_sort[0]
        return self.query_one("#launch-table", Table), self._launch_sort[0]

    def action_sort(self) -> None:
        """Sort the table in focus by its next column."""
        table, column = self._focused_table()
        titled = sum(bool(c.title) for c in table.columns)
        self._sort_by(table, (column + 1) % titled)

    def action_reverse(self) -> None:
        """Sort the table in focus the other way round."""
        self._sort_by(*self._focused_table())

    def show_filtered(self) -> None:
        """Show the rows that pass the filter, and the line about them."""
        if self._chosen_kernel != self.filter_text:
            self._chosen_kernel = ""
        if self._snapshot is not None:
            self._show_summaries(self._snapshot)
        self._show_rows()
        self._show_empty()
