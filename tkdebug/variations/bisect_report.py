"""The report of a bisection, as text and as JSON."""

from __future__ import annotations

import json
import linecache
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tkdebug.errors import Frame
from tkdebug.variations.bisection import Bisected, Culprit, DifferingValue, OpPlace, Rewrite

_SHOWN_OPS = 4
_HOW = {
    "value": "changes the result",
    "fault": "makes a fault",
    "failure": "leaves what cannot be run",
    "invalid": "leaves IR that is not valid",
    "error": "fails",
}


def bisect_text(found: Sequence[Bisected]) -> Iterator[str]:
    """Yield the pieces of a report for people."""
    for one in found:
        who = f"{one.launch.name} ({one.target}, launch {one.launch.number})"
        if one.culprit is not None:
            yield from _culprit_text(who, one.culprit)
        elif not one.note:
            yield f"{who}: {one.passes} passes, each leaves the result as it is\n"
        if one.note:
            what = "" if one.culprit is not None else f", {one.passes} passes looked at"
            yield f"{who}: {one.note}{what}\n"
        if one.below is not None:
            yield f"{who}: {one.below}\n"


def _culprit_text(who: str, culprit: Culprit) -> Iterator[str]:
    name = culprit.stage_name.replace(":", " after ", 1)
    yield f"{who}: {culprit.pass_name} {_HOW[culprit.how]} ({name}): {culprit.text}\n"
    rewrite, value = culprit.rewrite, culprit.value
    if rewrite is not None:
        yield f"  rewrite {rewrite.number} of {rewrite.of}, {rewrite.rule}: {_change(rewrite)}\n"
        yield from _quoted(_frame(rewrite.at))
        if rewrite.suspects:
            shown = [f"{place.name} at {_at(place)}" for place in rewrite.suspects[:_SHOWN_OPS]]
            yield f"  of its ops the first value that differs depends on {', '.join(shown)}\n"
    if value is not None:
        round_ = f", round {value.round}" if value.round else ""
        lane = f"[{', '.join(map(str, value.lane))}]" if value.lane else ""
        yield (
            f"  first value that differs: {value.at.name}{lane} in program {value.program}{round_}"
            f" at {_at(value.at)}: {value.got}, it was {value.expected}\n"
        )
        if rewrite is None or _frame(value.at) != _frame(rewrite.at):
            yield from _quoted(_frame(value.at))
    if culprit.how not in ("error", "invalid"):
        yield f"  look at it: tkdebug debug --stage {culprit.stage_name} …\n"


def _change(rewrite: Rewrite) -> str:
    old, new = _names(rewrite.old), _names(rewrite.new)
    if not new:
        what = f"{old or rewrite.at.name} is erased"
    elif not old:
        what = f"{new} is made"
    elif {place.id for place in rewrite.old} == {place.id for place in rewrite.new}:
        what = f"{new} is changed"
    else:
        lines = {_frame(place).line for place in rewrite.new}
        other = lines.isdisjoint({_frame(place).line for place in rewrite.old})
        what = f"{old} becomes {new}" + (f" of line {min(lines)}" if other else "")
    return f"{what}, at {_at(rewrite.at)}"


def _names(places: Sequence[OpPlace]) -> str:
    names = list(dict.fromkeys(place.name for place in places))
    more = f" and {len(names) - _SHOWN_OPS} more" if len(names) > _SHOWN_OPS else ""
    return ", ".join(names[:_SHOWN_OPS]) + more


def _frame(place: OpPlace) -> Frame:
    return place.frames[-1]


def _at(place: OpPlace) -> str:
    return f"{_frame(place).file}:{_frame(place).line}"


def _quoted(frame: Frame) -> Iterator[str]:
    text = linecache.getline(frame.file, frame.line).rstrip()
    if text:
        yield f"    {frame.line} | {text.strip()}\n"


def bisect_json(found: Sequence[Bisected]) -> Iterator[str]:
    """Yield the report as JSON, as docs/json.md describes it."""
    yield json.dumps({"schema": 1, "kernels": [_as_json(one) for one in found]}, indent=1) + "\n"


def _as_json(one: Bisected) -> Mapping[str, Any]:
    culprit = one.culprit
    return {
        "kernel": one.launch.name,
        "launch": one.launch.number,
        "target": one.target,
        "passes": one.passes,
        "culprit": None if culprit is None else _culprit_json(culprit),
        "below": one.below,
        "note": one.note,
    }


def _culprit_json(culprit: Culprit) -> Mapping[str, Any]:
    return {
        "stage": culprit.stage,
        "pass": culprit.pass_name,
        "run": culprit.run,
        "how": culprit.how,
        "text": culprit.text,
        "rewrite": None if culprit.rewrite is None else _rewrite_json(culprit.rewrite),
        "value": None if culprit.value is None else _value_json(culprit.value),
    }


def _rewrite_json(rewrite: Rewrite) -> Mapping[str, Any]:
    return {
        "number": rewrite.number,
        "of": rewrite.of,
        "rule": rewrite.rule,
        **_place_json(rewrite.at),
        "old": [_place_json(place) for place in rewrite.old],
        "new": [_place_json(place) for place in rewrite.new],
        "suspects": [_place_json(place) for place in rewrite.suspects],
    }


def _value_json(value: DifferingValue) -> Mapping[str, Any]:
    return {
        **_place_json(value.at),
        "program": value.program,
        "round": value.round,
        "lane": list(value.lane),
        "got": value.got,
        "expected": value.expected,
    }


def _place_json(place: OpPlace) -> Mapping[str, Any]:
    frame = _frame(place)
    return {"op": place.name, "op_id": place.id, "file": frame.file, "line": frame.line}
