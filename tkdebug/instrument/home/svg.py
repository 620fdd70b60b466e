"""Pictures as SVG that stands alone: in notebooks, in files, wherever no page colours it.

A role is a class; colours come from custom properties with a fallback each, so that a page may say
others. Every text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from tkdebug.instrument.durations import format_ns
from tkdebug.instrument.home.pictures import SERIES, Box, Dot, Line, Mark, Picture, Role, Text
from tkdebug.instrument.home.records import TimeStrip
from tkdebug.terminal.text import visible

_INK, _MUTED, _GROUND = "var(--tkd-fg, #1a2028)", "var(--tkd-mut, #57626f)", "var(--tkd-bg, #fff)"
_BAD, _BLUE = "var(--tkd-bad, #c8372d)", "var(--tkd-acc, #0b5cad)"
_FILLS: dict[Role, str] = {
    "frame": f'fill="{_GROUND}" stroke="{_MUTED}"',
    "bad": f'fill="{_BAD}"',
    "meant": f'fill="{_BLUE}"',
    "good": 'fill="#3f9a5a"',
    "off": 'fill="var(--tkd-off, #dfe4ea)"',
    "ink": f'fill="{_INK}"',
    "grid": 'fill="var(--tkd-line, #e1e5ea)"',
}
_STROKES: dict[Role, str] = {
    "frame": _INK,
    "bad": _BAD,
    "meant": _BLUE,
    "good": "#3f9a5a",
    "off": _MUTED,
    "ink": _INK,
    "grid": "var(--tkd-line, #e1e5ea)",
}
# Of kernels, in order of their share; all further ones, and others' kernels, are grey.
KERNEL_COLOURS = ("#1f6fb5", "#e08fbf", "#0a7d5c", "#dda01a", "#58b3e6")
_GREY = "#9aa4af"
_SERIES = dict(zip(SERIES, (*KERNEL_COLOURS, _GREY), strict=True))
_FILLS |= {role: f'fill="{colour}"' for role, colour in _SERIES.items()}
_STROKES |= _SERIES
_FONT = 'font-family="system-ui, sans-serif" font-size="10"'


def to_svg(picture: Picture) -> str:
    """Return a picture as an SVG element."""
    width, height = _number(picture.width), _number(picture.height)
    marks = "".join(map(_mark, picture.marks))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="{_text(picture.label)}" {_FONT}>'
        f"{marks}</svg>"
    )


def _mark(mark: Mark) -> str:
    match mark:
        case Box(role=role, outline=True):
            style = f'fill="none" stroke="{_STROKES[role]}" stroke-width="1.5"'
            return f"<rect {_place(mark)} {style}>{_title(mark.title)}</rect>"
        case Box(role=role, weight=weight):
            opacity = "" if weight == 1 else f' opacity="{_number(weight)}"'
            return f"<rect {_place(mark)} {_FILLS[role]}{opacity}>{_title(mark.title)}</rect>"
        case Line(role=role, points=points, dashed=dashed):
            at = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
            dash = ' stroke-dasharray="3 2"' if dashed else ""
            return f'<polyline points="{at}" fill="none" stroke="{_STROKES[role]}"{dash}/>'
        case Dot(role=role, x=x, y=y, radius=radius, title=title):
            at = f'cx="{_number(x)}" cy="{_number(y)}" r="{_number(radius)}"'
            return f"<circle {at} {_FILLS[role]}>{_title(title)}</circle>"
        case Text(role=role, x=x, y=y, text=text, anchor=anchor):
            fill = _BAD if role == "bad" else _MUTED
            at = f'x="{_number(x)}" y="{_number(y)}" text-anchor="{anchor}"'
            return f'<text {at} fill="{fill}">{_text(text)}</text>'


def _place(box: Box) -> str:
    parts = ("x", box.x), ("y", box.y), ("width", box.width), ("height", box.height)
    return " ".join(f'{name}="{_number(value)}"' for name, value in parts)


def _title(text: str) -> str:
    return f"<title>{_text(text)}</title>" if text else ""


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _text(text: str) -> str:
    return escape(visible(text), quote=True)


# Time

_ROW, _WIDTH, _MOST_TRACKS = 18, 860, 8


def strip_svg(strip: TimeStrip, kernels: tuple[str, ...]) -> str:
    """Return launches in time, a row for each stream.

    Args:
        strip: of a run.
        kernels: their names, in the order of the numbers that spans have.
    """
    tracks = strip.tracks[:_MOST_TRACKS]
    height = 14 + len(tracks) * (_ROW + 14)
    label = f"launches of {len(kernels)} kernels in {strip.end_ns / 1e6:.3g} ms"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" viewBox="0 0 {_WIDTH} {height}" '
        f'role="img" aria-label="{_text(label)}" {_FONT}>'
    )
    rows = []
    for row, track in enumerate(tracks):
        y = row * (_ROW + 14)
        name = _text(f"{track.name} ({track.basis})")
        rows.append(f'<text x="0" y="{y + 10}" fill="{_MUTED}">{name}</text>')
        rows += _bars(strip, row, y + 14, kernels)
    at = f'x="{_WIDTH}" y="10" text-anchor="end" fill="{_MUTED}"'
    end = f"<text {at}>{format_ns(strip.end_ns)}</text>"
    return head + "".join(rows) + end + "</svg>"


def _bars(strip: TimeStrip, row: int, y: int, kernels: tuple[str, ...]) -> Iterator[str]:
    """Yield the bars of a track; what would lie in the same half pixel is drawn once."""
    scale = _WIDTH / max(1, strip.end_ns)
    drawn: set[tuple[int, int]] = set()
    for span in strip.tracks[row].spans:
        x, width = span.start_ns * scale, max(0.5, span.duration_ns * scale)
        cell = int(2 * x), span.kernel
        if width <= 0.5 and cell in drawn:
            continue
        drawn.add(cell)
        is_known = 0 <= span.kernel < len(KERNEL_COLOURS)
        fill = KERNEL_COLOURS[span.kernel] if is_known else _GREY
        name = kernels[span.kernel] if 0 <= span.kernel < len(kernels) else strip.names[span.name]
        title = _title(f"{name}, {format_ns(span.duration_ns)}")
        at = f'x="{_number(x)}" y="{y}" width="{_number(width)}" height="{_ROW}"'
        yield f'<rect {at} fill="{fill}">{title}</rect>'
