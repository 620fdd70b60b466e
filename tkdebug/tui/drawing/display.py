"""Untrusted text, times and counts, made fit for the screen.

Invariant: a result of `shown` is one line of bounded length without control characters, so that no
name, path or message moves the cursor, reorders the line or starts an escape sequence.
"""

from __future__ import annotations

import ntpath
import posixpath
import re

from tkdebug.errors import Frame
from tkdebug.instrument.text_forms import format_ns
from tkdebug.terminal.text import UNSAFE_CLASS

MAX_SHOWN_CHARS = 500

_UNSAFE = re.compile(rf"[\t\n{UNSAFE_CLASS}]")
_BLANKS = re.compile(r"[\t\n\r]")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def shown(text: str, limit: int = MAX_SHOWN_CHARS) -> str:
    """`text` as one harmless line of at most `limit` characters."""
    if len(text) > limit:
        text = text[: max(0, limit - 1)] + "…"
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(_REPLACEMENT, _BLANKS.sub(" ", text))


def shown_code(text: str, limit: int) -> str:
    """One line of code, its tabs as four columns."""
    return shown(text[:limit].expandtabs(4), limit)


def without_controls(text: str) -> str:
    """Return `text` with the characters replaced that `shown` replaces; its length stays."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(_REPLACEMENT, text)


def duration(time_ns: float) -> str:
    """A duration as the reports write it, "-" if it is not known."""
    return "-" if time_ns < 0 else format_ns(time_ns)


def count(number: int) -> str:
    """A count with thousands separated."""
    return f"{number:,}"


def grid(size: tuple[int, int, int]) -> str:
    """Return a launch grid without trailing ones."""
    x, y, z = size
    if z != 1:
        return f"{x} x {y} x {z}"
    return f"{x} x {y}" if y != 1 else str(x)


def file_name(path: str) -> str:
    """The last part of a path of any system."""
    return shown(posixpath.basename(ntpath.basename(path)) or path, 60)


def place(frame: Frame, limit: int = 70) -> str:
    """Return `file:line` with the file's name only, cut from its front to `limit` characters."""
    line = f":{frame.line}"
    return shown(file_name(frame.file), max(1, limit - len(line))) + line
