"""Properties of a terminal: colours and bold type, its width, and whether the TUI opens.

Invariant: a stream that is no terminal gets plain text, unless FORCE_COLOR asks for colours;
NO_COLOR and TERM=dumb switch them off everywhere. Nothing of tkdebug is imported.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import TextIO


@dataclass(frozen=True, slots=True)
class Style:
    """Colours for parts of a text; without `is_on` the parts stay unchanged."""

    is_on: bool = False

    def error(self, text: str) -> str:
        """Mark an error."""
        return self._marked("1;31", text)

    def warning(self, text: str) -> str:
        """Mark a warning."""
        return self._marked("1;33", text)

    def good(self, text: str) -> str:
        """Mark a success."""
        return self._marked("32", text)

    def place(self, text: str) -> str:
        """Mark a file and line."""
        return self._marked("1", text)

    def caret(self, text: str) -> str:
        """Mark the caret below a source line."""
        return self._marked("1;32", text)

    def hint(self, text: str) -> str:
        """Mark a hint."""
        return self._marked("36", text)

    def _marked(self, codes: str, text: str) -> str:
        return f"\x1b[{codes}m{text}\x1b[0m" if self.is_on and text else text


PLAIN = Style()


@dataclass(frozen=True, slots=True)
class View:
    """The look of a text: its colours, and the columns that tables must keep to, None for any."""

    style: Style = PLAIN
    width: int | None = None


PLAIN_VIEW = View()


def view_of(stream: TextIO | None) -> View:
    """Return the look of text that goes to `stream`."""
    return View(style_of(stream), width_of(stream))


def style_of(stream: TextIO | None) -> Style:
    """The style for text that goes to `stream`."""
    if stream is None or os.environ.get("NO_COLOR"):
        return PLAIN
    if os.environ.get("FORCE_COLOR"):
        return Style(is_on=True)
    return Style(is_on=os.environ.get("TERM") != "dumb" and _is_terminal(stream))


def width_of(stream: TextIO | None) -> int | None:
    """Return the columns that `stream` shows, or None if it is no terminal and lines may be long.

    COLUMNS goes first, as it does for other programs.
    """
    if stream is None or not _is_terminal(stream):
        return None
    return shutil.get_terminal_size().columns


def cut(text: str, width: int | None) -> str:
    """Return `text`, one line, cut to `width` columns with an ellipsis at its end."""
    if width is None or len(text) <= width:
        return text
    return text[: max(width - 1, 0)] + "…"


def fitted(text: str, rest: str, width: int | None) -> str:
    """Return `text`, cut to fit before `rest` in `width` columns but not below 20, and `rest`."""
    return cut(text, None if width is None else max(width - len(rest), 20)) + rest


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def has_terminal() -> bool:
    """Whether stdin, stdout and stderr are all a UTF-8 terminal that can move its cursor."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    if os.environ.get("TERM") == "dumb":
        return False
    return all(
        stream is not None and stream.isatty() and _is_utf8(stream.encoding) for stream in streams
    )


def _is_utf8(encoding: str) -> bool:
    return encoding.lower().replace("_", "-") in ("utf-8", "utf8")


def has_textual() -> bool:
    """Whether the TUI's library is installed."""
    from importlib.util import find_spec

    return find_spec("textual") is not None


def opens_tui_by_default() -> bool:
    """Whether the TUI opens: in a terminal, with its library, on a system with ptys."""
    return os.name == "posix" and not os.environ.get("CI") and has_terminal() and has_textual()
