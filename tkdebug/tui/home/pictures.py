"""Pictures of the model drawn in cells: two pixels a cell, or shades where there is no colour.

Shapes are scaled to the cells that there are; texts keep their size, so that labels outside of the
shapes get a margin of their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text as RichText

from tkdebug.instrument.home.pictures import (
    SERIES,
    Anchor,
    Box,
    Dot,
    Line,
    Picture,
    Role,
    Text,
)
from tkdebug.tui.drawing import palette
from tkdebug.tui.drawing.display import shown

MOST_ROWS = 12
_LEAST_COLUMNS = 6
_COLOURS: dict[Role, str] = {
    "frame": palette.FRAME,
    "off": palette.FRAME,
    "grid": palette.FRAME,
    "good": palette.GOOD,
    "meant": palette.MEANT,
    "bad": palette.BAD,
    "ink": palette.INK,
    **dict(zip(SERIES, palette.KERNELS, strict=True)),
}
# Without colour: the more it matters, the darker.
_SHADES: dict[Role, str] = {
    "frame": "░",
    "off": "░",
    "grid": "·",
    "good": "░",
    "meant": "▒",
    "bad": "█",
    "ink": "◆",
    **dict(zip(SERIES, palette.KERNEL_FILLS, strict=True)),
}
# What is seen where several things share a pixel.
_ORDER: tuple[Role, ...] = (
    "grid",
    "frame",
    "off",
    "good",
    *reversed(SERIES),
    "meant",
    "bad",
    "ink",
)
_RANK = {role: number for number, role in enumerate(_ORDER)}


@dataclass(frozen=True, slots=True)
class _Area:
    """The bounds of shapes in a picture, and the pixels for them."""

    left: float
    top: float
    width: float
    height: float
    columns: int
    pixels: int

    def x(self, x: float) -> float:
        return (x - self.left) / self.width * self.columns

    def y(self, y: float) -> float:
        return (y - self.top) / self.height * self.pixels


def picture_rows(
    picture: Picture, columns: int, is_plain: bool, most_rows: int = MOST_ROWS
) -> list[RichText]:
    """Return a picture in at most so many columns.

    Args:
        picture: what to draw.
        columns: cells of each row.
        is_plain: whether to do without colours.
        most_rows: the rows of its shapes at most; texts above and below have rows of their own.
    """
    bounds = _bounds(picture)
    if bounds is None or columns < _LEAST_COLUMNS:
        return []
    left, top, right, bottom = bounds
    texts = [mark for mark in picture.marks if isinstance(mark, Text)]
    sides = [mark for mark in texts if mark.anchor == "end" and mark.x <= left]
    margin = max((cell_len(mark.text) + 1 for mark in sides), default=0)
    if columns - margin < _LEAST_COLUMNS:
        margin, texts = 0, [mark for mark in texts if mark not in sides]
    room = columns - margin
    # A pixel is as high as it is wide: half a cell.
    wanted = room * (bottom - top) / (right - left)
    rows = max(1, min(most_rows, math.ceil(wanted / 2)))
    area = _Area(left, top, right - left, bottom - top, room, 2 * rows)
    canvas = _Canvas(area)
    for mark in picture.marks:
        canvas.draw(mark)
    above = any(mark.y < top for mark in texts)
    below = any(mark.y > bottom + 6 for mark in texts)
    labels = _Labels(margin, room, rows, above, below)
    for mark in texts:
        labels.put(mark, area)
    return list(labels.over(canvas.rows(is_plain)))


def beside(pictures: Sequence[list[RichText]], gap: int = 2) -> list[RichText]:
    """Put pictures beside each other."""
    height = max(map(len, pictures), default=0)
    widths = [max((row.cell_len for row in rows), default=0) for rows in pictures]
    found = []
    for number in range(height):
        line = RichText(no_wrap=True)
        for rows, width in zip(pictures, widths, strict=True):
            row = rows[number] if number < len(rows) else RichText("")
            line.append_text(row)
            line.append(" " * (width - row.cell_len + gap))
        line.rstrip()
        found.append(line)
    return found


def _bounds(picture: Picture) -> tuple[float, float, float, float] | None:
    """Return left, top, right and bottom of all shapes, or None without shapes."""
    xs: list[float] = []
    ys: list[float] = []
    for mark in picture.marks:
        match mark:
            case Box(x=x, y=y, width=width, height=height):
                xs += (x, x + width)
                ys += (y, y + height)
            case Line(points=points):
                xs += (x for x, _ in points)
                ys += (y for _, y in points)
            case _:
                pass
    if not xs or max(xs) <= min(xs) or max(ys) <= min(ys):
        return None
    return min(xs), min(ys), max(xs), max(ys)


class _Canvas:
    """Pixels with the role of what is seen there."""

    def __init__(self, area: _Area) -> None:
        self._area = area
        self._pixels: list[list[Role | None]] = [[None] * area.columns for _ in range(area.pixels)]

    def draw(self, mark: Box | Line | Dot | Text) -> None:
        match mark:
            case Box(outline=True):
                self._outline(mark)
            case Box():
                self._fill(mark)
            case Line(points=points, role=role, dashed=dashed):
                for begin, end in itertools.pairwise(points):
                    self._stroke(begin, end, role, dashed)
            case Dot(x=x, y=y, role=role):
                self._set(int(self._area.x(x)), int(self._area.y(y)), role)
            case Text():
                pass

    def _span(self, begin: float, end: float, most: int) -> range:
        """Return the pixels of an interval: at least one, none beyond the canvas."""
        first = max(0, min(most - 1, math.floor(begin + 0.3)))
        last = max(first + 1, min(most, math.ceil(end - 0.3)))
        return range(first, last)

    def _box(self, box: Box) -> tuple[range, range]:
        area = self._area
        across = self._span(area.x(box.x), area.x(box.x + box.width), area.columns)
        down = self._span(area.y(box.y), area.y(box.y + box.height), area.pixels)
        return across, down

    def _fill(self, box: Box) -> None:
        across, down = self._box(box)
        for y in down:
            for x in across:
                self._set(x, y, box.role)

    def _outline(self, box: Box) -> None:
        across, down = self._box(box)
        if len(across) * len(down) == len(self._pixels) * self._area.columns:
            return  # the picture's own edge
        for y in down:
            for x in across:
                is_edge = x in (across[0], across[-1]) or y in (down[0], down[-1])
                if is_edge:
                    self._set(x, y, box.role)

    def _stroke(
        self, begin: tuple[float, float], end: tuple[float, float], role: Role, dashed: bool
    ) -> None:
        x0, y0 = self._area.x(begin[0]), self._area.y(begin[1])
        x1, y1 = self._area.x(end[0]), self._area.y(end[1])
        steps = max(1, math.ceil(max(abs(x1 - x0), abs(y1 - y0))))
        for number in range(0, steps + 1, 2 if dashed else 1):
            part = number / steps
            self._set(int(x0 + (x1 - x0) * part), int(y0 + (y1 - y0) * part), role)

    def _set(self, x: int, y: int, role: Role) -> None:
        x, y = max(0, min(x, self._area.columns - 1)), max(0, min(y, self._area.pixels - 1))
        known = self._pixels[y][x]
        if known is None or _RANK[role] >= _RANK[known]:
            self._pixels[y][x] = role

    def rows(self, is_plain: bool) -> Iterator[list[tuple[str, str]]]:
        """Yield rows of cells: a character and its style."""
        for upper, lower in zip(self._pixels[::2], self._pixels[1::2], strict=True):
            pairs = zip(upper, lower, strict=True)
            yield [_shade(a, b) if is_plain else _half_blocks(a, b) for a, b in pairs]


def _half_blocks(upper: Role | None, lower: Role | None) -> tuple[str, str]:
    if upper is None and lower is None:
        return " ", ""
    if upper is None:
        return "▄", _COLOURS[lower] if lower else ""
    if lower is None:
        return "▀", _COLOURS[upper]
    if upper == lower:
        return "█", _COLOURS[upper]
    return "▀", f"{_COLOURS[upper]} on {_COLOURS[lower]}"


def _shade(upper: Role | None, lower: Role | None) -> tuple[str, str]:
    seen = [role for role in (upper, lower) if role is not None]
    return (_SHADES[max(seen, key=_RANK.__getitem__)], "") if seen else (" ", "")


class _Labels:
    """Texts at cells around and in the shapes; one that has no room is left out."""

    def __init__(self, margin: int, room: int, rows: int, above: bool, below: bool) -> None:
        self._margin, self._room, self._rows = margin, room, rows
        self._first = int(above)
        height = rows + self._first + int(below)
        self._cells: list[list[tuple[str, str] | None]] = [
            [None] * (margin + room) for _ in range(height)
        ]

    def put(self, mark: Text, area: _Area) -> None:
        """Put a text where it belongs, unless another one is there."""
        text = shown(mark.text, 60)
        column = self._column(mark.anchor, self._margin + area.x(mark.x), len(text))
        row = self._row(mark.y, area)
        is_inside = self._first <= row < self._first + self._rows
        is_inside = is_inside and column + len(text) > self._margin
        width = self._margin + self._room
        if is_inside and len(text) > self._room:
            return
        column = max(0, min(column, width - len(text)))
        if len(text) > width or any(self._cells[row][column : column + len(text)]):
            return
        style = palette.FAULT if mark.role == "bad" else palette.MUTED
        for number, character in enumerate(text):
            self._cells[row][column + number] = character, style

    def _column(self, anchor: Anchor, at: float, length: int) -> int:
        match anchor:
            case "start":
                return int(at)
            case "middle":
                return int(at - length / 2)
            case "end":
                is_margin = at <= self._margin
                return self._margin - 1 - length if is_margin else math.ceil(at) - length

    def _row(self, y: float, area: _Area) -> int:
        if y < area.top:
            return 0
        if y > area.top + area.height + 6:
            return len(self._cells) - 1
        # A text stands on its y: its middle is above it.
        row = self._first + int(area.y(y - 5) / 2)
        return max(self._first, min(row, self._first + self._rows - 1))

    def over(self, rows: Iterable[list[tuple[str, str]]]) -> Iterator[RichText]:
        """Yield the rows of shapes with the texts over them."""
        shapes = list(rows)
        for number, labels in enumerate(self._cells):
            inside = number - self._first
            cells = shapes[inside] if 0 <= inside < len(shapes) else []
            line = RichText(no_wrap=True)
            for column, label in enumerate(labels):
                at = column - self._margin
                shape = cells[at] if 0 <= at < len(cells) else (" ", "")
                line.append(*(shape if label is None else _on(label, shape)))
            line.rstrip()
            yield line


def _on(label: tuple[str, str], shape: tuple[str, str]) -> tuple[str, str]:
    """A character of a text over a shape, whose colour is its background."""
    colour = Style.parse(shape[1]).color
    if colour is None:
        return label
    return label[0], f"bold {palette.INK} on {colour.name}"
