"""The palette on a light theme: its hues, made for dark ones, darkened as they are drawn."""

from __future__ import annotations

from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

from tkdebug.tui.drawing.palette import ON_LIGHT


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
    color = style.color
    darker = ON_LIGHT.get(color.name) if color is not None else None
    if darker is None and color is not None and color.triplet is not None:
        darker = ON_LIGHT.get(color.triplet.hex)
    return style if darker is None else style + Style(color=darker)
