"""Shared memory: buffers and views of them, copies in flight, mbarriers, asynchronous products."""

from __future__ import annotations

from tkdebug.compiler.ops import bulk_copies
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.rules.types import Rule, nothing, one, unchanged

RULES: dict[str, Rule] = {
    "ttg.convert_layout": unchanged,
    "ttg.local_alloc": one(Evaluator.local_alloc),
    "ttg.local_dealloc": Evaluator.local_dealloc,
    "ttg.local_load": one(Evaluator.local_load),
    "ttg.local_store": Evaluator.local_store,
    "ttg.memdesc_index": one(Evaluator.memdesc_index),
    "ttg.memdesc_trans": one(Evaluator.memdesc_trans),
    "ttg.memdesc_subslice": one(Evaluator.memdesc_subslice),
    "ttg.async_copy_global_to_local": one(Evaluator.async_copy),
    "ttg.async_commit_group": one(Evaluator.async_commit_group),
    "ttg.async_wait": one(Evaluator.async_wait),
    "ttg.local_dot": one(Evaluator.local_dot),
    "ttng.warp_group_dot": one(Evaluator.warp_group_dot),
    "ttng.warp_group_dot_wait": Evaluator.warp_group_dot_wait,
    "ttng.fence_async_shared": nothing,
    "gpu.barrier": nothing,
    bulk_copies.INIT: Evaluator.init_barrier,
    bulk_copies.INVAL: Evaluator.inval_barrier,
    bulk_copies.EXPECT: Evaluator.barrier_expect,
    bulk_copies.WAIT: Evaluator.wait_barrier,
    bulk_copies.LOAD: Evaluator.bulk_load,
    bulk_copies.STORE: Evaluator.bulk_store,
    bulk_copies.STORE_WAIT: Evaluator.bulk_store_wait,
}
