"""How many buffers the rings of a loop can have beside all else in shared memory.

Everything is placed as `AllocateShared` would place it, with the rings where the loop is: what is
live only before or after the loop (an epilogue's scratch) may share their bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.compiler.analysis.liveness import Timeline
from tkdebug.compiler.analysis.shared_hazards import ScratchBytes
from tkdebug.compiler.analysis.tensor_map_use import LOAD
from tkdebug.compiler.analysis.tensor_maps import LANDING_ALIGNMENT
from tkdebug.compiler.dialects import tt, ttg
from tkdebug.compiler.ir.core import Operation
from tkdebug.compiler.ir.types import element_of, shape_of
from tkdebug.compiler.passes.gpu.allocate_shared import Demand, collect_demands, footprint_bytes
from tkdebug.compiler.passes.gpu.mbarrier_ring import WORD_BYTES, holds_block
from tkdebug.compiler.passes.gpu.pipelined_loads import PipelinedLoad


def fitting_buffers(
    loop: Operation,
    loads: Sequence[PipelinedLoad],
    most: int,
    limit_bytes: int,
    scratch_bytes: ScratchBytes,
) -> int:
    """The most buffers of each ring, up to `most`, with which a block's memory suffices.

    Args:
        loop: an `scf.for`.
        loads: what is copied into rings.
        most: how many are asked for.
        limit_bytes: of shared memory that a block can have.
        scratch_bytes: how much the lowering of an op needs for itself.
    """
    function = loop
    while function.block is not None and function.block.parent_op is not None:
        function = function.block.parent_op
        if tt.Func.matches(function):
            break
    timeline = Timeline(function)
    replaced = {user for load in loads for user in _replaced(load)}
    others = [d for d in collect_demands(function, scratch_bytes) if d.owner not in replaced]
    others += _landings(function, timeline, {load.op for load in loads})
    live = timeline.span(loop)
    for buffers in range(most, 0, -1):
        rings = [
            Demand(load.op, load.ring_type(buffers).size_bytes, LANDING_ALIGNMENT, live)
            for load in loads
        ]
        if any(load.is_bulk for load in loads):
            rings.append(Demand(loop, WORD_BYTES * buffers, WORD_BYTES, live))
        if footprint_bytes([*others, *rings]) <= limit_bytes:
            return buffers
    return 0


def _replaced(load: PipelinedLoad) -> list[Operation]:
    """The uses of a load that read its ring instead of memory of their own."""
    return [
        user
        for user in load.op.result.uses
        if user.block is load.op.block
        and (
            ttg.ConvertLayout.matches(user)
            or (ttg.LocalAlloc.matches(user) and holds_block(user, load.buffer_type))
        )
    ]


def _landings(function: Operation, timeline: Timeline, copied: set[Operation]) -> list[Demand]:
    """The buffers that `LowerTensorLoads` will make for loads by tensor maps."""
    demands = []
    for op in function.walk():
        if op.name == LOAD and op not in copied:
            elements = 1
            for extent in shape_of(op.result.type):
                elements *= extent
            size = elements * max(8, element_of(op.result.type).bits) // 8
            demands.append(Demand(op, size, LANDING_ALIGNMENT, timeline.span(op)))
    return demands
