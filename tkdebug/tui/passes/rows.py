"""What the passes pane shows, as rows: changes op by op, a text diff, the life of a line.

Headless. Texts come from a session and are made harmless where they are drawn.
"""

from __future__ import annotations

import itertools
import re

from tkdebug.instrument.passes.diff import OpChange, OpRef, PassDiff, StageOps, text_diff
from tkdebug.instrument.passes.kernel_passes import KernelPasses, LifeStep, Place
from tkdebug.instrument.passes.summary import counts_text
from tkdebug.tui.drawing import palette
from tkdebug.tui.drawing.lines import TextRow

MAX_ROWS = 50_000
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


def size_text(diff: PassDiff) -> str:
    """How much a pass changed, in a few characters: `+6 -2 ~3 a1 l60 m8`."""
    counts = diff.counts
    marks = (
        ("added", "+"),
        ("removed", "-"),
        ("replaced", "~"),
        ("attribute", "a"),
        ("layout", "l"),
        ("type", "t"),
        ("moved", "m"),
        ("operands", "o"),
    )
    return " ".join(f"{mark}{counts[kind]}" for kind, mark in marks if counts[kind])


def change_rows(passes: KernelPasses, diff: PassDiff) -> list[TextRow]:
    """What a pass changed, op by op."""
    made = diff.number == 0 and not diff.changes
    said = f"{diff.op_count:,} ops made of the source" if made else counts_text(diff)
    rows = [TextRow(said, palette.STRONG)]
    if diff.error:
        rows.append(TextRow(f"failed: {diff.error}", palette.FAULT))
    rows += [
        TextRow(f"nothing is left of {file}:{line}", palette.WARNING, (file, line))
        for file, line in diff.gone_lines
    ]
    kind = ""
    for change in diff.changes[:MAX_ROWS]:
        if change.kind != kind:
            kind = change.kind
            rows += [TextRow(""), TextRow(kind, palette.LABEL)]
        rows += _rows_of(passes, diff, change)
    if diff.layouts:
        rows += [TextRow(""), TextRow("layouts", palette.LABEL)]
        rows += [TextRow(f"  {definition}") for definition in diff.layouts]
    return rows


def _rows_of(passes: KernelPasses, diff: PassDiff, change: OpChange) -> list[TextRow]:
    rule = f"  ({change.rule})" if change.rule else ""
    rows = []
    if change.in_place:
        op = change.new[0]
        if change.detail:
            head = f"  {op.name} #{op.id}  {change.detail}{rule}"
            return [TextRow(head, "", op.place)]
        return [_op_row("  ", passes, diff.after, op, rule)]
    for number, op in enumerate(change.old):
        rows.append(_op_row("  - ", passes, diff.before, op, "" if number else rule))
    known = passes.stages[diff.before].lines if diff.before in passes.stages else {}
    for op in change.new:
        stayed = change.kind == "replaced" and op.id in known
        mark = "    = " if stayed else "  + "
        own_rule = "" if change.old else rule
        rows.append(_op_row(mark, passes, diff.after, op, own_rule))
    return rows


def _op_row(mark: str, passes: KernelPasses, stage: str, op: OpRef, rule: str) -> TextRow:
    text = passes.stages[stage].line_text(op.id) if stage in passes.stages else ""
    style = {"-": palette.REMOVED, "+": palette.ADDED}.get(mark.strip(), "")
    return TextRow(f"{mark}#{op.id} {text or op.name}{rule}", style, op.place)


def text_diff_rows(passes: KernelPasses, diff: PassDiff) -> list[TextRow]:
    """The unified diff of a pass's texts."""
    before, after = passes.stages.get(diff.before), passes.stages.get(diff.after)
    if before is None or after is None or before is after:
        return [TextRow("the text is the same", palette.MUTED)]
    old_places, new_places = _places_by_line(before), _places_by_line(after)
    rows: list[TextRow] = []
    old = new = 0
    for line in itertools.islice(text_diff(before, after), MAX_ROWS):
        head = line[:1]
        style = {"-": palette.REMOVED, "+": palette.ADDED, "@": palette.LABEL}.get(head, "")
        hunk = _HUNK.match(line)
        if hunk is not None:
            old, new = int(hunk[1]) - 1, int(hunk[2]) - 1
        elif len(rows) > 2:
            old, new = old + (head != "+"), new + (head != "-")
        place = old_places.get(old) if head == "-" else new_places.get(new)
        rows.append(TextRow(line, style, None if head == "@" else place))
    return rows or [TextRow("the text is the same", palette.MUTED)]


def _places_by_line(stage: StageOps) -> dict[int, Place]:
    return {
        line: stage.facts[id_].places[0]
        for id_, line in stage.lines.items()
        if id_ in stage.facts and stage.facts[id_].places
    }


def life_rows(step: LifeStep, *, is_first: bool) -> list[TextRow]:
    """What became of the followed line in one pass, or at one later stage.

    Args:
        step: which one.
        is_first: whether it is the front end, before which the line had no op.
    """
    rows = []
    for change in step.changes:
        rule = f"  ({change.rule})" if change.rule else ""
        old = "" if change.in_place else _names(change.old)
        arrow = " -> " if old and change.new else ""
        detail = f"  {change.detail}" if change.detail else ""
        text = f"{change.kind} {old}{arrow}{_names(change.new)}{detail}{rule}"
        rows.append(TextRow(text, palette.WARNING))
    if rows:
        rows.append(TextRow(""))
    for line in step.lines[:MAX_ROWS]:
        op = "" if line.op_id is None else f"#{line.op_id}"
        rows.append(TextRow(f"{line.line:>6} {op:>5}  {line.text.strip()}"))
    if not step.lines:
        said = "no op of this kernel" if is_first else "nothing any more"
        rows.append(TextRow(f"{said} comes from this line", palette.MUTED))
    return rows


def _names(ops: tuple[OpRef, ...]) -> str:
    return ", ".join(f"{op.name} #{op.id}" for op in ops)
