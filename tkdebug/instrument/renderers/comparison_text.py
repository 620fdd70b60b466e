"""The comparison of two runs as text.

Nothing that a session holds acts on the terminal (`terminal_text`).
"""

from __future__ import annotations

from collections.abc import Iterator

from tkdebug.instrument.comparison import Comparison, KernelChange
from tkdebug.instrument.durations import format_ns
from tkdebug.instrument.records import KernelSummary
from tkdebug.instrument.renderers.text_format import counted, fault_lines, run_line
from tkdebug.instrument.renderers.text_table import table_lines
from tkdebug.instrument.session import Session
from tkdebug.terminal_style import PLAIN_VIEW, View
from tkdebug.terminal_text import visible, visible_line

_TITLES = ("kernel", "launches", "mean", "change", "min", "change")


def render(
    comparison: Comparison, before: Session, after: Session, view: View = PLAIN_VIEW
) -> Iterator[str]:
    """The comparison in pieces of text."""
    yield visible(f"before: {run_line(comparison.before)}") + "\n"
    yield visible(f"after:  {run_line(comparison.after)}") + "\n"
    if comparison.before.mode != comparison.after.mode:
        yield "the kernels ran in different modes: their times say little\n"
    elif "interpret" in comparison.after.mode:
        yield "interpreted kernels: the times are the interpreter's, not a GPU's\n"
    if comparison.kernels:
        yield "\n"
        for line in _table(comparison.kernels, view.width):
            yield visible(line) + "\n"
    else:
        yield "\nno kernels were launched\n"
    yield (
        f"\n{counted(len(comparison.new_faults), 'new fault')}, "
        f"{len(comparison.gone_faults):,} gone, {comparison.kept_faults:,} in both\n"
    )
    for what, session, faults in (
        ("new", after, comparison.new_faults),
        ("gone", before, comparison.gone_faults),
    ):
        for group in faults:
            first, *rest = fault_lines(session, group, view.style)
            yield f"\n{what}: {first}\n"
            # What has gone needs no hint.
            yield from (f"{line}\n" for line in rest if what == "new")


def _table(kernels: tuple[KernelChange, ...], width: int | None) -> Iterator[str]:
    return table_lines([_TITLES, *(_cells(change) for change in kernels)], width)


def _cells(change: KernelChange) -> tuple[str, ...]:
    before, after = change.before, change.after
    old, new = (f"{s.launches:,}" if s is not None else "none" for s in (before, after))
    return (
        visible_line(change.kernel),
        old if old == new else f"{old} -> {new}",
        f"{_mean(before)} -> {_mean(after)}",
        _percent(change.mean_ratio),
        f"{_least(before)} -> {_least(after)}",
        _percent(change.min_ratio),
    )


def _mean(summary: KernelSummary | None) -> str:
    return format_ns(summary.mean_ns) if summary is not None and summary.finished else "-"


def _least(summary: KernelSummary | None) -> str:
    return format_ns(summary.min_ns) if summary is not None and summary.finished else "-"


def _percent(ratio: float | None) -> str:
    return "" if ratio is None else f"{100 * (ratio - 1):+.1f} %"
