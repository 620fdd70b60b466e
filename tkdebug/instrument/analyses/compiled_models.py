"""Models under torch.compile, in sessions and in reports.

Responsible for the lines of a model that Inductor's kernels compute, and for the graphs that ran
without being compiled.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tkdebug.errors import Frame
from tkdebug.fault_printing.text import counted
from tkdebug.instrument.text_forms import format_ns
from tkdebug.records.storage import stored
from tkdebug.terminal.display import cut
from tkdebug.terminal.text import visible_line

if TYPE_CHECKING:
    from tkdebug.instrument.session import Session
    from tkdebug.instrument.session_file.tables import Recorded

_PAGE = 1000
_MOST_SHOWN = 30
_MOST_CHARS = 200
_GRAPHS_PAGE = 1000


@stored("model_lines")
@dataclass(frozen=True, slots=True)
class ModelLines:
    """The lines of a model that a kernel of Inductor's computes.

    Attributes:
        kernel: the kernel's name.
        ops: the graph's ops, by their names.
        frames: for each op the line of the model.
    """

    kernel: str
    ops: tuple[str, ...]
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class ModelTime:
    """The time of all launches of a kernel of Inductor's, with the lines that it computes."""

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
    """Yield the kernels with their lines and times, as JSON has them."""
    for one in model_times(session):
        lines = [
            {"file": frame.file, "line": frame.line, "function": frame.function, "op": op}
            for op, frame in zip(one.lines.ops, one.lines.frames, strict=True)
        ]
        yield {"kernel": one.lines.kernel, "total_ns": one.total_ns, "lines": lines}


def model_text(session: Session) -> Iterator[str]:
    """The kernels with their lines; nothing if there are none."""
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


@stored("uncompiled_graphs")
@dataclass(frozen=True, slots=True)
class UncompiledGraph:
    """A graph of torch.compile, or a whole function, that runs as it was written.

    Attributes:
        reason: why it was not compiled.
        frames: the line of the model at which it begins; empty if none is known.
    """

    reason: str
    frames: tuple[Frame, ...]


def uncompiled_graphs(session: Session) -> Iterator[Recorded[UncompiledGraph]]:
    """Yield the graphs that ran uncompiled, in the order in which they were found."""
    since = 0
    while page := session.records(UncompiledGraph, since, limit=_GRAPHS_PAGE):
        yield from page
        since = page[-1].seq


def uncompiled_count(session: Session) -> str:
    """Return `2 graphs ran uncompiled`, or "" if all were compiled."""
    number = sum(1 for _ in uncompiled_graphs(session))
    return f"{counted(number, 'graph')} ran uncompiled" if number else ""


def uncompiled_data(session: Session) -> Iterator[dict[str, object]]:
    """Yield the graphs as JSON has them."""
    for one in uncompiled_graphs(session):
        frame = one.event.frames[0] if one.event.frames else None
        yield {
            "file": None if frame is None else frame.file,
            "line": None if frame is None else frame.line,
            "function": None if frame is None else frame.function,
            "reason": one.event.reason,
            "process": one.process,
            "rank": one.rank,
        }


def uncompiled_text(session: Session) -> Iterator[str]:
    """Yield a heading, and a line for each place and reason; nothing if all were compiled."""
    numbers = Counter(one.event for one in uncompiled_graphs(session))
    if not numbers:
        return
    yield "graphs of torch.compile that ran uncompiled"
    for graph, number in numbers.items():
        places = [f"{os.path.basename(each.file)}:{each.line}: " for each in graph.frames]
        times = f" ({number:,} times)" if number > 1 else ""
        yield f"  {''.join(places)}{graph.reason}{times}"
