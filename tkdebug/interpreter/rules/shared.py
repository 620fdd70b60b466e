"""Shared memory: buffers and views of them, copies in flight, mbarriers, asynchronous products."""

from __future__ import annotations

from tkdebug.compiler.ops import bulk_copies as names
from tkdebug.interpreter import bulk_copies, in_flight, shared_buffers
from tkdebug.interpreter.rules.types import Rule, nothing, one, unchanged

RULES: dict[str, Rule] = {
    "ttg.convert_layout": unchanged,
    "ttg.local_alloc": one(shared_buffers.local_alloc),
    "ttg.local_dealloc": shared_buffers.local_dealloc,
    "ttg.local_load": one(shared_buffers.local_load),
    "ttg.local_store": shared_buffers.local_store,
    "ttg.memdesc_index": one(shared_buffers.memdesc_index),
    "ttg.memdesc_trans": one(shared_buffers.memdesc_trans),
    "ttg.memdesc_subslice": one(shared_buffers.memdesc_subslice),
    "ttg.async_copy_global_to_local": one(in_flight.async_copy),
    "ttg.async_commit_group": one(in_flight.async_commit_group),
    "ttg.async_wait": one(in_flight.async_wait),
    "ttg.local_dot": one(in_flight.local_dot),
    "ttng.warp_group_dot": one(in_flight.warp_group_dot),
    "ttng.warp_group_dot_wait": in_flight.warp_group_dot_wait,
    "ttng.fence_async_shared": nothing,
    "gpu.barrier": nothing,
    names.INIT: bulk_copies.init_barrier,
    names.INVAL: bulk_copies.inval_barrier,
    names.EXPECT: bulk_copies.barrier_expect,
    names.WAIT: bulk_copies.wait_barrier,
    names.LOAD: bulk_copies.bulk_load,
    names.STORE: bulk_copies.bulk_store,
    names.STORE_WAIT: bulk_copies.bulk_store_wait,
}
