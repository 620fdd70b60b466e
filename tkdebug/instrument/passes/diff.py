"""Changes of one compiler pass, op by op, from recorded snapshots and rewrites.

Ops are identified by their ids and followed by the rewrites that a pass recorded, never by their
text; text is only shown. Needs neither the compiler nor a GPU.
"""

from __future__ import annotations

import difflib
import itertools
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from tkdebug.records.events import CompilerPass, OpFacts, Rewrite

ChangeKind = Literal[
    "added", "removed", "replaced", "attribute", "layout", "type", "moved", "operands"
]
CHANGE_KINDS: tuple[ChangeKind, ...] = get_args(ChangeKind)
MAX_DIFF_LINES = 20_000
_LAYOUT = re.compile(r",? ?#\w+")
_LAYOUT_NAME = re.compile(r"#[a-z]\w*")


@dataclass(frozen=True)
class StageOps:
    """The ops of one stage.

    Attributes:
        text: the text of the stage; "" when it was not recorded.
        op_ids: the ids of its ops in program order.
        facts: the facts by op id; ops whose facts were not recorded have none.
        lines: the line (1-based) of the text on which an op starts, by op id.
    """

    name: str
    text: str
    op_ids: tuple[int, ...]
    facts: Mapping[int, OpFacts]
    lines: Mapping[int, int]

    @cached_property
    def text_lines(self) -> tuple[str, ...]:
        """The lines of the text."""
        return tuple(self.text.split("\n"))

    def line_text(self, op_id: int) -> str:
        """The text of the line on which an op starts, "" if that is not known."""
        line = self.lines.get(op_id, 0)
        return self.text_lines[line - 1].strip() if 1 <= line <= len(self.text_lines) else ""


@dataclass(frozen=True, slots=True)
class OpRef:
    """An op as a change names it; `place` is (file, line), None if it is not known."""

    id: int
    name: str
    place: tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class OpChange:
    """One change of one op, or of ops that became one or several others.

    Attributes:
        rule: the rule of the pass that did it, "" if none was recorded.
        old: the ops before.
        new: its replacements; for an op that stayed, itself.
        detail: facts that the ops do not show: "num_stages: 2 -> 3", "out of scf.for #12".
    """

    kind: ChangeKind
    rule: str
    old: tuple[OpRef, ...]
    new: tuple[OpRef, ...]
    detail: str = ""

    @property
    def in_place(self) -> bool:
        """Whether the change is to an op that stayed."""
        return self.kind != "replaced" and [o.id for o in self.old] == [o.id for o in self.new]

    @property
    def op_ids(self) -> frozenset[int]:
        """The ids of all its ops."""
        return frozenset(op.id for op in (*self.old, *self.new))


@dataclass(frozen=True, slots=True)
class PassDiff:
    """The changes that one pass made.

    Attributes:
        number: the number of the pass in its kernel, from 0, which is the front end.
        before: the stage before it; "" for the front end.
        after: the stage after it.
        op_count: the number of ops after it.
        changes: the changes by kind, in program order; none for the front end.
        gone_lines: (file, line) that no op has any more.
        layouts: the definitions of the layouts that changes name.
        known: whether its changes are known: those of very large kernels are not recorded.
        error: why it failed, "" when it did not.
    """

    number: int
    name: str
    before: str
    after: str
    time_ns: int
    op_count: int
    changes: tuple[OpChange, ...] = ()
    gone_lines: tuple[tuple[str, int], ...] = ()
    layouts: tuple[str, ...] = ()
    known: bool = True
    error: str = ""

    @property
    def changed(self) -> bool:
        """Whether it did anything (or failed to)."""
        return bool(self.changes or self.error or self.before != self.after)

    @property
    def counts(self) -> Counter[str]:
        """Count the changes of each kind; a replacement counts once for each replaced op."""
        counts: Counter[str] = Counter()
        for change in self.changes:
            counts[change.kind] += len(change.old) if change.kind == "replaced" else 1
        return counts


def diff_pass(
    number: int, compiler_pass: CompilerPass, before: StageOps | None, after: StageOps
) -> PassDiff:
    """Return the changes of a pass between two stages; `before` is None for the front end."""
    changes: tuple[OpChange, ...] = ()
    gone: tuple[tuple[str, int], ...] = ()
    layouts: tuple[str, ...] = ()
    known = bool(after.op_ids and (before is None or before.op_ids))
    if known and before is not None and compiler_pass.before != compiler_pass.after:
        changes = _Comparison(compiler_pass, before, after).changes()
        gone = _gone_lines(compiler_pass, after)
        layouts = _layouts_named(changes, before, after)
    return PassDiff(
        number=number,
        name=compiler_pass.name,
        before=compiler_pass.before,
        after=compiler_pass.after,
        time_ns=compiler_pass.time_ns,
        op_count=len(after.op_ids),
        changes=changes,
        gone_lines=gone,
        layouts=layouts,
        known=known,
        error=compiler_pass.error,
    )


def text_diff(before: StageOps, after: StageOps, context: int = 3) -> Iterator[str]:
    """Yield the lines of a unified diff of the texts; for very long texts, one line says so."""
    old, new = before.text_lines, after.text_lines
    if max(len(old), len(new)) > MAX_DIFF_LINES:
        yield f"[tkdebug: texts of more than {MAX_DIFF_LINES:,} lines are not compared]"
        return
    yield from difflib.unified_diff(old, new, before.name, after.name, lineterm="", n=context)


def _layouts_named(
    changes: Sequence[OpChange], before: StageOps, after: StageOps
) -> tuple[str, ...]:
    names = {name for change in changes for name in _LAYOUT_NAME.findall(change.detail)}
    definitions = dict.fromkeys((*_layout_definitions(after), *_layout_definitions(before)))
    return tuple(line for line in definitions if line.partition(" ")[0] in names)


def _layout_definitions(stage: StageOps) -> list[str]:
    """The lines at the top of a stage that give layouts their names."""
    return list(itertools.takewhile(lambda line: line.startswith("#"), stage.text_lines))


def _gone_lines(compiler_pass: CompilerPass, after: StageOps) -> tuple[tuple[str, int], ...]:
    erased = dict.fromkeys(place for r in compiler_pass.rewrites for place in r.erased)
    if not erased:
        return ()
    left = {place for op in after.facts.values() for place in op.places}
    return tuple(place for place in erased if place not in left)


class _Comparison:
    """Two stages and the rewrites between them."""

    def __init__(self, compiler_pass: CompilerPass, before: StageOps, after: StageOps) -> None:
        self.before, self.after = before, after
        self._old_ids, self._new_ids = set(before.op_ids), set(after.op_ids)
        self._became: dict[int, list[Rewrite]] = {}
        self._came_from: dict[int, list[Rewrite]] = {}
        for rewrite in compiler_pass.rewrites:
            for id_ in rewrite.old_op_ids:
                self._became.setdefault(id_, []).append(rewrite)
            for id_ in rewrite.new_op_ids:
                self._came_from.setdefault(id_, []).append(rewrite)

    def changes(self) -> tuple[OpChange, ...]:
        gone = list(self._gone())
        replaced_by = {id_ for change in gone for id_ in (op.id for op in change.new)}
        found = [*self._added(replaced_by), *gone]
        for id_ in self.after.op_ids:
            if id_ in self._old_ids:
                found += self._changes_in_place(id_)
        found += self._moved()
        touched = {change.old[0].id for change in found if change.old}
        found += self._rewired(touched)
        order = {kind: index for index, kind in enumerate(CHANGE_KINDS)}
        return tuple(sorted(found, key=lambda change: order[change.kind]))

    # Ops that came and went

    def _gone(self) -> Iterator[OpChange]:
        groups: dict[tuple[str, tuple[int, ...]], list[int]] = {}
        for id_ in self.before.op_ids:
            if id_ not in self._new_ids:
                rule, targets = self._successors(id_)
                groups.setdefault((rule, targets or (-id_,)), []).append(id_)
        for (rule, targets), ids in groups.items():
            old = tuple(_ref(self.before, id_) for id_ in ids)
            new = tuple(_ref(self.after, id_) for id_ in targets if id_ in self._new_ids)
            yield OpChange("replaced" if new else "removed", rule, old, new)

    def _successors(self, id_: int) -> tuple[str, tuple[int, ...]]:
        """Return the rule that removed an op, and the ops of the stage after that replace it."""
        rule = ""
        seen, pending = {id_}, [id_]
        found: list[int] = []
        while pending:
            current = pending.pop()
            for rewrite in self._became.get(current, ()):
                if current in rewrite.new_op_ids:
                    continue  # changed in place, and replaced only later
                rule = rule or rewrite.rule
                for new in rewrite.new_op_ids:
                    if new not in seen:
                        seen.add(new)
                        (found if new in self._new_ids else pending).append(new)
        return rule, tuple(sorted(found))

    def _added(self, replaced_by: set[int]) -> Iterator[OpChange]:
        for id_ in self.after.op_ids:
            if id_ not in self._old_ids and id_ not in replaced_by:
                rules = [rewrite.rule for rewrite in self._came_from.get(id_, ())]
                yield OpChange("added", rules[0] if rules else "", (), (_ref(self.after, id_),))

    # Ops that stayed

    def _changes_in_place(self, id_: int) -> Iterator[OpChange]:
        old, new = self.before.facts.get(id_), self.after.facts.get(id_)
        if old is None or new is None or old is new:
            return
        if old.name != new.name:
            yield self._in_place("replaced", id_, "")
        for name in dict.fromkeys((*old.attributes, *new.attributes)):
            values = (old.attributes.get(name), new.attributes.get(name))
            if values[0] != values[1]:
                yield self._in_place("attribute", id_, f"{name}: {_arrow(*values)}")
        types = (", ".join(old.types), ", ".join(new.types))
        if types[0] != types[1]:
            if _LAYOUT.sub("", types[0]) == _LAYOUT.sub("", types[1]):
                layouts = (", ".join(_LAYOUT_NAME.findall(text)) or None for text in types)
                yield self._in_place("layout", id_, _arrow(*layouts))
            else:
                yield self._in_place("type", id_, _arrow(*types))

    def _in_place(self, kind: ChangeKind, id_: int, detail: str) -> OpChange:
        rules = [r.rule for r in self._became.get(id_, ()) if id_ in r.new_op_ids]
        rule = rules[-1] if rules else ""
        return OpChange(kind, rule, (_ref(self.before, id_),), (_ref(self.after, id_),), detail)

    def _rewired(self, touched: set[int]) -> Iterator[OpChange]:
        for id_ in self.after.op_ids:
            if id_ in self._old_ids and id_ not in touched:
                if any(id_ in r.new_op_ids for r in self._became.get(id_, ())):
                    yield self._in_place("operands", id_, "")

    # Moves

    def _moved(self) -> Iterator[OpChange]:
        position = {id_: index for index, id_ in enumerate(self.before.op_ids)}
        blocks: dict[tuple[int | None, int], list[int]] = {}
        for id_ in self.after.op_ids:
            old, new = self.before.facts.get(id_), self.after.facts.get(id_)
            if id_ not in self._old_ids or old is None or new is None:
                continue
            if self._same_block(old, new):
                blocks.setdefault((new.parent, new.region), []).append(id_)
            else:
                yield self._in_place("moved", id_, self._way(old, new))
        for ids in blocks.values():
            kept = _longest_rising(ids, position)
            for id_ in ids:
                if id_ not in kept:
                    yield self._in_place("moved", id_, "within its block")

    def _same_block(self, old: OpFacts, new: OpFacts) -> bool:
        if old.parent == new.parent:
            return old.region == new.region
        # The op around it may have been replaced, with its body taken along.
        return (
            old.parent is not None
            and old.parent not in self._new_ids
            and new.parent in self._successors(old.parent)[1]
        )

    def _way(self, old: OpFacts, new: OpFacts) -> str:
        came = _ref(self.before, old.parent) if old.parent is not None else None
        goes = _ref(self.after, new.parent) if new.parent is not None else None
        inner = self.after.facts.get(old.parent) if old.parent is not None else None
        if came is not None and inner is not None and inner.parent == new.parent:
            return f"out of {came.name} #{came.id}"
        return f"into {goes.name} #{goes.id}" if goes is not None else ""


def _arrow(old: str | None, new: str | None) -> str:
    return f"{'none' if old is None else old} -> {'none' if new is None else new}"


def _ref(stage: StageOps, id_: int) -> OpRef:
    facts = stage.facts.get(id_)
    if facts is None:
        return OpRef(id_, "?", None)
    return OpRef(id_, facts.name, facts.places[0] if facts.places else None)


def _longest_rising(ids: Sequence[int], position: Mapping[int, int]) -> set[int]:
    """Return a longest subsequence of `ids` with rising positions: the ops that did not move."""
    tails: list[int] = []
    tail_ids: list[int] = []
    before: dict[int, int | None] = {}
    for id_ in ids:
        at = bisect_left(tails, position[id_])
        before[id_] = tail_ids[at - 1] if at else None
        tails[at:] = [position[id_], *tails[at + 1 :]]
        tail_ids[at:] = [id_, *tail_ids[at + 1 :]]
    kept: set[int] = set()
    last = tail_ids[-1] if tail_ids else None
    while last is not None:
        kept.add(last)
        last = before[last]
    return kept
