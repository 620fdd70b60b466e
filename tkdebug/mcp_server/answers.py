"""Answers of tools: their parts, and pages of them that keep a bound."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tkdebug.errors import ErrorRecord, UsageError

USUAL_BYTES = 4096
LEAST_BYTES, MOST_BYTES = 1024, 65536
_MOST_CURSORS = 64
_LEAST_ROOM = 64
# Tried in turn: how long texts and lists may be in an item that is too long.
_CLIPS = ((1200, 40), (400, 12), (120, 6), (40, 3), (16, 1))

Basis = Literal["measured", "predicted", "interpreted", "compiled", "documented"]
Item = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a tool.

    Attributes:
        obtained: the source of its facts: `measured` on a GPU, `predicted` by the cost model,
            `interpreted` on the CPU, `compiled`: read from the compiler's result.
        replay: a command that shows the same.
        evidence: the recorded run, script, launch or place that it is read from.
        facts: the facts of the answer as a whole.
        items: the details, most important first.
    """

    obtained: Basis
    replay: str
    evidence: Item
    facts: Item = field(default_factory=dict)
    items: Sequence[Item] = ()


class Pages:
    """Cuts answers into pages, and keeps what a client has not read."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, Answer] = OrderedDict()
        self._number = 0

    def page(self, answer: Answer, most_bytes: int) -> str:
        """Return the first page of an answer, as JSON, with a cursor for the rest."""
        head = _head(answer, most_bytes // 2)
        # The rest is for the cursor, the number of items, and commas.
        room = most_bytes - len(_text(head)) - 120
        shown: list[Item] = []
        for item in answer.items:
            fitting = item if len(_text(item)) <= room else clipped(item, room)
            if shown and fitting is not item:
                break
            shown.append(fitting)
            room -= len(_text(fitting)) + 1
            if room < _LEAST_ROOM:
                break
        left = len(answer.items) - len(shown)
        page = {**head, "items": shown, "left": left}
        if left:
            page["cursor"] = self._keep(replace(answer, facts={}, items=answer.items[-left:]))
        return _text(page)

    def rest(self, cursor: str) -> Answer:
        """Return the part of an answer that was not read; it can be asked for again.

        Raises:
            UsageError: no page had that cursor, or too many others came since.
        """
        if cursor not in self._left:
            raise UsageError(
                f"cursor: got {cursor[:40]!r}, expected one of an answer of this server, "
                f"of the last {_MOST_CURSORS}; ask the tool again"
            )
        return self._left[cursor]

    def _keep(self, rest: Answer) -> str:
        self._number += 1
        cursor = f"page-{self._number}"
        self._left[cursor] = rest
        if len(self._left) > _MOST_CURSORS:
            self._left.popitem(last=False)
        return cursor


def _head(answer: Answer, most_bytes: int) -> Item:
    """Return an answer's parts but its items, cut to fit; `obtained` and `replay` are cut last."""
    known: Item = {"obtained": answer.obtained, "replay": answer.replay}
    rest: Item = {"evidence": answer.evidence, **answer.facts}
    if len(_text({**known, **rest})) <= most_bytes:
        return {**known, **rest}
    known = clipped(known, most_bytes * 2 // 3)
    if "obtained" not in known:
        known = {"obtained": answer.obtained, "clipped": True}
    return {**known, **clipped(rest, most_bytes - len(_text(known)))}


def error_page(record: ErrorRecord) -> str:
    """Return an error as the JSON of an answer."""
    parts = {name: getattr(record, name) for name in record.__slots__}
    return _text({"error": clipped(parts, LEAST_BYTES - 16)})


def clipped(item: Item, most_bytes: int) -> dict[str, object]:
    """Return an item that fits into `most_bytes`, its texts and lists cut if need be.

    A cut item has `clipped`: true. If no cut makes it fit, it has only `clipped` and `start`.
    """
    if len(_text(item)) <= most_bytes:
        return dict(item)
    for chars, length in _CLIPS:
        cut = {str(key)[:80]: _cut(value, chars, length) for key, value in item.items()}
        cut["clipped"] = True
        if len(_text(cut)) <= most_bytes:
            return cut
    return {"clipped": True, "start": _text(item)[: most_bytes // 4]}


def _cut(value: object, chars: int, length: int) -> object:
    if isinstance(value, str):
        return value if len(value) <= chars else f"{value[:chars]}…"
    if isinstance(value, Mapping):
        kept = list(value.items())[:length]
        return {str(key)[:80]: _cut(each, chars, length) for key, each in kept}
    if isinstance(value, (list, tuple)):
        return [_cut(each, chars, length) for each in value[:length]]
    return value


def _text(value: object) -> str:
    """Return JSON of ASCII, whose characters are its bytes."""
    return json.dumps(value, default=str)
