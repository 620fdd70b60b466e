"""Where the groups of an access are, seen from one of them: a constant needs no register.

Each group has a pointer of its own otherwise, which both ways of a checked access keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from tkdebug.compiler.analysis.axis_facts import unit_of
from tkdebug.compiler.ir import Value
from tkdebug.compiler.ir.types import TensorType
from tkdebug.compiler.layouts import LANE, REGISTER, WARP, f2
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """The first element of a group.

    Attributes:
        register: whose pointer it is seen from.
        offset_bytes: how far behind that it is.
    """

    register: int
    offset_bytes: int


def group_places(ctx: Lowering, pointer: Value, firsts: range) -> list[GroupPlace]:
    """That of each group, by its first register.

    Args:
        ctx: the kernel.
        pointer: the tile of pointers, or the only one.
        firsts: the first register of each group.
    """
    if not isinstance(pointer.type, TensorType):
        return [GroupPlace(first, 0) for first in firsts]
    layout, runs = ctx.layout(pointer), ctx.axis_info[pointer].contiguity
    axis = max(range(len(runs)), key=lambda one: runs[one])
    name, run, unit = layout.out_dims[axis], runs[axis], unit_of(pointer.type)
    taken = 0
    for dim in (LANE, WARP):
        for packed in layout.packed_bases(dim):
            taken |= layout.unpack_out(packed)[name]
    steps = [layout.unpack_out(packed) for packed in f2.spanned(layout.packed_bases(REGISTER))]
    seen: dict[tuple[tuple[str, int], ...], int] = {}
    places = []
    for first in firsts:
        step = steps[first]
        at = step[name]
        if run == 1 or at & taken:
            places.append(GroupPlace(first, 0))
            continue
        # Threads reach other bits of the position, so all of them are in the same run or none.
        key = tuple({**step, name: at // run}.items())
        anchor = seen.setdefault(key, first)
        places.append(GroupPlace(anchor, (at - steps[anchor][name]) * unit))
    return places
