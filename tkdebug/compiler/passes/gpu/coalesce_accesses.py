"""`CoalesceAccesses`: the layout in which each tile of memory is accessed.

A thread takes as many consecutive elements as one access can carry, the lanes of a warp go on where
it ends, and accesses of equal tiles agree on one layout so that nothing moves between a load and a
store. Sets `layout` on every load, store and atomic of a tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis.axis_info import AxisInfo, analyse
from tkdebug.compiler.analysis.layout_rules import ACCESSES
from tkdebug.compiler.analysis.vectorization import (
    MAX_ACCESS_BYTES,
    aligned_run,
    fastest_first,
    pointee_bytes,
)
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir.rewriter import Rewriter
from tkdebug.compiler.ir.types import shape_of
from tkdebug.compiler.layouts import REGISTER, LinearLayout, blocked

_WARP_LANES = 32
_Kind = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class CoalesceAccesses:
    """Chooses access layouts from what is known of pointers."""

    name: ClassVar[str] = "coalesce-accesses"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Annotate every access of a tile."""
        num_warps = module.function.attributes["num_warps"]
        assert isinstance(num_warps, int)
        accesses = [
            op
            for op in module.walk()
            if op.name in ACCESSES and shape_of(op.operands[0].type)
        ]
        if not accesses:
            return
        infos = analyse(module.function)
        widest: dict[_Kind, int] = {}
        for op in accesses:
            kind = _kind(op, infos)
            widest[kind] = max(widest.get(kind, 1), _elems_per_thread(op, infos, num_warps))
        for op in accesses:
            kind = _kind(op, infos)
            op.attributes["layout"] = access_layout(*kind, widest[kind], num_warps)
            rewriter.record_change(op, "choose-access-layout")
        rewriter.commit()


def _kind(op: Operation, infos: Mapping[Value, AxisInfo]) -> _Kind:
    pointer = op.operands[0]
    return shape_of(pointer.type), fastest_first(infos[pointer])


def _elems_per_thread(op: Operation, infos: Mapping[Value, AxisInfo], num_warps: int) -> int:
    """A vector, as long as every thread gets one."""
    info, element_bytes = infos[op.operands[0]], pointee_bytes(op)
    shape, order = _kind(op, infos)
    elements = 1
    for size in shape:
        elements *= size
    share = max(1, elements // (_WARP_LANES * num_warps))
    run = aligned_run(info, order[0], element_bytes)
    return min(run, MAX_ACCESS_BYTES // element_bytes, share, shape[order[0]])


def access_layout(
    shape: tuple[int, ...], order: tuple[int, ...], vector: int, num_warps: int
) -> LinearLayout:
    """Vectors along the fastest dimension, then lanes, then warps.

    Args:
        shape: of the tile.
        order: dimensions, the fastest first.
        vector: consecutive elements of a thread.
        num_warps: warps of a block.
    """
    rank = len(shape)
    box, lanes, warps = [1] * rank, [1] * rank, [1] * rank
    box[order[0]] = vector
    left_lanes, left_warps = _WARP_LANES, num_warps
    for d in order:
        lanes[d] = min(shape[d] // box[d], left_lanes)
        left_lanes //= lanes[d]
        warps[d] = min(shape[d] // (box[d] * lanes[d]), left_warps)
        left_warps //= warps[d]
    lanes[order[-1]] *= left_lanes
    warps[order[-1]] *= left_warps
    made = blocked(tuple(box), tuple(lanes), tuple(warps), order, shape)
    return made.without_zero_bases(REGISTER)
