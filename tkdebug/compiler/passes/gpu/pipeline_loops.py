"""`PipelineLoops`: a loop's loads become asynchronous copies that run iterations ahead.

Decides which loops are pipelined, what they copy ahead and how far; `loop_pipeline` has the
rewrite, and describes the loop after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis.axis_facts import AxisInfo
from tkdebug.compiler.analysis.axis_info import analyse
from tkdebug.compiler.analysis.liveness import Timeline
from tkdebug.compiler.analysis.shared_hazards import ScratchBytes
from tkdebug.compiler.analysis.tensor_maps import LANDING_ALIGNMENT, LOAD
from tkdebug.compiler.dialects import scf, tt, ttg
from tkdebug.compiler.ir.core import Module, Operation, Value
from tkdebug.compiler.ir.types import element_of, shape_of
from tkdebug.compiler.passes.gpu.allocate_shared import Demand, collect_demands, footprint_bytes
from tkdebug.compiler.passes.gpu.bulk_copies import WORD_BYTES, holds_block
from tkdebug.compiler.passes.gpu.loop_pipeline import LoopPipeline, has_carried_dot, trip_count
from tkdebug.compiler.passes.gpu.pipelined_loads import (
    PipelinedLoad,
    Refusal,
    pipelined_loads,
    widen_copies,
)
from tkdebug.compiler.rewriting.rewriter import Rewriter


def fitting_buffers(
    loop: Operation,
    loads: Sequence[PipelinedLoad],
    most: int,
    limit_bytes: int,
    scratch_bytes: ScratchBytes,
) -> int:
    """The maximum number of buffers of each ring, up to `most`, that fit; 0 if not even one does.

    Everything is placed as `AllocateShared` would place it, with the rings where the loop is:
    buffers that are live only before or after the loop (an epilogue's scratch) may share their
    bytes.

    Args:
        loop: an `scf.for`.
        loads: the loads that are copied into rings.
        most: the number of buffers that is asked for.
        limit_bytes: shared memory that a block can have.
        scratch_bytes: gives the shared memory that the lowering of an op needs for itself.
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
    """The users of a load that will read its ring, and so need no shared memory of their own."""
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


def _no_scratch(op: Operation) -> int:
    return 0


def _unheard(op: Operation, reason: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class _Plan:
    """The pipeline of a loop.

    Attributes:
        loads: the loads that are copied ahead.
        buffers: the number of buffers in each ring.
        distance: the number of iterations ahead; below 1 the loop is not pipelined.
    """

    loads: list[PipelinedLoad]
    buffers: int
    distance: int


@dataclass(frozen=True, slots=True)
class PipelineLoops:
    """Copies ahead the loads of dots in loops; with `num_stages` on the loop itself, all its loads.

    Attributes:
        num_stages: the number of stages for loops that state none.
        shared_bytes: shared memory that a program can have; rings that do not fit get fewer
            buffers. None for no limit.
        scratch_bytes: gives the shared memory that the lowering of an op needs for itself.
        obstacle: why no loop can be pipelined; "" if nothing is in the way.
    """

    num_stages: int = 3
    shared_bytes: int | None = None
    scratch_bytes: ScratchBytes = _no_scratch
    obstacle: str = ""
    name: ClassVar[str] = "pipeline-loops"
    other_rounds: ClassVar[frozenset[str]] = frozenset(
        ("fill-pipeline", "copy-ahead", "look-up-ahead")
    )

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Pipeline the innermost `scf.for` loops that `_plan` accepts; remarks name other loads."""
        infos = analyse(module.function)
        for loop in [op for op in module.walk() if scf.For.matches(op)]:
            if not rewriter.begins(loop, "pipeline"):
                continue
            if self._widen(module, loop, infos, rewriter):
                infos = analyse(module.function)
            self._pipeline(loop, infos, rewriter)
        rewriter.commit()

    def _widen(
        self,
        module: Module,
        loop: Operation,
        infos: Mapping[Value, AxisInfo],
        rewriter: Rewriter,
    ) -> bool:
        """Let a loop that will be pipelined copy small vectors in few accesses."""
        plan = self._plan(loop, infos)
        function = tt.Func(module.function)
        warps = function.num_warps
        changed = plan.distance > 0 and widen_copies(
            loop, plan.loads, infos, warps, function.threads_per_warp, rewriter
        )
        rewriter.commit()
        return changed

    def _pipeline(
        self, loop: Operation, infos: Mapping[Value, AxisInfo], rewriter: Rewriter
    ) -> None:
        plan = self._plan(loop, infos, lambda op, reason: rewriter.remark(op, "pipelined", reason))
        if plan.distance > 0:
            LoopPipeline(loop, plan.loads, plan.buffers, plan.distance, rewriter).build()
        rewriter.commit()

    def _plan(
        self,
        loop: Operation,
        infos: Mapping[Value, AxisInfo],
        refuse: Refusal = _unheard,
    ) -> _Plan:
        """The pipeline of a loop; `refuse` is called with the loads that cannot run ahead."""
        asked = scf.For(loop).num_stages
        stages = asked if isinstance(asked, int) else self.num_stages
        if not _is_innermost(loop) or trip_count(loop) in (0, 1):
            return _Plan([], 0, 0)
        needs_dot = not isinstance(asked, int)
        reason = self.obstacle
        if not reason and stages < 2:
            reason = f"num_stages is {stages}"
        elif not reason and not infos[scf.For(loop).step].non_negative:
            # The loop says that its step is positive, but the analysis of the slices cannot see it.
            reason = "the step of the loop is not known to be positive"
        if reason:
            for load in pipelined_loads(loop, infos, needs_dot):
                refuse(load.op, reason)
            return _Plan([], 0, 0)
        loads = pipelined_loads(loop, infos, needs_dot, refuse)
        buffers = self._buffers(loop, loads, stages) if loads else 0
        refills = buffers < stages and _can_refill(loop, loads)
        distance = buffers if refills else buffers - 1
        if distance < 1:
            for load in loads:
                refuse(load.op, "two buffers of what it copies do not fit into shared memory")
        return _Plan(loads, buffers, distance)

    def _buffers(self, loop: Operation, loads: Sequence[PipelinedLoad], stages: int) -> int:
        """The number of buffers of each ring."""
        if self.shared_bytes is None:
            return stages
        return fitting_buffers(loop, loads, stages, self.shared_bytes, self.scratch_bytes)


def _can_refill(loop: Operation, loads: Sequence[PipelinedLoad]) -> bool:
    """Whether an iteration can refill, at its end, the buffers that it has read.

    Only copies by threads do that, and only if no dot runs on into the next iteration: such a dot
    may still read the buffers.
    """
    return not any(load.is_bulk for load in loads) and not has_carried_dot(loop)


def _is_innermost(loop: Operation) -> bool:
    return not any(scf.Loop.matches(op) for op in loop.walk() if op is not loop)
