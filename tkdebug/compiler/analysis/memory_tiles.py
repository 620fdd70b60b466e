"""Global memory that a program both writes and reads through one pointer, by different threads.

In the order of its program a load gives what was stored before it. Threads keep that order each for
themselves: where another thread stored an element than the one that loads it, the two must wait for
each other in between. That is so where two accesses have different layouts, and where several
threads hold copies of an element, which all of them load and one stores. Scalars all threads load,
and the first one stores.

Loads that are volatile, or decide whether a `while` goes on, are left alone: they wait for another
program, and threads may see what it stored in different iterations, so that no barrier may stand
there.

Accesses of one layout without copies are taken to touch the same elements or none in common: what
one thread stores at an offset and another loads at another offset is not looked for, nor memory
that two arguments share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tkdebug.compiler.analysis.data_flow import source_of, traced
from tkdebug.compiler.dialects import scf, tt, ttg
from tkdebug.compiler.dialects.interfaces import PointerAccess, SameElements
from tkdebug.compiler.ir.control_flow import iter_arg
from tkdebug.compiler.ir.core import Operation, Value
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import encoding_of
from tkdebug.compiler.layouts import LANE, WARP, LinearLayout

# Ops whose result points where their first operand does, or to other elements from there.
POINTER_VIEWS = names_of(tt.AddPtr, SameElements)
_STEPS = names_of(tt.AddPtr, tt.Hint, ttg.ConvertLayout)


@dataclass(frozen=True, slots=True)
class Tile:
    """What an access touches.

    Attributes:
        base: what its pointers are computed from.
        layout: of its pointers; None for a scalar's.
        kind: what is done there.
    """

    base: Value
    layout: LinearLayout | None
    kind: Literal["load", "store", "atomic"]

    def overlaps(self, other: Tile) -> bool:
        """Whether threads must wait for each other between this access and the other one."""
        if self.base is not other.base:
            return False
        kinds = {self.kind, other.kind}
        if kinds == {"atomic"}:
            return False
        return self.layout != other.layout or ("load" in kinds and self.has_copies)

    @property
    def has_copies(self) -> bool:
        """Whether several threads load an element that one of them stores."""
        if self.layout is None:
            return True
        free = self.layout.free_masks
        return bool(free.get(LANE) or free.get(WARP))


def contended_tiles(function: Operation) -> Mapping[Operation, Tile]:
    """The accesses of `function` that may have to wait for another, with what they touch."""
    by_base: dict[Value, dict[Operation, Tile]] = {}
    for op in function.walk():
        access = PointerAccess.cast(op)
        if access is not None and not waits_for_others(op):
            layout = encoding_of(access.pointer.type)
            tile = Tile(pointer_base(access.pointer), layout, access.access)
            by_base.setdefault(tile.base, {})[op] = tile
    found: dict[Operation, Tile] = {}
    for tiles in by_base.values():
        distinct = set(tiles.values())
        written = [tile for tile in distinct if tile.kind != "load"]
        if any(tile.overlaps(other) for tile in written for other in distinct):
            found |= tiles
    return found


def waits_for_others(op: Operation) -> bool:
    """Whether a load is volatile, or decides whether a `while` goes on."""
    if tt.Load.matches(op) and tt.Load(op).volatile:
        return True
    block = op.block
    assert block is not None
    loop = block.parent_op
    return loop is not None and scf.While.matches(loop) and loop.regions[0].block is block


def pointer_base(value: Value) -> Value:
    """What a pointer was computed from: an argument of the function, if that is plain to see."""
    while True:
        value = traced(value, POINTER_VIEWS)
        if value.defining_op is not None:
            return value
        carried = iter_arg(value)
        if carried is None or not _is_stepped(carried.yielded, value):
            return value
        value = carried.initial


def _is_stepped(value: Value, start: Value) -> bool:
    """Whether `value` is `start` moved by some offsets."""
    while value is not start:
        source = source_of(value, _STEPS)
        if source is None:
            return False
        value = source
    return True
