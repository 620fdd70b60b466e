"""Pictures of a kernel: its roof, its occupancy, its warps in time; and of a watched tile."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

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
from tkdebug.linemap.resources import Occupancy
from tkdebug.timelines import WarpTimeline


def roofline(cost: LaunchCost, name: str, measured_ns: float | None) -> Picture | None:
    """Return a launch's rate beside what its bytes and its products allow.

    The ceilings are those of the prediction. None where the launch has no flops or bytes.
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
    """Return the blocks that each resource of a multiprocessor would allow, the fewest first."""
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
    """Return the elements of a tile: the larger, the stronger; what is no number is bad.

    A large tile is drawn by blocks of elements, each as its largest magnitude.
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
