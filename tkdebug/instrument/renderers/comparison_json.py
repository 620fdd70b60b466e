"""The comparison of two runs as JSON, schema 1: keys are added, never changed, within a schema."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict

from tkdebug.instrument.analyses.comparison import Comparison, KernelChange
from tkdebug.instrument.analyses.time_changes import TimeChange
from tkdebug.instrument.analyses.watched_changes import WatchedChange
from tkdebug.instrument.json_text import json_text
from tkdebug.instrument.records import KernelSummary, RunInfo
from tkdebug.instrument.renderers.advice_formats import advice_data
from tkdebug.instrument.renderers.json_format import fault_object
from tkdebug.instrument.session import Session

COMPARISON_SCHEMA = 1


def render(comparison: Comparison, before: Session, after: Session) -> Iterator[str]:
    """The comparison as one object."""
    yield json_text(
        {
            "schema": COMPARISON_SCHEMA,
            "before": _run(comparison.before),
            "after": _run(comparison.after),
            "kernels": [_kernel(change) for change in comparison.kernels],
            "new_faults": [fault_object(group) for group in comparison.new_faults],
            "gone_faults": [fault_object(group) for group in comparison.gone_faults],
            "kept_faults": comparison.kept_faults,
            "new_remarks": advice_data(comparison.new_remarks),
            "gone_remarks": advice_data(comparison.gone_remarks),
            "watched_values": [_watched(change) for change in comparison.watched],
        },
        indent=1,
    )
    yield "\n"


def _watched(change: WatchedChange) -> dict[str, object]:
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
