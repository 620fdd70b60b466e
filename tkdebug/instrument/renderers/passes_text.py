"""Passes as text: a table of them for each kernel, the changes of each, or the life of a line.

Nothing that a session holds acts on the terminal (`terminal.text`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence

from tkdebug.errors import shown_path
from tkdebug.fault_printing.text import counted
from tkdebug.instrument.passes.diff import OpChange, OpRef, PassDiff, text_diff
from tkdebug.instrument.passes.kernel_passes import LifeStep
from tkdebug.instrument.passes.query import KernelReport
from tkdebug.instrument.passes.summary import (
    ChangeGroup,
    counts_text,
    group_changes,
    run_text,
    runs_of,
)
from tkdebug.instrument.text_forms import format_ns, measured_ns, table_lines
from tkdebug.terminal.display import PLAIN_VIEW, View, fitted
from tkdebug.terminal.text import visible, visible_line

MAX_GROUPS = 12
MAX_LINES_SHOWN = 400
MAX_TEXT_CHARS = 160


def render(reports: Sequence[KernelReport], view: View = PLAIN_VIEW) -> Iterator[str]:
    """The report in pieces of text."""
    for number, report in enumerate(reports):
        if number:
            yield "\n"
        lines = _life(report) if report.life is not None else _kernel(report, view.width)
        for line in (*_head(report, view.width), *lines):
            yield visible(line) + "\n"


def _head(report: KernelReport, width: int | None) -> Iterator[str]:
    kernel = report.passes.kernel
    arch = kernel.options.get("arch")
    for_arch = f" for {arch}" if arch else ""
    rest = f"{for_arch}  [{kernel.hash[:12]}]"
    yield fitted(visible_line(kernel.name + kernel.signature), rest, width)
    times = counted(len(report.passes.diffs), "pass")
    if report.passes.time_ns:
        times = f"{format_ns(report.passes.time_ns)} in {times}"
    yield f"{shown_path(kernel.file)}:{kernel.line}, {times}"
    if kernel.error is not None:
        yield f"did not compile: {kernel.error}"


def _kernel(report: KernelReport, width: int | None) -> Iterator[str]:
    yield from _table(report.diffs, width)
    in_full = report.query.pass_name is not None
    for diff in report.diffs:
        shown = diff.changes or diff.error or not diff.known
        if not shown and not (report.query.text_diff and diff.changed):
            continue
        yield ""
        yield f"{diff.name}: {counts_text(diff)}"
        if diff.error:
            yield f"  failed: {diff.error}"
        yield from _changes(report, diff, in_full)
        for file, line in diff.gone_lines:
            text = report.source_line((file, line)).strip()
            yield f"  nothing is left of {_where((file, line))}  {_cut(text)}".rstrip()
        for definition in diff.layouts if in_full else ():
            yield f"  {definition}"
        if report.query.text_diff and diff.before in report.passes.stages:
            stages = report.passes.stages
            yield from text_diff(stages[diff.before], stages[diff.after])


def _table(diffs: Sequence[PassDiff], width: int | None) -> Iterator[str]:
    titles = ("pass", "time", "ops", "added", "removed", "replaced", "attrs", "layouts", "moved")
    rows: list[tuple[str, ...]] = [titles]
    for diff in diffs:
        counts = diff.counts
        kinds = ("added", "removed", "replaced", "attribute", "layout", "moved")
        numbers = (f"{counts[kind]:,}" if counts[kind] else "" for kind in kinds)
        shown = "failed" if diff.error else f"{diff.op_count:,}"
        rows.append((visible_line(diff.name), measured_ns(diff.time_ns), shown, *numbers))
    return table_lines(rows, width, indent="  ")


def _changes(report: KernelReport, diff: PassDiff, in_full: bool) -> Iterator[str]:
    if in_full:
        for change in diff.changes:
            yield from _change(report, diff, change)
        return
    groups = group_changes(diff.changes)
    for group in groups[:MAX_GROUPS]:
        yield "  " + group_text(group)
    if len(groups) > MAX_GROUPS:
        left = sum(group.count for group in groups[MAX_GROUPS:])
        yield f"  and {counted(left, 'more change')}; --pass {diff.name} shows each"


def group_text(group: ChangeGroup) -> str:
    """Changes of one kind, rule and ops in one line: "replaced 3 x arith.addi -> … (fold)"."""
    times = f"{group.count} x " if group.count > 1 else ""
    if group.kind == "layout" and ", " in group.what:
        times = f"{group.count} ops: "
    rule = f" ({group.rule})" if group.rule else ""
    places = ", ".join(_lines_of(group))
    where = f"  {places}" if places else ""
    detail = f"  {_cut(group.detail)}" if group.detail else ""
    return f"{group.kind:<9} {times}{group.what}{detail}{rule}{where}"


def _lines_of(group: ChangeGroup) -> Iterator[str]:
    by_file: dict[str, list[int]] = {}
    for file, line in group.places:
        by_file.setdefault(file, []).append(line)
    for file, lines in by_file.items():
        shown = ",".join(map(str, sorted(lines)[:8])) + (",…" if len(lines) > 8 else "")
        yield f"{posixpath.basename(file)}:{shown}"


def _change(report: KernelReport, diff: PassDiff, change: OpChange) -> Iterator[str]:
    stages = report.passes.stages
    rule = f"  ({change.rule})" if change.rule else ""
    detail = f"  {change.detail}" if change.detail else ""
    ops = change.old or change.new
    place = next((op.place for op in ops if op.place is not None), None)
    yield f"  {change.kind}{detail}{rule}  {_where(place)}".rstrip()
    for op in () if change.in_place else change.old:
        yield f"    - {_op_text(op, stages[diff.before].line_text(op.id))}"
    for op in change.new:
        known = change.in_place or (
            change.kind == "replaced" and op.id in stages[diff.before].lines
        )
        mark = "=" if known else "+"
        yield f"    {mark} {_op_text(op, stages[diff.after].line_text(op.id))}"


def _op_text(op: OpRef, text: str) -> str:
    return f"#{op.id} {_cut(text or op.name)}"


def _life(report: KernelReport) -> Iterator[str]:
    life = report.life
    assert life is not None
    yield ""
    yield f"{shown_path(life.place[0])}:{life.place[1]}  {report.source_line(life.place).strip()}"
    for step in life.steps:
        yield ""
        yield f"{step.name}: {counted(len(step.lines), 'line')}" + _stage_note(step)
        for change in step.changes:
            yield "  " + _life_change(change)
        for run in runs_of(step.lines[:MAX_LINES_SHOWN]):
            line = run.first
            op = "" if line.op_id is None else f"#{line.op_id}"
            yield f"  {line.line:>6} {op:>6}  {_cut(line.text.strip())}"
            if run.more:
                yield f"  {'…':>6} {'':>6}  {run_text(run)}"
        if len(step.lines) > MAX_LINES_SHOWN:
            yield f"  and {counted(len(step.lines) - MAX_LINES_SHOWN, 'more line')}"
    for note in (life.note, report.passes.note):
        if note:
            yield f"\n{note}"


def _stage_note(step: LifeStep) -> str:
    return "" if step.stage == step.name else f" of {step.stage}"


def _life_change(change: OpChange) -> str:
    rule = f" ({change.rule})" if change.rule else ""
    detail = f" {change.detail}" if change.detail else ""
    if change.in_place:
        return f"{change.kind} {_names(change.new)}{detail}{rule}"
    ops = _names(change.old) if change.old else ""
    became = _names(change.new) if change.new else ""
    arrow = " -> " if ops and became else ""
    return f"{change.kind} {ops}{arrow}{became}{detail}{rule}"


def _names(ops: Sequence[OpRef]) -> str:
    return ", ".join(f"{op.name} #{op.id}" for op in ops)


def _where(place: tuple[str, int] | None) -> str:
    return "" if place is None else f"{posixpath.basename(place[0])}:{place[1]}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…"
