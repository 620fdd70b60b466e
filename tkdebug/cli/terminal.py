"""What the terminal allows: whether there is one, and whether the TUI opens by default."""

from __future__ import annotations

import os
import sys


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
