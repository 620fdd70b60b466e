"""The lines of a model that kernels of torch.compile compute: in sessions, and in reports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tkdebug.errors import Frame
from tkdebug.instrument.durations import format_ns
from tkdebug.records.storage import stored
from tkdebug.terminal.display import cut
from tkdebug.terminal.text import visible_line

if TYPE_CHECKING:
    from tkdebug.instrument.session import Session

_PAGE = 1000
_MOST_SHOWN = 30
_MOST_CHARS = 200


@stored("model_lines")
@dataclass(frozen=True, slots=True)
class ModelLines:
    """What a kernel that Inductor wrote computes.

    Attributes:
        kernel: its name.
        ops: of the graph, by their names.
        frames: for each of them the line of the model.
    """

    kernel: str
    ops: tuple[str, ...]
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class ModelTime:
    """The time of all launches of such a kernel."""

    lines: ModelLines
    total_ns: int


def model_times(session: Session) -> list[ModelTime]:
    """The kernels whose lines are known, the longest in total first."""
    found: dict[str, ModelLines] = {}
    since = 0
    while page := session.records(ModelLines, since, limit=_PAGE):
        found.update((one.event.kernel, one.event) for one in page)
        since = page[-1].seq
    if not found:
        return []
    totals = {summary.kernel: summary.total_ns for summary in session.kernel_summaries()}
    times = [ModelTime(lines, totals[name]) for name, lines in found.items() if name in totals]
    return sorted(times, key=lambda one: -one.total_ns)


def model_data(session: Session) -> Iterator[dict[str, object]]:
    """The same as JSON has it."""
    for one in model_times(session):
        lines = [
            {"file": frame.file, "line": frame.line, "function": frame.function, "op": op}
            for op, frame in zip(one.lines.ops, one.lines.frames, strict=True)
        ]
        yield {"kernel": one.lines.kernel, "total_ns": one.total_ns, "lines": lines}


def model_text(session: Session) -> Iterator[str]:
    """The kernels with their lines; nothing where there are none."""
    times = model_times(session)
    if not times:
        return
    yield "lines of the model that these compute"
    for one in times[:_MOST_SHOWN]:
        yield f"  {format_ns(one.total_ns)} in {visible_line(one.lines.kernel)}"
        yield f"    {_lines(one.lines)}"
    if len(times) > _MOST_SHOWN:
        yield f"… and {len(times) - _MOST_SHOWN:,} more"


def _lines(lines: ModelLines) -> str:
    """`model.py:8 (aten.relu, aten.add), model.py:9 (aten.mul)`."""
    by_place: dict[str, list[str]] = {}
    for op, frame in zip(lines.ops, lines.frames, strict=True):
        by_place.setdefault(f"{os.path.basename(frame.file)}:{frame.line}", []).append(op)
    shown = ", ".join(f"{place} ({', '.join(ops)})" for place, ops in by_place.items())
    return cut(visible_line(shown), _MOST_CHARS)
