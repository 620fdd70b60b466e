"""Colours and marks. No meaning hangs on colour alone: each has a mark or a word of its own.

Hues are from Okabe and Ito's set, which stays apart for colour-blind readers, lightened for a dark
background.
"""

from __future__ import annotations

from functools import lru_cache

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

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
ADVICE = "#bda6ff"
VALUE = "#62cbd8"
# From little to much: luminance rises at each step.
HEAT = ("#5a4320", "#7d571f", "#a8752a", "#cf9440", "#f3bd68")
# Of kernels in order of their share, each with a fill of its own; all further ones have the last.
KERNELS = ("#3f8fd6", "#e08fbf", "#2aa37e", "#dda01a", "#58b3e6", "#7d8a99")
# In pictures: what was meant, what is not there, what takes no part, and what points out.
MEANT = "#2f6fae"
BAD = "#d9534a"
FRAME = "#3a4450"
INK = "#eef2f6"
KERNEL_FILLS = "█▓▆▄▂░"
# The hues on a light theme (`OnLight`).
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
    ADVICE: "#6136b8",
    VALUE: "#00626f",
    MEANT: "#7fb2e5",
    BAD: "#d9453a",
    FRAME: "#d3dae2",
    INK: "#12181f",
    **dict(zip(HEAT, ("#f5d79a", "#f0b95c", "#e08f30", "#c9631a", "#a8480a"), strict=True)),
    **dict(
        zip(
            KERNELS,
            ("#1f6fb5", "#b8558f", "#0a7d5c", "#9a6c00", "#0f7fb8", "#6b7784"),
            strict=True,
        )
    ),
}
MARKS: dict[str, tuple[str, str]] = {
    "fault": ("✖", FAULT),
    "warning": ("▲", WARNING),
    "call": ("↳", WARNING),
    "breakpoint": ("●", FAULT),
    "disabled": ("○", MUTED),
    # For faults that do not count.
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


class OnLight(LineFilter):
    """Replaces the colours of the palette, and nothing else."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments in colours that can be read on a light background."""
        return [
            Segment(text, style if style is None else _darkened(style), control)
            for text, style, control in segments
        ]


@lru_cache(2048)
def _darkened(style: Style) -> Style:
    darker = Style(color=_on_light(style.color), bgcolor=_on_light(style.bgcolor))
    return style + darker


def _on_light(color: RichColor | None) -> str | None:
    if color is None:
        return None
    named = ON_LIGHT.get(color.name)
    return named if named or color.triplet is None else ON_LIGHT.get(color.triplet.hex)
