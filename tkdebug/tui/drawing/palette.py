"""Colours and marks. No meaning hangs on colour alone: each has a mark or a word of its own.

Hues are from Okabe and Ito's set, which stays apart for colour-blind readers, lightened for a dark
background.
"""

from __future__ import annotations

from rich.style import Style

from tkdebug.records.events import Fault
from tkdebug.tui.drawing.highlight import Category

FAULT = "bold #ff8c42"
WARNING = "#f0e442"
GOOD = "#56b4e9"
RUNNING = "bold #7fd8be"
MUTED = "#8a94a3"
LABEL = "#9fb3c8"
STRONG = "bold"
ADDED = "#7fd8be"
REMOVED = "#ff8c42"

# What the hues here become on a light theme (`on_light`).
ON_LIGHT: dict[str, str] = {
    "#ff8c42": "#b34700",
    "#f0e442": "#7d6400",
    "#56b4e9": "#005f9e",
    "#7fd8be": "#00664d",
    "#8a94a3": "#5b6470",
    "#9fb3c8": "#42566b",
    "#cc79d7": "#8a2f97",
    "#a3be8c": "#3d6b1f",
    "#e6a15c": "#94510a",
    "#7b8794": "#5b6470",
    "#7cc4e8": "#0a5f8a",
    "#d8dee9": "#2b3340",
    "#6f7b8a": "#5b6470",
}

MARKS: dict[str, tuple[str, str]] = {
    "fault": ("✖", FAULT),
    "warning": ("▲", WARNING),
    "call": ("↳", WARNING),
    "breakpoint": ("●", FAULT),
    "disabled": ("○", MUTED),
    # Of those that do not count.
    "ignored": ("◦", MUTED),
    "known": ("◦", MUTED),
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


def mark_of(fault: Fault) -> tuple[str, str]:
    """The mark of a fault, and its colour."""
    if not fault.is_open:
        return MARKS.get(fault.state, MARKS["known"])
    return MARKS["fault" if fault.severity == "error" else "warning"]
