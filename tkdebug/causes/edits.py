"""Edits of a function's source, as text in place of pieces of it.

Knows neither which edits are worth trying, nor launches.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from tkdebug.compiler.frontend.source import KernelSource

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Change:
    """Text in place of a piece of the source.

    Attributes:
        start: line of the file, counted from 1, and byte of the line.
        end: the end in the same form, exclusive.
        text: the new text.
    """

    start: Place
    end: Place
    text: str


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit of one function.

    Attributes:
        rule: name of the rule that made it.
        line: the first line of the edit in the file.
        changes: pieces that do not overlap, in any order.
        rank: the order among edits of one rule: a lower rank is likelier.
        order: lower ones are tried first, whatever their rules.
    """

    rule: str
    line: int
    changes: tuple[Change, ...]
    rank: float = 0.0
    order: float = 0.0

    @property
    def makes_atomic(self) -> bool:
        """Whether the stored value is the work of several programs."""
        return any(".atomic_" in change.text for change in self.changes)

    def apply(self, source: KernelSource) -> KernelSource:
        """Return the edited source.

        Raises:
            SyntaxError: the edited source does not parse.
        """
        return source.with_lines(self.lines(source))

    def lines(self, source: KernelSource) -> list[str]:
        """Return the edited lines; there may be fewer or more than before."""
        lines = [line.encode() for line in source.lines]
        for change in sorted(self.changes, key=lambda change: change.start, reverse=True):
            first, last = change.start[0] - source.first_line, change.end[0] - source.first_line
            joined = lines[first][: change.start[1]] + change.text.encode()
            joined += lines[last][change.end[1] :]
            lines[first : last + 1] = joined.split(b"\n") if joined.strip() else []
        return [line.decode() for line in lines]

    def plain(self, source: KernelSource) -> Edit:
        """Return the edit without parentheses that change nothing."""
        bare = tuple(
            replace(c, text=c.text[1:-1]) if c.text.startswith("(") and c.text.endswith(")") else c
            for c in self.changes
        )
        edit = replace(self, changes=bare)
        try:
            ours, its = (ast.dump(one.apply(source).definition) for one in (self, edit))
        except SyntaxError:
            return self
        return edit if ours == its else self

    def diff(self, source: KernelSource) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the removed and the added lines, stripped of their common indent."""
        old, new = list(source.lines), self.lines(source)
        while old and new and old[0] == new[0]:
            del old[0], new[0]
        while old and new and old[-1] == new[-1]:
            del old[-1], new[-1]
        return tuple(line.strip() for line in old), tuple(line.strip() for line in new)
