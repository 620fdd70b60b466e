"""The passes between Tile IR and lowering, in order."""

from __future__ import annotations

from tkdebug.compiler.passes.asserts_and_prints import DropAsserts
from tkdebug.compiler.passes.cleanup import (
    EliminateCommonSubexpressions,
    EliminateDeadCode,
    HoistLoopInvariants,
)
from tkdebug.compiler.passes.dots import (
    FoldAddIntoAccumulator,
    LowerScaledDot,
    SplitDotPrecision,
    WidenDotOperands,
)
from tkdebug.compiler.passes.gpu.allocate_shared import AllocateShared
from tkdebug.compiler.passes.gpu.assign_layouts import AssignLayouts
from tkdebug.compiler.passes.gpu.bulk_copies import LowerTensorLoads, LowerTensorStores
from tkdebug.compiler.passes.gpu.coalesce_accesses import CoalesceAccesses
from tkdebug.compiler.passes.gpu.dot_operands import PrefetchOperands, RereadOperands
from tkdebug.compiler.passes.gpu.insert_barriers import InsertBarriers
from tkdebug.compiler.passes.gpu.loop_registers import (
    CarryBasePointers,
    RematerialisePastLoops,
    SinkPastLoops,
)
from tkdebug.compiler.passes.gpu.pipeline_loops import PipelineLoops
from tkdebug.compiler.passes.gpu.pipeline_wgmma import PipelineWgmma
from tkdebug.compiler.passes.gpu.select_tensor_cores import SelectTensorCores
from tkdebug.compiler.passes.gpu.sink_conversions import SinkConversions
from tkdebug.compiler.passes.gpu.sink_reductions import SinkReductions
from tkdebug.compiler.passes.lower_descriptors import LowerDescriptors
from tkdebug.compiler.passes.pass_run import Pass
from tkdebug.compiler.passes.select_tensor_maps import SelectTensorMaps
from tkdebug.compiler.targets.nvptx.lowering.scratch import scratch_bytes
from tkdebug.compiler.targets.target import ASYNC_COPIES, VECTOR_ATOMICS, WGMMA, Target


def gpu_pipeline(
    target: Target, num_stages: int, *, debug: bool = True, host_tma_descriptors: bool = True
) -> tuple[Pass, ...]:
    """Return the passes from Tile IR (after its own) to GPU IR that can be lowered.

    Args:
        target: the architecture.
        num_stages: loads in flight of a pipelined loop, where the loop itself does not say.
        debug: whether device asserts are checked.
        host_tma_descriptors: whether launches may make tensor maps of the kernel's descriptors.
    """
    no_copies = "" if target.has(ASYNC_COPIES) else f"{target} has no asynchronous copies"
    return (
        *(() if debug else (DropAsserts(), EliminateDeadCode())),
        SelectTensorMaps(target, host_tma_descriptors),
        LowerDescriptors(),
        LowerScaledDot(),
        WidenDotOperands(target),
        FoldAddIntoAccumulator(),
        SplitDotPrecision(),
        CoalesceAccesses(target.has(VECTOR_ATOMICS)),
        SelectTensorCores(target),
        AssignLayouts(target),
        EliminateCommonSubexpressions(),
        HoistLoopInvariants(),
        EliminateDeadCode(),
        CarryBasePointers(),
        EliminateDeadCode(),
        # With mma.sync, attention fills the registers: ptxas then spills one for it.
        SinkReductions(rescaled=target.has(WGMMA)),
        LowerTensorStores(),
        RereadOperands(),
        PipelineLoops(num_stages, target.shared_bytes_per_block, scratch_bytes, no_copies),
        LowerTensorLoads(),
        PipelineWgmma(),
        PrefetchOperands(),
        EliminateCommonSubexpressions(),
        HoistLoopInvariants(),
        EliminateDeadCode(),
        SinkPastLoops(),
        RematerialisePastLoops(),
        SinkConversions(),
        AllocateShared(scratch_bytes),
        InsertBarriers(scratch_bytes),
    )
