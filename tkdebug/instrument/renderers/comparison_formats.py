"""The comparison of two runs as text, and as JSON.

Nothing that a session holds acts on the terminal (`terminal.text`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict

from tkdebug.errors import shown_path
from tkdebug.fault_printing.text import counted
from tkdebug.instrument.analyses.comparison import (
    CONFIDENCE_PERCENT,
    Comparison,
    KernelChange,
    TimeChange,
    WatchedChange,
)
from tkdebug.instrument.analyses.watched_values import value_line
from tkdebug.instrument.records import KernelSummary, RunInfo
from tkdebug.instrument.renderers.advice_formats import advice_data
from tkdebug.instrument.renderers.fault_section import fault_lines
from tkdebug.instrument.renderers.json_format import fault_object
from tkdebug.instrument.renderers.text_format import run_line
from tkdebug.instrument.session import Session
from tkdebug.instrument.text_forms import format_ns, json_text, table_lines
from tkdebug.terminal.display import PLAIN_VIEW, View
from tkdebug.terminal.text import visible, visible_line

_TITLES = ("kernel", "launches", "mean", "change", "min", "change")
COMPARISON_SCHEMA = 1


def comparison_text(
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
        changes = [*_changes(comparison)]
        if changes:
            yield "\n"
        yield from (visible(line) + "\n" for line in changes)
    else:
        yield "\nno kernels were launched\n"
    for what, remarks in (("new", comparison.new_remarks), ("gone", comparison.gone_remarks)):
        for one in remarks:
            place = f"{one.file}:{one.line}"
            yield visible(f"{what} remark: {place} {one.kernel} [{one.kind}] {one.message}") + "\n"
    for line in _watched(comparison):
        yield visible_line(line) + "\n"
    yield (
        f"\n{counted(len(comparison.new_faults), 'new fault')}, "
        f"{len(comparison.gone_faults):,} gone, {comparison.kept_faults:,} in both\n"
    )
    for what, session, faults in (
        ("new", after, comparison.new_faults),
        ("gone", before, comparison.gone_faults),
    ):
        for group in faults:
            first, *rest = fault_lines(session, group, view)
            yield f"\n{what}: {first}\n"
            # A fault that is fixed needs no hint.
            yield from (f"{line}\n" for line in rest if what == "new")


def _watched(comparison: Comparison) -> Iterator[str]:
    """Yield for each variable that both runs watched whether and how much its values differ."""
    for change in comparison.watched:
        frame = change.frames[-1]
        place = f"{shown_path(frame.file)}:{frame.line} {change.name} of {change.kernel}"
        if change.before is None or change.after is None:
            yield f"{place}: {counted(change.compared, 'value')}, the same in both"
            continue
        what = (
            f"by up to {change.largest:.2g} of their largest magnitude"
            if math.isfinite(change.largest)
            else "in NaNs or infinities"
        )
        yield f"{place}: {change.different:,} of {counted(change.compared, 'value')} differ {what}"
        yield f"  before: {value_line(change.before)}"
        yield f"  after:  {value_line(change.after)}"


def _changes(comparison: Comparison) -> Iterator[str]:
    """Yield times that changed for certain, and code that needs more or less."""
    if comparison.is_timed:
        for change in comparison.kernels:
            if change.time is not None and change.time.verdict in ("slower", "faster"):
                yield _certain(visible_line(change.kernel), change.time)
        for why, kernels in comparison.unknown().items():
            yield f"not known whether slower or faster: {', '.join(kernels)} ({why})"
    for change in comparison.kernels:
        old, new = change.code_before, change.code_after
        if old is None or new is None or old == new:
            continue
        figures = (
            ("registers", old.registers, new.registers),
            ("spilled bytes", old.spill_bytes, new.spill_bytes),
            ("bytes of shared memory", old.shared_bytes, new.shared_bytes),
        )
        parts = [f"{what} {a} -> {b}" for what, a, b in figures if a != b]
        yield f"{visible_line(change.kernel)}: {', '.join(parts)}"


def _certain(kernel: str, time: TimeChange) -> str:
    return (
        f"{kernel}: {time.verdict}, {time.ratio:.3f}x the time "
        f"({CONFIDENCE_PERCENT} % confidence: {time.low:.3f} to {time.high:.3f}, "
        f"{time.launches[0]:,} and {time.launches[1]:,} launches)"
    )


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


def comparison_json(comparison: Comparison, before: Session, after: Session) -> Iterator[str]:
    """The comparison as one object."""
    yield json_text(
        {
            "schema": COMPARISON_SCHEMA,
            "before": _run(comparison.before),
            "after": _run(comparison.after),
            "kernels": [_kernel(change) for change in comparison.kernels],
            "new_faults": [fault_object(group.fault) for group in comparison.new_faults],
            "gone_faults": [fault_object(group.fault) for group in comparison.gone_faults],
            "kept_faults": comparison.kept_faults,
            "new_remarks": advice_data(comparison.new_remarks),
            "gone_remarks": advice_data(comparison.gone_remarks),
            "watched_values": [_watched_data(change) for change in comparison.watched],
        },
        indent=1,
    )
    yield "\n"


def _watched_data(change: WatchedChange) -> dict[str, object]:
    frame = change.frames[-1]
    at = change.after
    return {
        "kernel": change.kernel,
        "name": change.name,
        "file": frame.file,
        "line": frame.line,
        "compared": change.compared,
        "different": change.different,
        "largest": change.largest if math.isfinite(change.largest) else "inf",
        "program_id": None if at is None else at.program_id,
        "iteration": None if at is None else at.iteration,
    }


def _run(run: RunInfo) -> dict[str, object]:
    return {"script": run.script, "mode": run.mode, "exit_status": run.exit_status}


def _kernel(change: KernelChange) -> dict[str, object]:
    return {
        "kernel": change.kernel,
        "before": _summary(change.before),
        "after": _summary(change.after),
        "mean_ratio": change.mean_ratio,
        "min_ratio": change.min_ratio,
        "time": _time(change.time),
        "code_before": None if change.code_before is None else asdict(change.code_before),
        "code_after": None if change.code_after is None else asdict(change.code_after),
    }


def _time(change: TimeChange | None) -> dict[str, object] | None:
    if change is None:
        return None
    is_known = change.verdict != "unknown"
    return {
        "ratio": change.ratio,
        "low": change.low if is_known else None,
        "high": change.high if is_known else None,
        "launches": change.launches,
        "verdict": change.verdict,
    }


def _summary(summary: KernelSummary | None) -> dict[str, object] | None:
    if summary is None:
        return None
    ended = summary.finished > 0
    return {
        "launches": summary.launches,
        "total_ns": summary.total_ns,
        "mean_ns": summary.mean_ns if ended else None,
        "min_ns": summary.min_ns if ended else None,
        "max_ns": summary.max_ns if ended else None,
    }
