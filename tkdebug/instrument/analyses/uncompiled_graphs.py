"""Graphs of torch.compile that ran without being compiled: in sessions, and in reports."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tkdebug.errors import Frame
from tkdebug.fault_printing.text import counted
from tkdebug.records.storage import stored

if TYPE_CHECKING:
    from tkdebug.instrument.session import Session
    from tkdebug.instrument.session_file.tables import Recorded

_PAGE = 1000


@stored("uncompiled_graphs")
@dataclass(frozen=True, slots=True)
class UncompiledGraph:
    """A graph of torch.compile, or a whole function, that runs as it was written.

    Attributes:
        reason: why it was not compiled.
        frames: the line of the model that it begins at; empty where none is known.
    """

    reason: str
    frames: tuple[Frame, ...]


def uncompiled_graphs(session: Session) -> Iterator[Recorded[UncompiledGraph]]:
    """Yield the graphs that ran uncompiled, in the order in which they were found."""
    since = 0
    while page := session.records(UncompiledGraph, since, limit=_PAGE):
        yield from page
        since = page[-1].seq


def uncompiled_count(session: Session) -> str:
    """Return `2 graphs ran uncompiled`, or "" where all were compiled."""
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
    """Yield a heading, and a line for each place and reason; nothing where all were compiled."""
    numbers = Counter(one.event for one in uncompiled_graphs(session))
    if not numbers:
        return
    yield "graphs of torch.compile that ran uncompiled"
    for graph, number in numbers.items():
        places = [f"{os.path.basename(each.file)}:{each.line}: " for each in graph.frames]
        times = f" ({number:,} times)" if number > 1 else ""
        yield f"  {''.join(places)}{graph.reason}{times}"
