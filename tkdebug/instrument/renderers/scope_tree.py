"""Launches under the script's scopes as a tree of text: a scope has the times of all below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tkdebug.instrument.durations import format_ns
from tkdebug.instrument.records import ScopeSummary
from tkdebug.instrument.renderers.text_table import table_lines
from tkdebug.terminal.text import visible_line

MAX_LINES = 200


@dataclass(slots=True)
class _Branch:
    """A scope, or a kernel in it."""

    launches: int = 0
    finished: int = 0
    total_ns: int = 0
    below: dict[tuple[bool, str], _Branch] = field(default_factory=dict)

    def add(self, summary: ScopeSummary) -> None:
        """Count what ran here or below."""
        self.launches += summary.launches
        self.finished += summary.finished
        self.total_ns += summary.total_ns


def scope_lines(summaries: Sequence[ScopeSummary], width: int | None = None) -> Iterator[str]:
    """A line for each scope and for each kernel in it, in the order of coming up."""
    root = _Branch()
    for summary in summaries:
        branch = root
        for key in (*((False, name) for name in summary.scopes), (True, summary.kernel)):
            # A kernel and a scope may have one name.
            branch = branch.below.setdefault(key, _Branch())
            branch.add(summary)
    rows = [("scope", "launches", "total", "mean"), *_rows(root, 0)]
    left_out = len(rows) - 1 - MAX_LINES
    rows = rows[: MAX_LINES + 1]
    yield from table_lines(rows, width)
    if left_out > 0:
        yield f"… and {left_out:,} more"


def _rows(branch: _Branch, depth: int) -> Iterator[tuple[str, str, str, str]]:
    for (_, name), child in branch.below.items():
        total = mean = "-"
        if child.finished:
            total = format_ns(child.total_ns)
            mean = format_ns(child.total_ns / child.finished)
        yield "  " * depth + visible_line(name), f"{child.launches:,}", total, mean
        yield from _rows(child, depth + 1)
