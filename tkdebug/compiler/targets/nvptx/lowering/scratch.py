"""Scratch shared memory that the lowering of an op needs.

`SCRATCH_BYTES` has an entry for every op whose lowering may go through shared memory; each follows
that lowering, and changes with it. AllocateShared gives such an op `scratch_offset`;
between its write and its read the lowering has a barrier of its own.
"""

from __future__ import annotations

from tkdebug.compiler.analysis.shared_hazards import ScratchBytes
from tkdebug.compiler.analysis.tensor_maps import MAKE
from tkdebug.compiler.dialects import tt, ttg
from tkdebug.compiler.ir.core import Operation
from tkdebug.compiler.ir.types import element_of, encoding_of
from tkdebug.compiler.layouts import OFFSET, SharedTrip, classify_conversion
from tkdebug.compiler.targets.nvptx.architectures import BANKS
from tkdebug.compiler.targets.nvptx.lowering.memory.atomics import atomic_scratch_bytes
from tkdebug.compiler.targets.nvptx.lowering.memory.tensor_maps import map_scratch_bytes
from tkdebug.compiler.targets.nvptx.lowering.reductions.reduce import reduce_scratch_bytes
from tkdebug.compiler.targets.nvptx.lowering.reductions.scan import scan_scratch_bytes
from tkdebug.compiler.targets.nvptx.lowering.shapes import (
    flip_scratch_bytes,
    gather_scratch_bytes,
    histogram_scratch_bytes,
)
from tkdebug.compiler.targets.nvptx.lowering.sorting import sort_scratch_bytes, topk_scratch_bytes
from tkdebug.compiler.targets.nvptx.lowering.types import memory_bits


def convert_layout_scratch_bytes(op: Operation) -> int:
    """Bytes of the buffer through which a ttg.convert_layout passes; 0 if it needs none."""
    source, target = encoding_of(ttg.ConvertLayout(op).source.type), encoding_of(op.result.type)
    if source is None or target is None:
        return 0
    element_bytes = memory_bits(element_of(op.result.type)) // 8
    plan = classify_conversion(source, target, element_bytes, BANKS)
    if not isinstance(plan, SharedTrip):
        return 0
    return plan.buffer.in_size(OFFSET) * element_bytes


SCRATCH_BYTES: dict[str, ScratchBytes] = {
    ttg.ConvertLayout.name: convert_layout_scratch_bytes,
    tt.Reduce.name: reduce_scratch_bytes,
    tt.Scan.name: scan_scratch_bytes,
    tt.Gather.name: gather_scratch_bytes,
    tt.Histogram.name: histogram_scratch_bytes,
    tt.Flip.name: flip_scratch_bytes,
    tt.Sort.name: sort_scratch_bytes,
    tt.TopK.name: topk_scratch_bytes,
    tt.BitonicMerge.name: sort_scratch_bytes,
    MAKE: map_scratch_bytes,
    tt.AtomicRmw.name: atomic_scratch_bytes,
    tt.AtomicCas.name: atomic_scratch_bytes,
    tt.AtomicLoad.name: atomic_scratch_bytes,
}


def scratch_bytes(op: Operation) -> int:
    """Bytes of shared memory that the lowering of `op` needs for itself."""
    needed = SCRATCH_BYTES.get(op.name)
    return 0 if needed is None else needed(op)
