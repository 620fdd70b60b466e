"""Colours and marks. No meaning hangs on colour alone: each has a mark or a word of its own.

Hues are from Okabe and Ito's set, which stays apart for colour-blind readers, lightened for a dark
background.
"""

from __future__ import annotations

from rich.style import Style

from tkdebug.tui.highlight import Category

FAULT = "bold #ff8c42"
WARNING = "#f0e442"
GOOD = "#56b4e9"
RUNNING = "bold #7fd8be"
MUTED = "#8a94a3"
LABEL = "#9fb3c8"
STRONG = "bold"
ADDED = "#7fd8be"
REMOVED = "#ff8c42"

MARKS: dict[str, tuple[str, str]] = {
    "fault": ("✖", FAULT),
    "warning": ("▲", WARNING),
    "call": ("↳", WARNING),
}

CODE_STYLES: dict[Category, Style] = {
    "keyword": Style(color="#cc79d7", bold=True),
    "string": Style(color="#a3be8c"),
    "number": Style(color="#e6a15c"),
    "comment": Style(color="#7b8794", italic=True),
    "name": Style(color="#56b4e9", bold=True),
    "builtin": Style(color="#7cc4e8"),
    "decorator": Style(color="#f0e442"),
    "type": Style(color="#7fd8be"),
    "value": Style(color="#d8dee9"),
}
