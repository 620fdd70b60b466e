"""Pictures of a kernel: its roof, occupancy, warps in time and layouts; and of a watched tile.

A picture of a layout shows which warp and lane holds which element. A layout is read off its
definition in the text of GPU IR: the coordinates of an element are the exclusive or of a basis for
each bit of its register, lane and warp (the linear layouts of F2 of `compiler.layouts`, which this
package does not import).
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tkdebug.advice.records import LaunchCost
from tkdebug.instrument.analyses.timelines import LaunchTimeline
from tkdebug.instrument.home.pictures import (
    SERIES,
    TIMES,
    Box,
    Dot,
    Line,
    Mark,
    Picture,
    Role,
    Scale,
    Text,
)
from tkdebug.linemap.parts import Occupancy
from tkdebug.timelines import WarpTimeline

_DEFINITION = re.compile(
    r"#(?P<name>\w+) = #ttg\.linear<\{register = (?P<register>\[.*?\]), "
    r"lane = (?P<lane>\[.*?\]), warp = (?P<warp>\[.*?\]), block"
)
_MOST_BITS, _MOST_AXES = 14, 3
_ROWS, _COLUMNS = 16, 32
_SIZE = 7.0
Bases = tuple[tuple[int, ...], ...]


def roofline(cost: LaunchCost, name: str, measured_ns: float | None) -> Picture | None:
    """Return the roofline of a launch: its flop rate below the roof of bandwidth and peak rate.

    The ceilings are those of the prediction. None if the launch has no flops, bytes, time or
    ceilings.
    """
    flops, moved = cost.flops + cost.tensor_flops, cost.read_bytes + cost.written_bytes
    time_ns = measured_ns or cost.grid_ns
    unit = "tensor cores" if cost.tensor_flops else "fp32"
    bandwidth = cost.ceilings_per_s.get("memory", 0.0) / 1e9  # bytes/ns
    peak = cost.ceilings_per_s.get(unit, 0.0) / 1e9  # flops/ns
    if not (flops and moved and time_ns and bandwidth and peak):
        return None
    intensity, rate = flops / moved, flops / time_ns
    top = min(peak, intensity * bandwidth)
    left, right = math.log10(intensity) - 1.6, math.log10(max(intensity, peak / bandwidth)) + 1
    high, low = math.log10(peak) + 0.4, math.log10(min(rate, top)) - 0.5

    def x(value: float) -> float:
        return 34 + (math.log10(value) - left) / (right - left) * 160

    def y(value: float) -> float:
        return 124 - (math.log10(value) - low) / (high - low) * 112

    begin, knee, end = 10**left, peak / bandwidth, 10**right
    marks: list[Mark] = [*_decades(left, right, low, high, x, y)]
    start = max(begin, 10**low / bandwidth)
    roof = [(x(start), y(bandwidth * start))] if knee > start else []
    roof += [(x(max(knee, begin)), y(peak)), (x(end), y(peak))]
    marks += [
        Line("frame", tuple(roof)),
        Line("ink", ((x(intensity), y(top)), (x(intensity), y(rate))), dashed=True),
        Dot("meant", x(intensity), y(rate), 4.5, name),
        Text("frame", x(end), y(peak) - 4, f"{unit} {_tera(peak)}", "end"),
        Text("frame", 2, 11, "TFLOP/s"),
        Text("frame", 194, 148, "flop / byte", "end"),
    ]
    how = "measured" if measured_ns else "predicted"
    caption = (
        f"{100 * rate / top:.0f} % of its roof, {how}: {_tera(rate)} of {_tera(top)} TFLOP/s at "
        f"{intensity:.3g} flop a byte; memory moves {bandwidth / 1e3:.3g} TB/s."
    )
    return Picture("roofline", 200, 152, f"{name}: {caption}", caption, tuple(marks))


def _tera(per_ns: float) -> str:
    return f"{per_ns / 1e3:.3g}"


def _decades(
    left: float, right: float, low: float, high: float, x: Scale, y: Scale
) -> Iterator[Mark]:
    for power in range(math.ceil(left), math.floor(right) + 1):
        yield Line("grid", ((x(10.0**power), 12), (x(10.0**power), 124)))
        yield Text("frame", x(10.0**power), 136, f"{10.0**power:g}", "middle")
    for power in range(math.ceil(low), math.floor(high) + 1):
        yield Line("grid", ((34, y(10.0**power)), (194, y(10.0**power))))
        yield Text("frame", 31, y(10.0**power) + 3, f"{10.0 ** (power - 3):g}", "end")


def occupancy_picture(occupancy: Occupancy) -> Picture | None:
    """Return bars of the blocks that each resource allows, the fewest first; None if all are 0."""
    limits = sorted(occupancy.limits.items(), key=lambda item: item[1])
    most = max((blocks for _, blocks in limits), default=0)
    if not most:
        return None
    marks: list[Mark] = []
    for row, (name, blocks) in enumerate(limits):
        y = 8 + 18 * row
        role: Role = "bad" if name in occupancy.limited_by else "off"
        marks += [
            Text("frame", 78, y + 9, name, "end"),
            Box(role, 84, y, max(2.0, 90 * blocks / most), 12),
            Text("frame", 180, y + 9, f"{blocks}"),
        ]
    caption = (
        f"{occupancy.percent:.0f} %: {occupancy.warps} of {occupancy.max_warps} warps of a "
        f"multiprocessor, limited by {' and '.join(occupancy.limited_by)}."
    )
    return Picture("occupancy", 200, 12 + 18 * len(limits), caption, caption, tuple(marks))


# Values

_MOST_ROWS, _MOST_COLUMNS = 48, 64


def tile_values_picture(
    title: str, shape: Sequence[int], values: Sequence[float], summary: str
) -> Picture:
    """Return the picture of a tile's elements: larger magnitudes are stronger, NaN and Inf are bad.

    A large tile is drawn in blocks of elements, each as its largest magnitude, or NaN.
    """
    columns = shape[-1] if shape else 1
    rows = max(1, len(values) // max(1, columns))
    step_x, step_y = max(1, -(-columns // _MOST_COLUMNS)), max(1, -(-rows // _MOST_ROWS))
    cells: dict[tuple[int, int], float] = {}
    for number, value in enumerate(values):
        cell = number // columns // step_y, number % columns // step_x
        known = cells.get(cell, 0.0)
        # NaN stays: no comparison holds with it.
        cells[cell] = value if not abs(value) <= abs(known) and known == known else known
    finite = [abs(value) for value in cells.values() if math.isfinite(value)]
    most = max(finite, default=0.0) or 1.0
    wide, high = -(-columns // step_x), -(-rows // step_y)
    size = min(12.0, 420 / wide, 300 / high)
    marks = [_value_mark(cell, value, most, size) for cell, value in cells.items()]
    blocks = f", blocks of {step_y} {TIMES} {step_x}" if step_x * step_y > 1 else ""
    caption = f"{title}: {summary}{blocks}."
    return Picture("tile", 8 + wide * size, 8 + high * size, caption, caption, tuple(marks))


def _value_mark(cell: tuple[int, int], value: float, most: float, size: float) -> Mark:
    y, x = 4 + cell[0] * size, 4 + cell[1] * size
    if not math.isfinite(value):
        return Box("bad", x, y, size - 0.5, size - 0.5, title=str(value))
    role: Role = "meant" if value >= 0 else "good"
    weight = 0.06 + 0.94 * math.sqrt(abs(value) / most)
    return Box(role, x, y, size - 0.5, size - 0.5, weight=weight, title=f"{value:.6g}")


# Warps in time

_MOST_WARPS = 16
_TIME_PIXELS = 360
_NAMED_LINES = len(SERIES) - 1


def warps_picture(timeline: LaunchTimeline) -> Picture:
    """Return the warps of a launch in time, each from its own beginning, by source line.

    A pixel is the line that the warp spent most of it at; the lines that take most cycles have
    colours of their own.
    """
    warps = sorted(timeline.warps, key=lambda one: (one.program, one.warp))[:_MOST_WARPS]
    longest = max((warp.cycles for warp in warps), default=0) or 1
    lines = [one.frame.line for one in timeline.lines() if one.frame is not None]
    named = list(dict.fromkeys(lines))[:_NAMED_LINES]
    roles: dict[int, Role] = dict(zip(named, SERIES, strict=False))
    marks: list[Mark] = []
    for row, warp in enumerate(warps):
        y = 16 + 11 * row
        marks.append(Text("frame", 58, y + 8, f"{warp.program}.{warp.warp}", "end"))
        for begin, end, line in _stretches(warp, longest):
            role = roles.get(line, SERIES[-1]) if line else "off"
            title = f"line {line}" if line else "before its first op"
            marks.append(Box(role, 62 + begin, y, end - begin, 9, title=title))
    marks += _legend(named, 16 + 11 * len(warps) + 12)
    marks.append(Text("frame", 62 + _TIME_PIXELS, 11, f"{longest:,} cycles", "end"))
    marks.append(Text("frame", 2, 11, "program.warp"))
    share = "" if len(warps) == len(timeline.warps) else f", {len(warps)} of {len(timeline.warps)}"
    caption = f"Warps of a launch{share}: which line each was at, from its beginning."
    height = 16 + 11 * len(warps) + 20
    return Picture("warps", 430, height, caption, caption, tuple(marks))


def _stretches(warp: WarpTimeline, longest: int) -> Iterator[tuple[int, int, int]]:
    """Yield runs of pixels at one line: the first, the end, the line (0 before the first op)."""
    pixels: list[Counter[int]] = [Counter() for _ in range(_TIME_PIXELS)]
    scale = _TIME_PIXELS / longest
    for span in warp.spans():
        line = 0 if span.site is None else span.site.frames[-1].line
        first, last = span.start_cycles * scale, (span.start_cycles + span.cycles) * scale
        for pixel in range(int(first), min(_TIME_PIXELS, math.ceil(last))):
            part = min(last, pixel + 1) - max(first, pixel)
            pixels[pixel][line] += round(1000 * part)
    at = [pixel.most_common(1)[0][0] if pixel else -1 for pixel in pixels]
    begin = 0
    for end in range(1, _TIME_PIXELS + 1):
        if end == _TIME_PIXELS or at[end] != at[begin]:
            if at[begin] >= 0:
                yield begin, end, at[begin]
            begin = end


def _legend(lines: Sequence[int], y: float) -> Iterator[Mark]:
    for number, line in enumerate(lines):
        yield Box(SERIES[number], 62 + 60 * number, y, 8, 8)
        yield Text("frame", 74 + 60 * number, y + 8, f"line {line}")


@dataclass(frozen=True, slots=True)
class Layout:
    """A linear layout: a basis for each bit of the numbers of register, lane and warp."""

    name: str
    register: Bases
    lane: Bases
    warp: Bases

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the smallest tile that contains every element of the layout."""
        bases = (*self.register, *self.lane, *self.warp)
        axes = len(bases[0]) if bases else 0
        extents = [1] * axes
        for axis, basis in itertools.product(range(axes), bases):
            extents[axis] = max(extents[axis], 1 << basis[axis].bit_length())
        return tuple(extents)

    def owners(self) -> Iterator[tuple[tuple[int, ...], int, int, int]]:
        """Yield for each register of each thread its element, warp, lane and register."""
        counts = (1 << len(self.warp), 1 << len(self.lane), 1 << len(self.register))
        for warp, lane, register in itertools.product(*map(range, counts)):
            place = [0] * len(self.shape)
            for number, bases in ((register, self.register), (lane, self.lane), (warp, self.warp)):
                for bit, basis in enumerate(bases):
                    if number >> bit & 1:
                        place = [a ^ b for a, b in zip(place, basis, strict=True)]
            yield tuple(place), warp, lane, register


def layouts_of(text: str) -> Iterator[Layout]:
    """Yield the layouts that a text of GPU IR defines, as far as they can be drawn."""
    for line in text.splitlines():
        if not line.startswith("#"):
            return
        found = _DEFINITION.match(line)
        if found is None:
            continue
        try:
            register, lane, warp = (_bases(found[part]) for part in ("register", "lane", "warp"))
        except ValueError:
            continue
        bases = (*register, *lane, *warp)
        axes = {len(basis) for basis in bases}
        if len(bases) <= _MOST_BITS and len(axes) == 1 and max(axes) <= _MOST_AXES:
            yield Layout(found["name"], register, lane, warp)


def _bases(text: str) -> Bases:
    """Read a list of bases.

    Raises:
        ValueError: it is none, or has numbers that no tile has.
    """
    parsed = json.loads(text)
    for basis in parsed:
        if not isinstance(basis, list) or not all(_is_coordinate(one) for one in basis):
            raise ValueError(f"got {text!r:.80}, expected lists of numbers")
    return tuple(map(tuple, parsed))


def _is_coordinate(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 20


def layout_picture(layout: Layout) -> Picture:
    """Return the first elements of a tile, by the warp and lane that hold them."""
    shape = layout.shape
    owners: dict[tuple[int, int], tuple[int, int, int]] = {}
    holders: dict[tuple[int, ...], int] = {}
    for place, warp, lane, register in layout.owners():
        holders[place] = holders.get(place, 0) + 1
        row, column = (0, *place)[-2:]
        if row < _ROWS and column < _COLUMNS and not any(place[:-2]):
            owners.setdefault((row, column), (warp, lane, register))
    rows = 1 + max((row for row, _ in owners), default=0)
    columns = 1 + max((column for _, column in owners), default=0)
    marks: list[Mark] = [
        Text("frame", 24, 10, "0"),
        Text("frame", 24 + columns * _SIZE, 10, str(columns - 1), "end"),
        Text("frame", 20, 20, "0", "end"),
    ]
    if rows > 1:
        marks.append(Text("frame", 20, 13 + rows * _SIZE, str(rows - 1), "end"))
    for row in range(rows):
        marks += _row(row, columns, owners)
    caption = _caption(layout, shape, rows, columns, max(holders.values(), default=1))
    label = f"layout {layout.name}: {caption}"
    width, height = 28 + columns * _SIZE, 18 + rows * _SIZE
    return Picture("layout", max(width, 60), height, label, caption, tuple(marks))


def _row(
    row: int, columns: int, owners: dict[tuple[int, int], tuple[int, int, int]]
) -> Iterator[Mark]:
    """Yield the boxes of one row; neighbouring elements of one thread share a box."""
    begin = 0
    for end in range(1, columns + 1):
        owner = owners.get((row, begin))
        beside = owners.get((row, end)) if end < columns else None
        if owner is not None and beside is not None and beside[:2] == owner[:2]:
            continue
        if owner is not None:
            warp, lane, register = owner
            width = (end - begin) * _SIZE - 0.6
            registers = f"register {register}"
            if end - begin > 1:
                registers = f"{end - begin} registers from {register}"
            yield Box(
                SERIES[warp % len(SERIES)],
                24 + begin * _SIZE,
                13 + row * _SIZE,
                width,
                _SIZE - 0.6,
                weight=0.35 + 0.65 * (lane % 32) / 31,
                title=f"[{row}, {begin}]: warp {warp}, lane {lane}, {registers}",
            )
        begin = end


def _caption(layout: Layout, shape: Sequence[int], rows: int, columns: int, copies: int) -> str:
    tile = f" {TIMES} ".join(map(str, shape))
    cut = "" if (rows, columns) == (1, *shape)[-2:] else ", its first elements"
    each = 1 << len(layout.register)
    together = _together(layout)
    held = f", {together} next to each other" if together > 1 else ""
    many = f" Each element is in {copies} registers or threads." if copies > 1 else ""
    return (
        f"{tile}{cut}: warp by colour, lane by strength. A thread holds {each} "
        f"element{'s' * (each != 1)}{held}.{many}"
    )


def _together(layout: Layout) -> int:
    """Return the number of contiguous elements along the last axis that one thread holds."""
    ones = {basis[-1] for basis in layout.register if not any(basis[:-1])}
    together = 1
    while together in ones:
        together *= 2
    return together
