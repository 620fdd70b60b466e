"""The report of `tkdebug diverge`, as text and as JSON."""

from __future__ import annotations

import json
import linecache
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tkdebug.variations.launches import KeptLaunch
from tkdebug.variations.ways import Classes, Found


@dataclass(frozen=True, slots=True)
class Diverged:
    """A launch, run in several ways.

    Attributes:
        found: the comparison of each way with the usual one.
        classes: the classes of a tuner's configurations; None without a tuner.
        note: why not all was looked at; "" where all was.
    """

    launch: KeptLaunch
    found: Sequence[Found]
    classes: Classes | None = None
    note: str = ""

    def differs(self, counts_bits: bool) -> bool:
        """Whether a way differs beyond arithmetic, or in a bit where each counts."""
        parted = () if self.classes is None else self.classes.parted
        if any(one.difference is not None for one in (*self.found, *parted)):
            return True
        is_parted = self.classes is not None and len(self.classes.names) > 1
        looked_at = [one for one in self.found if not one.refused]
        return counts_bits and (is_parted or any(not one.same_bits for one in looked_at))


def diverge_text(rows: Sequence[Diverged]) -> Iterator[str]:
    """Yield the pieces of a report for people."""
    for row in rows:
        yield f"{row.launch.name} (launch {row.launch.number})\n"
        for one in row.found:
            yield from _found_text(one)
        if row.classes is not None:
            yield from _classes_text(row.classes)
        if row.note:
            yield f"  {row.note}\n"


def _found_text(one: Found) -> Iterator[str]:
    if one.refused:
        yield f"  {one.way}: left out: {one.refused}\n"
    elif one.difference is None:
        same = "the same bits" if one.same_bits else "the same, but for rounding"
        more = f" ({one.note})" if one.note else ""
        yield f"  {one.way}: {same}{more}\n"
    else:
        yield f"  {one.way}: {one.difference.text}\n"
        yield from _place_text(one, "as it is")


def _place_text(one: Found, usual: str) -> Iterator[str]:
    if one.at:
        frame = one.at[-1]
        what = f"{one.variable} ({one.op})" if one.variable else one.op
        where = f"{frame.file}:{frame.line}"
        program = f" in program {one.program}" if one.program >= 0 else ""
        round_ = f", round {one.round}" if one.round is not None else ""
        values = f": {one.got}, {usual} {one.expected}" if one.got else ""
        first = "first value that differs" if one.got else "parts at"
        yield f"    {first}: {what} at {where}{program}{round_}{values}\n"
        text = linecache.getline(frame.file, frame.line).strip()
        if text:
            yield f"      {frame.line} | {text}\n"
    if one.note:
        yield f"    {one.note}\n"


def _classes_text(classes: Classes) -> Iterator[str]:
    count = sum(map(len, classes.names))
    if len(classes.names) == 1:
        yield f"  {count} configurations agree bit for bit\n"
    else:
        yield f"  {count} configurations, {len(classes.names)} classes of equal bits\n"
        for number, names in enumerate(classes.names, 1):
            for name in names:
                yield f"    {number}: {name}\n"
        for number, one in enumerate(classes.parted, 2):
            beyond = "beyond rounding" if one.difference is not None else "by rounding"
            yield f"  class {number} parts from class 1 {beyond}\n"
            if one.difference is not None:
                yield f"    {one.difference.text}\n"
            yield from _place_text(one, "with class 1")
    for one in classes.refused:
        yield f"  {one.way}: left out: {one.refused}\n"


def diverge_json(rows: Sequence[Diverged]) -> Iterator[str]:
    """Yield the report as JSON, as docs/json.md describes it."""
    yield json.dumps({"schema": 1, "launches": [_as_json(row) for row in rows]}, indent=1) + "\n"


def _as_json(row: Diverged) -> Mapping[str, Any]:
    classes = row.classes
    return {
        "kernel": row.launch.name,
        "launch": row.launch.number,
        "ways": [_found_json(one) for one in row.found],
        "classes": None if classes is None else [list(names) for names in classes.names],
        "parted": [] if classes is None else [_found_json(one) for one in classes.parted],
        "refused": [] if classes is None else [_found_json(one) for one in classes.refused],
        "note": row.note,
    }


def _found_json(one: Found) -> Mapping[str, Any]:
    frame = one.at[-1] if one.at else None
    found = one.difference
    return {
        "way": one.way,
        "same_bits": one.same_bits,
        "difference": None if found is None else found.text,
        "tensor": "" if found is None else found.tensor,
        "index": [] if found is None else list(found.index),
        "file": None if frame is None else frame.file,
        "line": None if frame is None else frame.line,
        "op": one.op,
        "variable": one.variable,
        "program": one.program if one.program >= 0 else None,
        "round": one.round,
        "got": one.got,
        "expected": one.expected,
        "note": one.note,
        "refused": one.refused,
    }
