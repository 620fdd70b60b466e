"""The edits of a function in the order in which they are tried: common mistakes, undone.

Each rule has its share of the tries, however many edits it makes: a few that exchange axes come
before the hundreds that replace one name by another. Most of them do not compile, or fix nothing:
trying them is the caller's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

from tkdebug.causes.edits import Change, Edit
from tkdebug.causes.expression_edits import ExpressionEdits
from tkdebug.causes.kernel_text import KernelText, Kind, sliced_lines
from tkdebug.causes.statement_edits import StatementEdits
from tkdebug.compiler.frontend.source import KernelSource

# How often the mistake that a rule undoes is made, relative to others.
_WEIGHTS: Mapping[str, float] = {
    **{"axis": 3, "comparison": 3, "range": 3, "assignment": 4, "stale": 3, "rescale": 4},
    **{"operator": 3, "constant": 2, "operand": 3, "name": 6, "exchange": 3, "bound": 2},
    **{
        "mask": 3,
        "other": 3,
        "factor": 5,
        "term": 2,
        "where": 2,
        "function": 2,
        "type": 1,
        "number": 2,
    },
    **{"statement": 1, "offset": 3, "stride": 2, "index": 2},
}
# An edit after which nothing reads what was read is less likely, one that reads what nothing read
# is more so.
_LOSES, _USES = 3.0, 0.4
# How many places later an edit is tried whose rank is 1.
_UNLIKELY = 3.0
_NAME = re.compile(r"[^\W\d]\w*")


def edits_of(
    source: KernelSource,
    globals_: Mapping[str, object],
    kinds: Mapping[str, Kind],
    line: int | None = None,
    *,
    is_kernel: bool = True,
) -> list[Edit]:
    """Return the edits of a function, the likeliest first, each once.

    Args:
        source: the source of the function.
        globals_: its global names; those of numbers may be used.
        kinds: the kinds of its parameters and variables, if known.
        line: the line of a statement that edits should change something for; None for any.
        is_kernel: whether it is launched, or called by a function that is.
    """
    text = KernelText(source, globals_, kinds, is_kernel=is_kernel)
    lines = None if line is None else sliced_lines(text.body, line)
    found: dict[tuple[Change, ...], Edit] = {}
    for edit in chain(ExpressionEdits(text).edits(), StatementEdits(text).edits()):
        if lines is not None and edit.line not in lines:
            continue
        known = found.get(edit.changes)
        if known is None or (edit.rank, edit.rule) < (known.rank, known.rule):
            found[edit.changes] = edit
    return sorted(_in_turns(found.values(), text), key=lambda edit: edit.order)


def _in_turns(edits: Iterable[Edit], text: KernelText) -> Iterator[Edit]:
    """Give each edit its order: its place among the edits of its rule, by the rule's weight."""
    by_rule: dict[str, list[tuple[float, int, float, Edit]]] = {}
    for edit in edits:
        factor = _factor(edit, text)
        # Ranks are about how likely an edit is within its rule. Of two that are alike the later
        # one changes less of what the kernel computes.
        ranked = ((1 + edit.rank) * factor, -edit.line, factor, edit)
        by_rule.setdefault(edit.rule, []).append(ranked)
    for rule, known in by_rule.items():
        known.sort(key=lambda each: each[:2])
        for place, (_, _, factor, edit) in enumerate(known):
            turn = place + 1 + _UNLIKELY * edit.rank
            yield replace(edit, order=turn * max(factor, 1.0) / _WEIGHTS[rule])


def _factor(edit: Edit, text: KernelText) -> float:
    change: Counter[str] = Counter()
    for one in edit.changes:
        change.update(_NAME.findall(one.text))
        change.subtract(_NAME.findall(text.piece(one)))
    factor = 1.0
    for name, count in change.items():
        if name in text.kinds and count:
            before = text.uses[name]
            if before and before + count <= 0:
                factor *= _LOSES
            elif not before and count > 0:
                factor *= _USES
    return factor
