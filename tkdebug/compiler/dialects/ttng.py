"""Triton's ttng dialect: tensor cores of a warp group, mbarriers and bulk copies (TMA)."""

from __future__ import annotations

from tkdebug.compiler.dialects.interfaces import DotLike
from tkdebug.compiler.ir.op_view import (
    BUFFERS,
    DESCRIPTORS,
    I1,
    I32,
    OpView,
    VariadicOperandsDef,
    attribute_def,
    operand_def,
    variadic_operands_def,
    variadic_results_def,
)


class WarpGroupDot(DotLike):
    """a @ b + acc on the tensor cores of a warp group; with `async` it ends at its wait."""

    name = "ttng.warp_group_dot"
    is_async = attribute_def("async", bool, False)


class WarpGroupDotWait(OpView):
    """Waits until at most the last `pendings` dots still run; hands its operands on."""

    name = "ttng.warp_group_dot_wait"
    sources = variadic_operands_def()
    results = variadic_results_def()
    pendings = attribute_def("pendings", int)


class FenceAsyncShared(OpView):
    """Makes stores to shared memory visible to tensor cores and bulk copies."""

    name = "ttng.fence_async_shared"


class BarrierOp(OpView):
    """Something done to an mbarrier."""

    barrier = operand_def(BUFFERS)


class InitBarrier(BarrierOp):
    """Makes an mbarrier whose phases `count` threads end; its first phase has number 0."""

    name = "ttng.init_barrier"
    count = attribute_def("count", int)


class InvalBarrier(BarrierOp):
    """Ends an mbarrier's life; its memory can be used for something else."""

    name = "ttng.inval_barrier"


class BarrierExpect(BarrierOp):
    """Where the predicate holds, one thread announces `size_bytes` to an mbarrier and arrives."""

    name = "ttng.barrier_expect"
    predicate = operand_def(I1)
    size_bytes = attribute_def("size_bytes", int)


class WaitBarrier(BarrierOp):
    """Waits until the mbarrier's phase of this parity (0 or 1) has ended."""

    name = "ttng.wait_barrier"
    phase = operand_def(I32)


class BulkCopy(OpView):
    """A bulk copy of a block between memory and a buffer."""

    descriptor = operand_def(DESCRIPTORS)
    buffer = operand_def(BUFFERS)
    coordinates: VariadicOperandsDef


class AsyncTmaCopyGlobalToLocal(BulkCopy):
    """Where the predicate holds, starts to copy a block to a buffer; it lands at an mbarrier."""

    name = "ttng.async_tma_copy_global_to_local"
    barrier = operand_def(BUFFERS)
    predicate = operand_def(I1)
    coordinates = variadic_operands_def(I32)


class AsyncTmaCopyLocalToGlobal(BulkCopy):
    """Starts to copy a buffer to a block in memory: a group of its own."""

    name = "ttng.async_tma_copy_local_to_global"
    coordinates = variadic_operands_def(I32)


class AsyncTmaStoreWait(OpView):
    """Waits until at most the last `pendings` copies still read their buffers."""

    name = "ttng.async_tma_store_wait"
    pendings = attribute_def("pendings", int)
