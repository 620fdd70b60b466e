"""Colours and marks. No meaning hangs on colour alone: each has a mark or a word of its own.

The hues are for a dark background. `ON_LIGHT` has them for a light one, `SAFE` those that readers
with any colour vision tell apart, from Okabe and Ito's set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.filter import LineFilter, Monochrome
from textual.theme import Theme

from tkdebug.records.events import Fault
from tkdebug.tui.drawing.highlight import Category

FAULT = "bold #ff8f85"
WARNING = "#f0e442"
GOOD = "#56b4e9"
RUNNING = "bold #7fd8be"
MUTED = "#8a94a3"
LABEL = "#9fb3c8"
STRONG = "bold"
ADDED = "#7fd8be"
REMOVED = "#ff8f85"
ADVICE = "#bda6ff"
VALUE = "#62cbd8"
# From little to much: luminance rises at each step.
HEAT = ("#5a4320", "#7d571f", "#a8752a", "#cf9440", "#f3bd68")
# Colours of kernels by their share, each with a fill of its own; all further ones have the last.
KERNELS = ("#3f8fd6", "#e08fbf", "#2aa37e", "#dda01a", "#58b3e6", "#7d8a99")
# Roles in pictures: the intended, the missing, the uninvolved, and the highlighted.
MEANT = "#2f6fae"
BAD = "#d9534a"
FRAME = "#3a4450"
INK = "#eef2f6"
KERNEL_FILLS = "█▓▆▄▂░"
# The hues on a light theme (`OnLight`).
ON_LIGHT: dict[str, str] = {
    "#ff8f85": "#b3261e",
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
_MOST_STYLES = 4096
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


# Vermilion for what is wrong, reddish purple for advice, orange for what is not there.
SAFE: dict[str, str] = {
    "#ff8f85": "#ff8c42",
    ADVICE: "#e58fc0",
    BAD: "#e69f00",
    KERNELS[0]: "#4a90d9",
    KERNELS[1]: "#e69f00",
    KERNELS[2]: "#35c39a",
    KERNELS[3]: "#f0e442",
    KERNELS[4]: "#cc79a7",
}


class Recoloured(LineFilter):
    """Replaces colours of the palette by others, and nothing else."""

    def __init__(self, colours: Mapping[str, str]) -> None:
        super().__init__()
        self._colours = colours
        self._styles: dict[Style, Style] = {}

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments in the other colours."""
        return [
            Segment(text, style if style is None else self._style(style), control)
            for text, style, control in segments
        ]

    def _style(self, style: Style) -> Style:
        found = self._styles.get(style)
        if found is None:
            if len(self._styles) > _MOST_STYLES:
                self._styles.clear()
            other = Style(color=self._color(style.color), bgcolor=self._color(style.bgcolor))
            found = self._styles[style] = style + other
        return found

    def _color(self, color: RichColor | None) -> str | None:
        if color is None:
            return None
        named = self._colours.get(color.name)
        return named if named or color.triplet is None else self._colours.get(color.triplet.hex)


class OnLight(Recoloured):
    """The palette on a light background."""

    def __init__(self) -> None:
        super().__init__(ON_LIGHT)


# By the name of the theme, in the order in which they are gone through.
THEMES: Mapping[str, str] = {
    "textual-dark": "dark",
    "textual-light": "light",
    "tkdebug-safe": "for any colour vision",
    "tkdebug-plain": "without colours",
}


def other_themes() -> Iterator[Theme]:
    """Yield the themes that Textual does not have."""
    yield Theme("tkdebug-safe", primary="#0072b2", warning="#e69f00", accent="#56b4e9")
    yield Theme("tkdebug-plain", primary="#8a8a8a", warning="#c8c8c8", accent="#e0e0e0")


def filters_of(theme: str, is_dark: bool) -> list[LineFilter]:
    """The filters of a theme."""
    if theme == "tkdebug-safe":
        return [Recoloured(SAFE)]
    if theme == "tkdebug-plain":
        return [Monochrome()]
    return [] if is_dark else [OnLight()]


def is_plain(app: App[object]) -> bool:
    """Whether an app is drawn without colours."""
    return app.no_color or app.theme == "tkdebug-plain"
