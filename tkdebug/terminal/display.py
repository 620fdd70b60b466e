"""What a terminal can show: colours and bold type, how wide it is, and whether the TUI opens.

Invariant: what is no terminal gets plain text, unless FORCE_COLOR asks for colours; NO_COLOR and
TERM=dumb switch them off everywhere. Nothing of tkdebug is imported.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import TextIO


@dataclass(frozen=True, slots=True)
class Style:
    """How parts of a text are marked; without `is_on` they stay as they are."""

    is_on: bool = False

    def error(self, text: str) -> str:
        """What is wrong."""
        return self._marked("1;31", text)

    def warning(self, text: str) -> str:
        """What may be wrong."""
        return self._marked("1;33", text)

    def good(self, text: str) -> str:
        """What is as it should be."""
        return self._marked("32", text)

    def place(self, text: str) -> str:
        """A file and line."""
        return self._marked("1", text)

    def caret(self, text: str) -> str:
        """The mark below a source line."""
        return self._marked("1;32", text)

    def hint(self, text: str) -> str:
        """What to do about it."""
        return self._marked("36", text)

    def _marked(self, codes: str, text: str) -> str:
        return f"\x1b[{codes}m{text}\x1b[0m" if self.is_on and text else text


PLAIN = Style()


@dataclass(frozen=True, slots=True)
class View:
    """How text is shown: its colours, and the columns that tables must keep to, None for any."""

    style: Style = PLAIN
    width: int | None = None


PLAIN_VIEW = View()


def view_of(stream: TextIO | None) -> View:
    """How text is shown that goes to `stream`."""
    return View(style_of(stream), width_of(stream))


def style_of(stream: TextIO | None) -> Style:
    """The style for text that goes to `stream`."""
    if stream is None or os.environ.get("NO_COLOR"):
        return PLAIN
    if os.environ.get("FORCE_COLOR"):
        return Style(is_on=True)
    return Style(is_on=os.environ.get("TERM") != "dumb" and _is_terminal(stream))


def width_of(stream: TextIO | None) -> int | None:
    """How many columns `stream` shows, None where it is no terminal and lines may be of any length.

    COLUMNS goes first, as it does for other programs.
    """
    if stream is None or not _is_terminal(stream):
        return None
    return shutil.get_terminal_size().columns


def cut(text: str, width: int | None) -> str:
    """`text`, one line, cut to `width` columns with an ellipsis at its end."""
    if width is None or len(text) <= width:
        return text
    return text[: max(width - 1, 0)] + "…"


def fitted(text: str, rest: str, width: int | None) -> str:
    """`text` and `rest` in one line of `width` columns, of which `rest` stays whole."""
    return cut(text, None if width is None else max(width - len(rest), 20)) + rest


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def has_terminal() -> bool:
    """Whether stdin, stdout and stderr are a terminal that can move its cursor."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    if os.environ.get("TERM") == "dumb":
        return False
    return all(stream is not None and stream.isatty() for stream in streams)


def has_textual() -> bool:
    """Whether the TUI's library is installed."""
    from importlib.util import find_spec

    return find_spec("textual") is not None


def opens_tui_by_default() -> bool:
    """In a terminal, with the library there, and on a system with ptys."""
    return os.name == "posix" and not os.environ.get("CI") and has_terminal() and has_textual()
