"""Layouts of a kernel's tiles as pictures: which warp and lane holds which element.

A layout is read off its definition in the text of GPU IR: the coordinates of an element are the
exclusive or of a basis for each bit of its register, lane and warp (the linear layouts of F2 of
`compiler.layouts`, which this package does not import).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tkdebug.instrument.home.pictures import SERIES, TIMES, Box, Mark, Picture, Text

_DEFINITION = re.compile(
    r"#(?P<name>\w+) = #ttg\.linear<\{register = (?P<register>\[.*?\]), "
    r"lane = (?P<lane>\[.*?\]), warp = (?P<warp>\[.*?\]), block"
)
_MOST_BITS, _MOST_AXES = 14, 3
_ROWS, _COLUMNS = 16, 32
_SIZE = 7.0
Bases = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """A linear layout: a basis for each bit of the numbers of register, lane and warp."""

    name: str
    register: Bases
    lane: Bases
    warp: Bases

    @property
    def shape(self) -> tuple[int, ...]:
        """The least tile that has all its elements."""
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
    """Yield boxes of one row: elements of one thread that are neighbours are one."""
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
    """Return how many elements that follow each other along the last axis a thread holds."""
    ones = {basis[-1] for basis in layout.register if not any(basis[:-1])}
    together = 1
    while together in ones:
        together *= 2
    return together
