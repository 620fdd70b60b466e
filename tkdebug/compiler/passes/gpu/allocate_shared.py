"""`AllocateShared`: where every shared-memory buffer and scratch region lies.

Buffers that are live at the same time interfere and get disjoint bytes; others may share them, and
`InsertBarriers` adds the barriers that this needs. Largest first, each goes to the lowest place
that fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis.aliasing import ALLOC, BufferAliases, buffer_aliases
from tkdebug.compiler.analysis.liveness import Interval, Timeline, live_buffers
from tkdebug.compiler.analysis.shared_hazards import ScratchBytes
from tkdebug.compiler.analysis.tensor_maps import MAKE, MAP_BYTES
from tkdebug.compiler.dialects import tt, ttg, ttng
from tkdebug.compiler.ir.core import Module, Operation, Value
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.compiler.ir.types import MemDescType
from tkdebug.compiler.rewriting.rewriter import Rewriter

_ALIGNMENT_BYTES = 16
# PTX ISA, "Matrix Descriptor Format" of wgmma: with 128-byte swizzle the pattern repeats every 1024
# bytes, and starts at addresses that are multiples of that.
_SWIZZLE_ALIGNMENT_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Demand:
    """Shared memory to be placed: the buffer of a `ttg.local_alloc`, or an op's scratch region.

    Attributes:
        live: the interval in which no other demand may have the same bytes.
    """

    owner: Operation
    size_bytes: int
    alignment_bytes: int
    live: Interval


@dataclass(frozen=True, slots=True)
class AllocateShared:
    """Sets `offset` of allocations, `scratch_offset` of ops and the function's `shared_bytes`.

    Attributes:
        scratch_bytes: gives the shared memory that the lowering of an op needs for itself.
    """

    scratch_bytes: ScratchBytes
    name: ClassVar[str] = "allocate-shared"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Collect the demands, place them, and write the offsets to their ops."""
        function = module.function
        demands = collect_demands(function, self.scratch_bytes)
        offsets = place(demands)
        total = 0
        for demand, offset in zip(demands, offsets, strict=True):
            attribute = "offset" if demand.owner.name == ALLOC else "scratch_offset"
            total = max(total, offset + demand.size_bytes)
            if demand.owner.attributes.get(attribute) != offset:
                demand.owner.attributes[attribute] = offset
                rewriter.record_change(demand.owner, "place")
        kernel = tt.Func(function)
        if kernel.shared_bytes != total or tt.Func.shared_bytes.key not in function.attributes:
            kernel.shared_bytes = total
            rewriter.record_change(function, "total")


def collect_demands(function: Operation, scratch_bytes: ScratchBytes) -> list[Demand]:
    """Everything in a `tt.func` that needs shared memory, in program order."""
    timeline = Timeline(function)
    aliases = buffer_aliases(function)
    live = live_buffers(function, timeline, aliases)
    swizzled = _swizzled(function, aliases)
    demands = []
    for op in function.walk():
        if op.name == ALLOC:
            type_ = op.result.type
            assert isinstance(type_, MemDescType)
            alignment = ttg.LocalAlloc(op).alignment or 1
            least = _SWIZZLE_ALIGNMENT_BYTES if op in swizzled else _ALIGNMENT_BYTES
            demands.append(Demand(op, type_.size_bytes, max(alignment, least), live[op]))
        elif size := scratch_bytes(op):
            least = MAP_BYTES if op.name == MAKE else _ALIGNMENT_BYTES
            demands.append(Demand(op, size, least, timeline.span(op)))
        elif OpView.scratch_offset.key in op.attributes:
            del OpView(op).scratch_offset
    return demands


def _swizzled(function: Operation, aliases: BufferAliases) -> set[Operation]:
    """The allocations that tensor cores or bulk copies access by address bits."""
    return {
        owner
        for op in function.walk()
        for operand in _read_by_address(op)
        for owner in aliases.owners(operand)
    }


def _read_by_address(op: Operation) -> tuple[Value, ...]:
    """The operands that tensor cores or bulk copies may access: buffers, and tiles in registers."""
    dot, copy = ttng.WarpGroupDot.cast(op), ttng.BulkCopy.cast(op)
    if dot is not None:
        return dot.a, dot.b
    return () if copy is None else (copy.buffer,)


def place(demands: Sequence[Demand]) -> list[int]:
    """An offset in bytes for each demand, so that no two that are live together overlap."""
    order = sorted(range(len(demands)), key=lambda i: (-demands[i].size_bytes, i))
    offsets = [0] * len(demands)
    placed: list[int] = []
    for index in order:
        demand = demands[index]
        taken = sorted(
            (offsets[other], offsets[other] + demands[other].size_bytes)
            for other in placed
            if demands[other].live.overlaps(demand.live)
        )
        offsets[index] = _first_fit(taken, demand.size_bytes, demand.alignment_bytes)
        placed.append(index)
    return offsets


def footprint_bytes(demands: Sequence[Demand]) -> int:
    """The shared memory that all of `demands` take, placed as `place` does."""
    ends = (at + d.size_bytes for at, d in zip(place(demands), demands, strict=True))
    return max(ends, default=0)


def _first_fit(taken: Sequence[tuple[int, int]], size_bytes: int, alignment_bytes: int) -> int:
    """The lowest aligned offset at which `size_bytes` overlap no interval of `taken`, sorted."""
    offset = 0
    for start, end in taken:
        if offset + size_bytes <= start:
            break
        offset = max(offset, -(-end // alignment_bytes) * alignment_bytes)
    return offset
