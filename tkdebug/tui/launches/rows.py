"""The rows of the launches pane: their columns, cells and order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from tkdebug.instrument.analyses.kernel_names import activity_name
from tkdebug.instrument.device_records import ActivityTotal
from tkdebug.instrument.records import KernelSummary, Launch
from tkdebug.tui.drawing import display, palette
from tkdebug.tui.session.snapshot import ScriptState, Snapshot
from tkdebug.tui.widgets.table import Cell, Column

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


def sorted_summaries(
    summaries: Iterable[KernelSummary], column: int, descending: bool
) -> list[KernelSummary]:
    """Kernels by one of `SUMMARY_COLUMNS`."""
    key = _SUMMARY_KEYS[column]
    return sorted(summaries, key=key, reverse=descending) if key else list(summaries)  # type: ignore[arg-type]


def other_summary(total: ActivityTotal) -> KernelSummary:
    """What others ran, in the table of kernels."""
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
    """A kernel, its times, and its share of those of all."""
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
        snapshot: of the run; None for nothing known of it.
        state: of the script.
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
        """Those of a row; of a running launch as it is now."""
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
        """How long it took, or has taken so far; -1 when that is not known."""
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
