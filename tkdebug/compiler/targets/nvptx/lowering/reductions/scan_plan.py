"""How a scan along an axis runs over registers, lanes and warps, for any linear layout.

The bits of the axis coordinate are taken in ascending order, so that blocks of elements that follow
each other merge into larger ones. Each bit belongs to what one has to change to move along it:
registers, lanes (shuffles), or warps (shared memory); neighbouring bits of one kind are a phase.
Pure functions; `scan` emits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from tkdebug.compiler.layouts import BLOCK, LANE, REGISTER, WARP, LayoutError, LinearLayout, f2
from tkdebug.compiler.targets.nvptx.lowering.reductions.reduction_parts import PART
from tkdebug.compiler.targets.nvptx.lowering.reductions.reduction_steps import (
    THREAD_DIMS,
    Parity,
    axis_vectors,
    split_place,
    thread_columns,
)

_REST = "rest"
_CACHED_PLANS = 256


@dataclass(frozen=True, slots=True)
class Move:
    """One bit of the axis.

    Args:
        bit: its number.
        register: XORed to the register to move along it.
        lane: XORed to the lane.
        warp: XORed to the warp.
        upper: whether a thread's element lies in the upper half.
    """

    bit: int
    register: int
    lane: int
    warp: int
    upper: Parity

    @property
    def kind(self) -> str:
        """The slowest of what changes."""
        return WARP if self.warp else LANE if self.lane else REGISTER


@dataclass(frozen=True, slots=True)
class Phase:
    """Neighbouring bits of one kind.

    Args:
        kind: register, lane or warp.
        moves: their moves, lowest bit first.
        partial: for warps: layout of the blocks' totals, as they are written.
        gathered: for warps: layout in which every thread reads the totals of all warps.
    """

    kind: str
    moves: tuple[Move, ...]
    partial: LinearLayout | None = None
    gathered: LinearLayout | None = None


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """Phases of a scan.

    Args:
        phases: in order.
        first_bit: where the axis begins in packed coordinates.
        places: packed coordinates that each register contributes.
    """

    phases: tuple[Phase, ...]
    first_bit: int
    places: tuple[int, ...]

    def block(self, register: int, bits: int) -> int:
        """The block of `2 ** bits` elements that holds a register's element, as a key."""
        return self.cleared(self.places[register], bits)

    def cleared(self, place: int, bits: int) -> int:
        """`place` without the lowest `bits` bits of the axis."""
        return place & ~(((1 << bits) - 1) << self.first_bit)


@lru_cache(_CACHED_PLANS)
def plan_scan(layout: LinearLayout, axis: int) -> ScanPlan:
    """The phases that scan `axis` of a tensor in `layout`.

    Raises:
        LayoutError: blocks of a cluster hold parts of the axis, or registers follow each other in
            an order that is not the same in all threads.
    """
    first, bits = axis_vectors(layout, axis)
    if any(v >> first & ((1 << bits) - 1) for v in layout.packed_bases(BLOCK)):
        raise LayoutError("scan along an axis that is split over the blocks of a cluster")
    columns = thread_columns(layout)
    span = f2.Span(columns)
    moves = [_move(layout, columns, span, first, bit) for bit in range(bits)]
    phases = []
    for kind, group in groupby(moves, key=lambda move: move.kind):
        phase = Phase(kind, tuple(group))
        _expect_ordered(phase)
        if kind == WARP:
            low, count = phase.moves[0].bit, len(phase.moves)
            partial, gathered = _exchanged(layout, axis, low, count)
            phase = Phase(kind, phase.moves, partial, gathered)
        phases.append(phase)
    return ScanPlan(tuple(phases), first, f2.spanned(layout.packed_bases(REGISTER)))


def _move(
    layout: LinearLayout, columns: tuple[int, ...], span: f2.Span, first: int, bit: int
) -> Move:
    found = span.solve(1 << (first + bit))
    if found is None:
        raise LayoutError("scan: the layout does not reach every element")
    upper = sum((column >> (first + bit) & 1) << i for i, column in enumerate(columns))
    return Move(bit, *split_place(layout, found), Parity(*split_place(layout, upper)))


def _expect_ordered(phase: Phase) -> None:
    for move in phase.moves:
        mixed = move.upper.lane or move.upper.warp
        if phase.kind == WARP:
            mixed = move.upper.register
        if mixed and phase.kind != LANE:
            raise LayoutError("scan: the order of registers along the axis differs between threads")


def _exchanged(
    layout: LinearLayout, axis: int, low: int, count: int
) -> tuple[LinearLayout, LinearLayout]:
    """The blocks' totals as warps write them, and as all threads read them."""
    first, bits = axis_vectors(layout, axis)
    rest = bits - low - count
    others = tuple(entry for i, entry in enumerate(layout.outs) if i != axis)
    outs = ((PART, 1 << count), (_REST, 1 << rest), *others)

    def coordinates(column: int) -> tuple[int, int]:
        along = column >> first & ((1 << bits) - 1)
        other = column & ((1 << first) - 1) | column >> (first + bits) << first
        part = along >> low & ((1 << count) - 1)
        return part, (along >> (low + count) | other << rest) << count

    partial, gathered = [], []
    for name in THREAD_DIMS:
        places = [coordinates(v) for v in layout.packed_bases(name)]
        partial.append((name, tuple(part | place for part, place in places)))
        all_parts = tuple(1 << i for i in range(count)) if name == REGISTER else ()
        gathered.append((name, (*all_parts, *(place for _, place in places))))
    return LinearLayout(tuple(partial), outs), LinearLayout(tuple(gathered), outs)
