"""Passes as JSON, schema 1: one object; keys are added, never changed, within a schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tkdebug.instrument.home.variants import variant_key
from tkdebug.instrument.passes.diff import OpChange, OpRef, PassDiff, text_diff
from tkdebug.instrument.passes.kernel_passes import LineLife
from tkdebug.instrument.passes.query import KernelReport
from tkdebug.instrument.text_forms import json_text

JSON_SCHEMA = 1


def render(reports: Sequence[KernelReport]) -> Iterator[str]:
    """The report in pieces of text; a kernel is a line."""
    yield f'{{"schema": {JSON_SCHEMA}, "kernels": ['
    separator = "\n"
    for report in reports:
        yield separator + json_text(_kernel(report))
        separator = ",\n"
    yield "]}\n"


def _kernel(report: KernelReport) -> dict[str, object]:
    kernel = report.passes.kernel
    shown: dict[str, object] = {
        "kernel": kernel.name,
        "hash": kernel.hash,
        "variant": variant_key(kernel),
        "signature": kernel.signature,
        "options": dict(kernel.options),
        "file": kernel.file,
        "line": kernel.line,
        "error": kernel.error,
        "note": report.passes.note,
    }
    if report.life is not None:
        shown["life"] = _life(report.life)
    else:
        shown["passes"] = [_pass(report, diff) for diff in report.diffs]
    return shown


def _pass(report: KernelReport, diff: PassDiff) -> dict[str, object]:
    stages = report.passes.stages
    shown: dict[str, object] = {
        "number": diff.number,
        "name": diff.name,
        "time_ns": diff.time_ns or None,
        "before": diff.before,
        "after": diff.after,
        "ops": diff.op_count,
        "known": diff.known,
        "error": diff.error,
        "counts": dict(diff.counts),
        "changes": [_change(change) for change in diff.changes],
        "gone_lines": [{"file": file, "line": line} for file, line in diff.gone_lines],
        "layouts": list(diff.layouts),
    }
    if report.query.text_diff and diff.before in stages:
        shown["diff"] = "\n".join(text_diff(stages[diff.before], stages[diff.after]))
    return shown


def _change(change: OpChange) -> dict[str, object]:
    return {
        "kind": change.kind,
        "rule": change.rule,
        "detail": change.detail,
        "old": [_op(op) for op in change.old],
        "new": [_op(op) for op in change.new],
    }


def _op(op: OpRef) -> dict[str, object]:
    file, line = op.place or (None, None)
    return {"id": op.id, "name": op.name, "file": file, "line": line}


def _life(life: LineLife) -> dict[str, object]:
    return {
        "file": life.place[0],
        "line": life.place[1],
        "steps": [
            {
                "name": step.name,
                "stage": step.stage,
                "changes": [_change(change) for change in step.changes],
                "lines": [
                    {"line": line.line, "op": line.op_id, "text": line.text} for line in step.lines
                ],
            }
            for step in life.steps
        ],
    }
