"""How many elements one access of global memory may take."""

from __future__ import annotations

from tkdebug.compiler.analysis.axis_info import AxisInfo
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.types import PointerType, element_of
from tkdebug.compiler.layouts import LinearLayout

# Widest access of a thread (PTX ISA, "ld": .v4.b32 and .v2.b64).
MAX_ACCESS_BYTES = 16


def pointee_bytes(op: Operation) -> int:
    """Bytes of an element that the access `op` moves; an i1 takes one."""
    pointer = element_of(op.operands[0].type)
    assert isinstance(pointer, PointerType)
    return max(1, pointer.pointee.bits // 8)


def aligned_run(info: AxisInfo, dim: int, element_bytes: int) -> int:
    """Elements along `dim` that follow each other in memory and are aligned as one access."""
    return max(1, min(info.contiguity[dim], info.divisibility[dim] // element_bytes))


def fastest_first(info: AxisInfo) -> tuple[int, ...]:
    """Dimensions by how far they are contiguous in memory, the last one first on a tie."""
    rank = len(info.contiguity)
    return tuple(sorted(reversed(range(rank)), key=lambda d: -info.contiguity[d]))


def vector_elems(
    op: Operation, layout: LinearLayout, info: AxisInfo, mask: AxisInfo | None
) -> int:
    """Consecutive registers that one access of `op` can take.

    Args:
        op: a load, store or asynchronous copy.
        layout: of its pointers.
        info: of its pointers.
        mask: of its mask; None without one.
    """
    element_bytes = pointee_bytes(op)
    dim = fastest_first(info)[0]
    names = layout.out_dims
    order = (names[dim], *(name for name in names if name != names[dim]))
    count = min(
        layout.consecutive_elements(order),
        aligned_run(info, dim, element_bytes),
        MAX_ACCESS_BYTES // element_bytes,
    )
    return count if mask is None else min(count, mask.constancy[dim])
