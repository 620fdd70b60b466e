"""Lines of text as lists show them: code with its colours, and rows in one style."""

from __future__ import annotations

from dataclasses import dataclass

from tkdebug.instrument.passes.kernel_passes import Place
from tkdebug.tui.drawing.highlight import Spans

MAX_LINES = 200_000


@dataclass(frozen=True, slots=True)
class Code:
    """Lines of text, the number of the first, and the colours of each."""

    lines: tuple[str, ...] = ()
    first_line: int = 1
    spans: tuple[Spans, ...] = ()

    def index(self, line: int) -> int | None:
        """Return the index in `lines` of the line of that number, or None if it is not there."""
        index = line - self.first_line
        return index if 0 <= index < len(self.lines) else None


@dataclass(frozen=True, slots=True)
class TextRow:
    """One row: text that may be harmful, its style, and the source line that it leads to."""

    text: str
    style: str = ""
    place: Place | None = None


def lines_of(text: str) -> tuple[str, ...]:
    """The lines of a source or a stage; of a very long one the first."""
    # Not splitlines: a form feed or U+2028 ends no line where lines are counted.
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n", MAX_LINES)
    if len(lines) > MAX_LINES:
        lines[-1] = f"[tkdebug: further lines than {MAX_LINES:,} are not shown]"
    elif lines and not lines[-1]:
        lines.pop()
    return tuple(lines)
