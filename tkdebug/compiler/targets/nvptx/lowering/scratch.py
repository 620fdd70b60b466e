"""How much scratch shared memory the lowering of an op needs.

`SCRATCH_BYTES` has an entry for every op whose lowering may go through shared memory; each stands
for what that lowering does, and changes with it. AllocateShared gives such an op `scratch_offset`;
between its write and its read the lowering has a barrier of its own.
"""

from __future__ import annotations

from tkdebug.compiler.analysis.shared_hazards import ScratchBytes
from tkdebug.compiler.analysis.tensor_maps import MAKE
from tkdebug.compiler.ir.core import Operation
from tkdebug.compiler.ir.types import element_of, encoding_of
from tkdebug.compiler.layouts import OFFSET, SharedTrip, classify_conversion
from tkdebug.compiler.targets.nvptx.lowering.atomics import atomic_scratch_bytes
from tkdebug.compiler.targets.nvptx.lowering.indexing import (
    flip_scratch_bytes,
    gather_scratch_bytes,
    histogram_scratch_bytes,
)
from tkdebug.compiler.targets.nvptx.lowering.reductions import reduce_scratch_bytes
from tkdebug.compiler.targets.nvptx.lowering.scans import scan_scratch_bytes
from tkdebug.compiler.targets.nvptx.lowering.sorting import sort_scratch_bytes, topk_scratch_bytes
from tkdebug.compiler.targets.nvptx.lowering.tensor_maps import map_scratch_bytes
from tkdebug.compiler.targets.nvptx.lowering.types import memory_bits


def convert_layout_scratch_bytes(op: Operation) -> int:
    """Bytes of the buffer through which a ttg.convert_layout goes; 0 where it needs none."""
    source, target = encoding_of(op.operands[0].type), encoding_of(op.result.type)
    if source is None or target is None:
        return 0
    element_bytes = memory_bits(element_of(op.result.type)) // 8
    plan = classify_conversion(source, target, element_bytes)
    if not isinstance(plan, SharedTrip):
        return 0
    return plan.buffer.in_size(OFFSET) * element_bytes


SCRATCH_BYTES: dict[str, ScratchBytes] = {
    "ttg.convert_layout": convert_layout_scratch_bytes,
    "tt.reduce": reduce_scratch_bytes,
    "tt.scan": scan_scratch_bytes,
    "tt.gather": gather_scratch_bytes,
    "tt.histogram": histogram_scratch_bytes,
    "tt.flip": flip_scratch_bytes,
    "tt.sort": sort_scratch_bytes,
    "tt.topk": topk_scratch_bytes,
    "tt.bitonic_merge": sort_scratch_bytes,
    MAKE: map_scratch_bytes,
    "tt.atomic_rmw": atomic_scratch_bytes,
    "tt.atomic_cas": atomic_scratch_bytes,
}


def scratch_bytes(op: Operation) -> int:
    """Bytes of shared memory that the lowering of `op` needs for itself."""
    needed = SCRATCH_BYTES.get(op.name)
    return 0 if needed is None else needed(op)
