"""Pictures as values: shapes with roles, drawn by an SVG renderer, a page or a terminal.

Responsible for pictures of faults; what bounds a kernel is in `kernel_pictures`. A mark's role says
what it means, never which colour it has; renderers have a colour, pattern or weight for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tkdebug.records.events import FaultExtent

TIMES = "\N{MULTIPLICATION SIGN}"
# frame: the thing itself; bad: what is not there; meant: where the access was meant to be; good:
# what is right; off: what takes no part; ink: outlines that point out; grid: helping lines.
# a to f: things of one kind, each in a colour of its own.
Role = Literal["frame", "bad", "meant", "good", "off", "ink", "grid", "a", "b", "c", "d", "e", "f"]
SERIES: tuple[Role, ...] = ("a", "b", "c", "d", "e", "f")
Scale = Callable[[float], float]
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle, filled or (with `outline`) as a line; `weight` 0 to 1 is how strong it is."""

    role: Role
    x: float
    y: float
    width: float
    height: float
    outline: bool = False
    weight: float = 1.0
    title: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points."""

    role: Role
    points: tuple[tuple[float, float], ...]
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Dot:
    """A point."""

    role: Role
    x: float
    y: float
    radius: float
    title: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """A label."""

    role: Role
    x: float
    y: float
    text: str
    anchor: Anchor = "start"


Mark = Box | Line | Dot | Text


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture.

    Attributes:
        kind: "tensor", "tile", "grid", "mismatch", "roofline", "occupancy", "layout" or "warps".
        label: a description for screen readers.
        caption: a sentence on what the picture shows.
    """

    kind: str
    width: float
    height: float
    label: str
    caption: str
    marks: tuple[Mark, ...]


# Faults

_SIDE = 132.0
_LEFT, _TOP = 30.0, 16.0
_MOST_CELLS = 4096


def index_of(offset: int, shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """Return the index by axis of an offset in elements; None if no index has that offset.

    The index is the intended one: along the outermost axis it may be past the shape, or negative.
    Strides that are not positive or do not nest give None, too.
    """
    axes = [axis for axis, size in enumerate(shape) if size > 1 or len(shape) == 1]
    axes.sort(key=lambda axis: (-strides[axis], axis))
    index = [0] * len(shape)
    rest = offset
    for place, axis in enumerate(axes):
        stride = strides[axis]
        if stride <= 0:
            return None
        index[axis], rest = divmod(rest, stride)
        if place and index[axis] >= shape[axis]:
            return None  # the strides do not nest
    return tuple(index) if rest == 0 else None


def shape_text(shape: Sequence[int]) -> str:
    """A shape in words."""
    if not shape:
        return "one element"
    if len(shape) == 1:
        return f"{shape[0]:,} element{'s' * (shape[0] != 1)}"
    return f" {TIMES} ".join(map(str, shape))


def element_text(tensor: str, index: Sequence[int] | None, offset: int | None) -> str:
    """`tensor[i, j]`, or the tensor and the offset without an index; "" if neither is known."""
    if index is not None:
        return f"{tensor}[{', '.join(map(str, index))}]"
    return "" if offset is None else f"{tensor}, offset {offset:,}"


def fault_pictures(
    extent: FaultExtent,
    tensor: str,
    index: int | None,
    lane: Sequence[int],
    program: tuple[int, int, int] | None,
    grid: tuple[int, int, int] | None,
) -> tuple[Picture, ...]:
    """Return the pictures of a fault: the tensor, the tile, the grid, as far as they are known.

    Args:
        extent: the fault's bad elements.
        tensor: the name of the tensor.
        index: the element offset of the first offender.
        lane: the position of the first offender in the tile.
        program: the program of the first offender.
        grid: the grid of the launch; None if it is not known.
    """
    found = [_tensor_picture(extent, tensor, index), _tile_picture(extent, lane)]
    if grid is not None:
        found.append(_grid_picture(extent, program, grid))
    return tuple(picture for picture in found if picture is not None)


def _tensor_picture(extent: FaultExtent, tensor: str, index: int | None) -> Picture | None:
    first = None if index is None else index_of(index, extent.shape, extent.strides)
    rows_columns = _plane(extent)
    if rows_columns is None or first is None:
        return _line_of_elements(extent, tensor, index)
    row_axis, column_axis = rows_columns
    rows, columns = extent.shape[row_axis], extent.shape[column_axis]
    last = index_of(extent.high, extent.shape, extent.strides)
    low = index_of(extent.low, extent.shape, extent.strides)
    if last is None or low is None:
        return _line_of_elements(extent, tensor, index)
    top, bottom = min(0, low[row_axis]), max(rows, last[row_axis] + 1)
    scale_x, scale_y = _SIDE / columns, 96 / (bottom - top)

    def x(column: float) -> float:
        return _LEFT + column * scale_x

    def y(row: float) -> float:
        return _TOP + (row - top) * scale_y

    marks: list[Mark] = [Box("frame", x(0), y(0), columns * scale_x, rows * scale_y)]
    words = []
    if bottom > rows:
        below = (bottom - rows) * scale_y
        marks.append(Box("bad", x(0), y(rows), columns * scale_x, below))
        words.append(f"rows {rows:,} to {bottom - 1:,} are past its end")
    if top < 0:
        marks.append(Box("bad", x(0), y(top), columns * scale_x, -top * scale_y))
        words.append(f"rows {top:,} to -1 are before its beginning")
    if not words:
        words.append("the elements between its rows are not its own")
    marks += _tile_in_tensor(extent, row_axis, column_axis, x, y)
    marks += [
        Dot("bad", x(first[column_axis]), y(first[row_axis]), 2.8, element_text(tensor, first, 0)),
        Text("frame", x(0), 11, "0"),
        Text("frame", x(columns), 11, f"{columns:,}", "end"),
        Text("frame", _LEFT - 4, y(0) + 8, "0", "end"),
        Text("frame", _LEFT - 4, y(rows), f"{rows:,}", "end"),
        Text("frame", x(columns / 2), y(rows / 2), f"{tensor} {extent.element_type}", "middle"),
    ]
    of = f", {shape_text(extent.shape)}" if len(extent.shape) > 2 else ""
    caption = f"{' and '.join(words)}{of}{_allocation_text(extent)}."
    label = f"{tensor}, {shape_text(extent.shape)}: {caption}"
    return Picture("tensor", _LEFT + _SIDE + 30, _TOP + 112, label, _capital(caption), tuple(marks))


def _plane(extent: FaultExtent) -> tuple[int, int] | None:
    """Return the two axes to draw, of the largest and the least stride; None for fewer than two."""
    axes = [axis for axis, size in enumerate(extent.shape) if size > 1]
    if len(axes) < 2:
        return None
    axes.sort(key=lambda axis: -extent.strides[axis])
    return axes[0], axes[-1]


def _tile_in_tensor(
    extent: FaultExtent, row_axis: int, column_axis: int, x: Scale, y: Scale
) -> Iterator[Mark]:
    """Yield the outline of the tile, if it extends along one of the two axes that are drawn."""
    start = index_of(extent.tile_start, extent.shape, extent.strides)
    if start is None or len(extent.tile_steps) != len(extent.tile):
        return
    size = {row_axis: 1, column_axis: 1}
    for elems, step in zip(extent.tile, extent.tile_steps, strict=True):
        for axis in size:
            if step == extent.strides[axis] and elems > 1:
                size[axis] = elems
    left, top = x(start[column_axis]), y(start[row_axis])
    width = min(x(start[column_axis] + size[column_axis]), _LEFT + _SIDE + 28) - left
    height = y(start[row_axis] + size[row_axis]) - top
    if size[row_axis] > 1 or size[column_axis] > 1:
        yield Box("meant", left, top, width, height, weight=0.35)
        yield Box("meant", left, top, width, height, outline=True)


def _line_of_elements(extent: FaultExtent, tensor: str, index: int | None) -> Picture | None:
    """Return the picture of a tensor as one row of elements, in the order of memory."""
    hull = 1 + sum(
        stride * (size - 1)
        for size, stride in zip(extent.shape, extent.strides, strict=True)
        if size
    )
    begin = min(0, extent.low, extent.tile_start)
    end = max(hull, extent.high + 1)
    far = end - begin > 64 * max(1, hull)
    if far:  # the tensor would be a hair
        begin, end = (min(0, begin), hull) if extent.high < hull else (0, 2 * hull)
    scale = (_SIDE + 20) / max(1, end - begin)

    def x(element: float) -> float:
        return 14 + (min(max(element, begin), end) - begin) * scale

    marks: list[Mark] = [Box("frame", x(0), 40, x(hull) - x(0), 24)]
    if extent.high >= hull:
        marks.append(Box("bad", x(hull), 40, max(2, x(extent.high + 1) - x(hull)), 24))
    if extent.low < 0:
        marks.append(Box("bad", x(extent.low), 40, max(2, x(0) - x(extent.low)), 24))
    if extent.tile_steps and len(extent.tile) == 1:
        width = x(extent.tile_start + extent.tile[0] * extent.tile_steps[0]) - x(extent.tile_start)
        marks.append(Box("meant", x(extent.tile_start), 36, max(2, width), 32, outline=True))
    marks += [
        Text("frame", x(0), 30, "0"),
        Text("frame", x(hull / 2), 56, f"{tensor}, {hull:,} {extent.element_type}", "middle"),
    ]
    if index is not None:
        marks.append(Text("bad", min(x(index), 150), 82, f"{index:,}", "middle"))
    where = []
    if extent.high >= hull:
        where.append(f"elements {max(hull, extent.low):,} to {extent.high:,} are past its end")
    if extent.low < 0:
        where.append(f"elements {extent.low:,} to {min(-1, extent.high):,} are before its first")
    if not where:
        where.append("elements between its own are touched")
    caption = f"{' and '.join(where)}{_allocation_text(extent)}{', far away' * far}."
    label = f"{tensor}, {shape_text(extent.shape)}: {caption}"
    return Picture("tensor", _SIDE + 50, 92, label, _capital(caption), tuple(marks))


def _allocation_text(extent: FaultExtent) -> str:
    """Return a clause that the access stayed in the tensor's allocation; "" if it did not."""
    before = extent.first_elem + extent.low
    after = extent.first_elem + extent.high
    if 0 <= before and after < extent.allocation_elems:
        return f", in its allocation of {extent.allocation_elems:,} elements all the same"
    return ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _tile_picture(extent: FaultExtent, lane: Sequence[int]) -> Picture | None:
    shape = tuple(extent.tile)
    if not shape:
        return None
    total = math.prod(shape)
    if len(shape) == 1:
        return _lanes_picture(extent, lane)
    rows, columns = math.prod(shape[:-1]), shape[-1]
    scale_x, scale_y = _SIDE / columns, 96 / rows
    marks: list[Mark] = [Box("off", _LEFT, _TOP, _SIDE, 96)]
    for box in extent.boxes:
        first_row, end_row = _flat_rows(box[:-1], shape[:-1])
        begin, end = box[-1]
        width, height = (end - begin) * scale_x, (end_row - first_row) * scale_y
        marks.append(Box("bad", _LEFT + begin * scale_x, _TOP + first_row * scale_y, width, height))
    marks.append(Box("meant", _LEFT, _TOP, _SIDE, 96, outline=True))
    if len(lane) == len(shape):
        row, _ = _flat_rows([(one, one + 1) for one in lane[:-1]], shape[:-1])
        x, y = _LEFT + lane[-1] * scale_x, _TOP + row * scale_y
        marks.append(Box("ink", x, y, max(2.5, scale_x), max(2.5, scale_y), outline=True))
        marks.append(Text("frame", _LEFT - 4, y + 8, f"{row:,}", "end"))
    marks += [
        Text("frame", _LEFT, 11, "0"),
        Text("frame", _LEFT + _SIDE, 11, str(columns), "end"),
        Text("frame", _LEFT - 4, _TOP + 96, str(rows), "end"),
    ]
    caption = _capital(_tile_caption(extent, shape, total))
    label = f"the tile, {shape_text(shape)}: {caption}"
    return Picture("tile", _LEFT + _SIDE + 8, _TOP + 112, label, caption, tuple(marks))


def _flat_rows(box: Sequence[tuple[int, int]], shape: Sequence[int]) -> tuple[int, int]:
    """Return the first row of a box and the one after its last, rows numbered over these axes."""
    first = last = 0
    for (begin, end), size in zip(box, shape, strict=True):
        first, last = first * size + begin, last * size + end - 1
    return first, last + 1


def _tile_caption(extent: FaultExtent, shape: Sequence[int], total: int) -> str:
    if extent.bad_elems == total:
        return f"all {total:,} elements are outside."
    if len(extent.boxes) == 1 and extent.is_exact and len(shape) == 2:
        (r0, r1), (c0, c1) = extent.boxes[0]
        if (c0, c1) == (0, shape[1]):
            return f"{r1 - r0} of {shape[0]} rows are outside: {r0} to {r1 - 1}."
        if (r0, r1) == (0, shape[0]):
            return f"{c1 - c0} of {shape[1]} columns are outside: {c0} to {c1 - 1}."
    if len(extent.boxes) == 1 and extent.is_exact and len(shape) == 1:
        begin, end = extent.boxes[0][0]
        return f"{extent.bad_elems:,} of {total:,} elements are outside: {begin} to {end - 1}."
    about = "" if extent.is_exact else ", in this box"
    return f"{extent.bad_elems:,} of {total:,} elements are outside{about}."


def _lanes_picture(extent: FaultExtent, lane: Sequence[int]) -> Picture:
    """Return a tile of one axis as rows of cells, as many as can be seen."""
    total = extent.tile[0]
    columns = 32 if total > 32 else max(1, total)
    each = max(1, math.ceil(total / (columns * 16)))
    cells = math.ceil(total / each)
    rows = math.ceil(cells / columns)
    size = min(_SIDE / columns, 96 / rows, 12)
    bad = [0] * cells
    for ((begin, end),) in extent.boxes:
        for cell in range(begin // each, min(cells, (end - 1) // each + 1)):
            bad[cell] = 1
    marks: list[Mark] = []
    chosen = lane[0] // each if lane else -1
    for cell, is_bad in enumerate(bad):
        x, y = _LEFT + cell % columns * size, _TOP + cell // columns * size
        marks.append(Box("bad" if is_bad else "off", x, y, size - 0.7, size - 0.7))
        if cell == chosen:
            marks.append(Box("ink", x, y, size - 0.7, size - 0.7, outline=True))
    marks += [
        Text("frame", _LEFT, 11, "0"),
        Text("frame", _LEFT + columns * size, 11, str(columns * each - 1), "end"),
    ]
    if lane:
        y = _TOP + rows * size + 13
        marks.append(Text("bad", _LEFT + chosen % columns * size, y, f"[{lane[0]}]"))
    caption = _capital(_tile_caption(extent, extent.tile, total))
    height = _TOP + rows * size + 18
    label = f"the tile of {total:,}: {caption}"
    return Picture("tile", _LEFT + _SIDE + 8, height, label, caption, tuple(marks))


def _grid_picture(
    extent: FaultExtent, program: tuple[int, int, int] | None, grid: tuple[int, int, int]
) -> Picture | None:
    if not extent.programs:
        return None
    x_size, y_size, z_size = (max(1, size) for size in grid)
    total = x_size * y_size * z_size
    columns, rows = (x_size, y_size * z_size)
    if rows == 1 and columns > 12:
        columns = math.ceil(math.sqrt(columns))
        rows = math.ceil(total / columns)
    step = max(1, math.ceil(columns / 64), math.ceil(rows / 64))
    columns_drawn, rows_drawn = math.ceil(columns / step), math.ceil(rows / step)
    size = min(14.0, 100 / columns_drawn, 96 / rows_drawn)
    counts = _cell_counts(extent, columns, step, columns_drawn, total)
    most = max(counts.values(), default=1)
    marks: list[Mark] = []
    for row in range(rows_drawn):
        for column in range(columns_drawn):
            first = row * step * columns + column * step
            if first >= total:
                continue
            count = counts.get((row, column), 0)
            x, y = _LEFT + column * size, _TOP + row * size
            role: Role = "bad" if count else "off"
            weight = 0.45 + 0.55 * count / most if count else 1.0
            name = _program_text(first, grid) if step == 1 else f"from {_program_text(first, grid)}"
            title = f"program {name}: {count:,} elements"
            marks.append(Box(role, x, y, size * 0.88, size * 0.88, weight=weight, title=title))
    if program is not None:
        linear = program[0] + x_size * (program[1] + y_size * program[2])
        x = _LEFT + linear % columns // step * size
        y = _TOP + linear // columns // step * size
        marks.append(Box("ink", x, y, size * 0.88, size * 0.88, outline=True))
    marks.append(Text("frame", _LEFT, 11, "program_id(0) →"))
    caption = _grid_caption(extent, total)
    label = f"grid of {total:,} programs: {caption}"
    height = _TOP + rows_drawn * size + 8
    return Picture("grid", 140, max(60.0, height), label, caption, tuple(marks))


def _cell_counts(
    extent: FaultExtent, columns: int, step: int, columns_drawn: int, total: int
) -> dict[tuple[int, int], int]:
    """Return the bad elements of each cell of the grid's picture."""
    counts: dict[tuple[int, int], int] = {}
    for first, length, count in extent.programs:
        # A long run fills whole cells: each is looked at once.
        stride = 1 if length <= _MOST_CELLS else step
        for linear in range(first, min(first + length, total), stride):
            cell = linear // columns // step, linear % columns // step
            counts[cell] = counts.get(cell, 0) + count
    return counts


def _program_text(linear: int, grid: tuple[int, int, int]) -> str:
    x, y, z = (max(1, size) for size in grid)
    places = linear % x, linear // x % y, linear // (x * y)
    if y == z == 1:
        return str(places[0])
    return f"({', '.join(map(str, places[: 3 if z > 1 else 2]))})"


def _grid_caption(extent: FaultExtent, total: int) -> str:
    number = extent.bad_programs
    which = ""
    if number == 1 and extent.programs[0][0] == total - 1:
        which = ": the last"
    elif number == 1 and extent.programs[0][0] == 0:
        which = ": the first"
    named = f"All {total:,} programs" if number == total else f"{number:,} of {total:,} programs"
    if total == 1:
        named = "The only program"
    last = extent.rounds[-1] if extent.rounds else None
    when = ""
    if last is not None:
        value = f" ({last.name} = {last.value:,})" if last.name else ""
        when = f", first in round {last.number + 1:,} of the loop{value}"
    return f"{named}{which}{when}."


# A comparison that failed


def mismatch_picture(lines: Sequence[str]) -> Picture | None:
    """Return the picture of a wrong tensor, None without lines.

    Each line is for some rows: "#" is wrong, "." right, "+" both.
    """
    rows = [line for line in lines if line and set(line) <= set("#.+ ")]
    if not rows:
        return None
    columns = max(map(len, rows))
    size = min(8.0, 180 / columns, 110 / len(rows))
    marks: list[Mark] = []
    for y, row in enumerate(rows):
        for begin, length, sign in _same_signs(row):
            role: Role = "good" if sign == "." else "bad"
            weight = 0.55 if sign == "+" else 1.0
            marks.append(
                Box(
                    role,
                    10 + begin * size,
                    10 + y * size,
                    length * size - 0.6,
                    size - 0.6,
                    weight=weight,
                )
            )
    wrong = sum(row.count("#") + row.count("+") for row in rows)
    caption = f"{wrong} of {sum(map(len, rows))} parts of the tensor have wrong elements."
    height = 20 + len(rows) * size
    return Picture("mismatch", 20 + columns * size, height, caption, caption, tuple(marks))


def _same_signs(row: str) -> Iterator[tuple[int, int, str]]:
    begin = 0
    for end in range(1, len(row) + 1):
        if end == len(row) or row[end] != row[begin]:
            if row[begin] != " ":
                yield begin, end - begin, row[begin]
            begin = end
