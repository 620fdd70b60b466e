"""Changes of a pass in few words, for all views: counts, groups of similar ones, runs of lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tkdebug.instrument.passes.diff import CHANGE_KINDS, ChangeKind, OpChange, OpRef, PassDiff
from tkdebug.instrument.passes.kernel_passes import OpLine

_WORDS: dict[ChangeKind, tuple[str, str]] = {
    "added": ("op added", "ops added"),
    "removed": ("op removed", "ops removed"),
    "replaced": ("op replaced", "ops replaced"),
    "attribute": ("attribute changed", "attributes changed"),
    "layout": ("layout changed", "layouts changed"),
    "type": ("type changed", "types changed"),
    "moved": ("op moved", "ops moved"),
    "operands": ("op takes other operands", "ops take other operands"),
}
MIN_ALIKE = 5
# Parts before the name of an instruction: an address, a result, a guard.
_INSTRUCTION = re.compile(r"\s*(?:/\*.*?\*/\s*)?(?:%[\w.]+ = )?(?:@!?%?\w+\s+)?(?P<name>[\w.]+)")


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """Changes of one kind by one rule to ops of the same names.

    Attributes:
        what: the ops: "tt.load", "arith.addi -> arith.muli".
        detail: the detail that all of them share, "" if they differ in it.
        count: the number of changes.
        places: the places of their ops.
    """

    kind: ChangeKind
    rule: str
    what: str
    detail: str
    count: int
    places: tuple[tuple[str, int], ...]


def counts_text(diff: PassDiff) -> str:
    """Return `3 ops added, 1 op removed`, `nothing changed`, or that changes are not recorded."""
    if not diff.known:
        return "too large a kernel for its changes to be recorded"
    counts = diff.counts
    parts = [f"{counts[k]:,} {_WORDS[k][counts[k] != 1]}" for k in CHANGE_KINDS if counts[k]]
    return ", ".join(parts) or "nothing changed"


def group_changes(changes: Sequence[OpChange]) -> list[ChangeGroup]:
    """Group similar changes, within a kind the largest group first."""
    groups: dict[tuple[ChangeKind, str, str, str], list[OpChange]] = {}
    for change in changes:
        # Changes of an attribute are grouped by its name, not its values; layouts by both.
        name = change.detail.partition(":")[0] if change.kind == "attribute" else ""
        name = change.detail if change.kind == "layout" else name
        # One change of layout concerns ops of many names.
        what = "" if change.kind == "layout" else _what(change)
        key = (change.kind, change.rule, name, what)
        groups.setdefault(key, []).append(change)
    found = []
    for (kind, rule, name, what), members in groups.items():
        details = {change.detail for change in members}
        places = dict.fromkeys(
            op.place for c in members for op in (c.old or c.new) if op.place is not None
        )
        found.append(
            ChangeGroup(
                kind=kind,
                rule=rule,
                what=what or _op_names([c.new[0] for c in members]),
                detail=details.pop() if len(details) == 1 else name,
                count=sum(len(c.old) if kind == "replaced" else 1 for c in members),
                places=tuple(places),
            )
        )
    order = {kind: index for index, kind in enumerate(CHANGE_KINDS)}
    return sorted(found, key=lambda group: (order[group.kind], -group.count))


def _what(change: OpChange) -> str:
    old, new = _op_names(change.old), _op_names(change.new)
    if change.kind == "replaced":
        return f"{old} -> {new}"
    return new or old


def _op_names(ops: Sequence[OpRef]) -> str:
    counts = Counter(op.name for op in ops)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{n} {name}" if n > 1 else name for name, n in counts.items())


@dataclass(frozen=True, slots=True)
class LineRun:
    """A line, and the number of lines of the same instruction that follow it.

    Attributes:
        name: the name of the instruction.
    """

    first: OpLine
    more: int = 0
    name: str = ""


def runs_of(lines: Sequence[OpLine]) -> list[LineRun]:
    """Return `lines` with runs of at least `MIN_ALIKE` similar ones put together.

    Lines that show an op of the IR stay by themselves: each is something of its own.
    """
    runs: list[LineRun] = []
    begin = 0
    while begin < len(lines):
        name = _name(lines[begin])
        end = begin + 1
        while end < len(lines) and name and _follows(lines[end - 1], lines[end], name):
            end += 1
        if end - begin >= MIN_ALIKE:
            runs.append(LineRun(lines[begin], end - begin - 1, name))
        else:
            runs += [LineRun(line) for line in lines[begin:end]]
        begin = end
    return runs


def run_text(run: LineRun) -> str:
    """Return a text on the run's further lines: "63 more of extractvalue, up to line 511"."""
    return f"{run.more:,} more of {run.name}, up to line {run.first.line + run.more}"


def _follows(before: OpLine, line: OpLine, name: str) -> bool:
    return line.line == before.line + 1 and _name(line) == name


def _name(line: OpLine) -> str:
    if line.op_id is not None:
        return ""
    found = _INSTRUCTION.match(line.text)
    return found["name"] if found else ""
