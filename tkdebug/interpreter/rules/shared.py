"""Shared memory: buffers and views of them, copies in flight, mbarriers, asynchronous products."""

from __future__ import annotations

from tkdebug.compiler.dialects import gpu, ttg, ttng
from tkdebug.interpreter.asynchronous import bulk_copies, in_flight
from tkdebug.interpreter.memory import shared_buffers
from tkdebug.interpreter.rules.types import Rules, nothing, one, unchanged

RULES: Rules = {
    ttg.ConvertLayout: unchanged,
    ttg.LocalAlloc: one(shared_buffers.local_alloc),
    ttg.LocalDealloc: shared_buffers.local_dealloc,
    ttg.LocalLoad: one(shared_buffers.local_load),
    ttg.LocalStore: shared_buffers.local_store,
    ttg.MemDescIndex: one(shared_buffers.memdesc_index),
    ttg.MemDescTrans: one(shared_buffers.memdesc_trans),
    ttg.MemDescSubslice: one(shared_buffers.memdesc_subslice),
    ttg.AsyncCopyGlobalToLocal: one(in_flight.async_copy),
    ttg.AsyncCommitGroup: one(in_flight.async_commit_group),
    ttg.AsyncWait: one(in_flight.async_wait),
    ttg.LocalDot: one(in_flight.local_dot),
    ttng.WarpGroupDot: one(in_flight.warp_group_dot),
    ttng.WarpGroupDotWait: in_flight.warp_group_dot_wait,
    ttng.FenceAsyncShared: nothing,
    gpu.Barrier: nothing,
    ttng.InitBarrier: bulk_copies.init_barrier,
    ttng.InvalBarrier: bulk_copies.inval_barrier,
    ttng.BarrierExpect: bulk_copies.barrier_expect,
    ttng.WaitBarrier: bulk_copies.wait_barrier,
    ttng.AsyncTmaCopyGlobalToLocal: bulk_copies.bulk_load,
    ttng.AsyncTmaCopyLocalToGlobal: bulk_copies.bulk_store,
    ttng.AsyncTmaStoreWait: bulk_copies.bulk_store_wait,
}
