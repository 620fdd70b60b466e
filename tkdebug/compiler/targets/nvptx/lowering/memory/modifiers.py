"""Cache operators and eviction priorities of loads and stores.

PTX ISA, "ld" and "st": `.L1::evict_last` and its kin are the priority in L1. That in L2 is a policy
of `createpolicy`, an operand behind the address, which `.L2::cache_hint` announces (sm_80). A cache
operator excludes them.
"""

from __future__ import annotations

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import PointerAccess
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.types import Modifiers
from tkdebug.compiler.targets.target import L2_POLICIES

_PRIORITIES = frozenset(("evict_first", "evict_last"))


def modifiers_of(ctx: Lowering, op: Operation) -> Modifiers:
    """Those of a tt.load or tt.store."""
    access = PointerAccess(op)
    if tt.Load.matches(op) and tt.Load(op).volatile:
        return Modifiers(".volatile.global")
    if access.cache or access.eviction not in _PRIORITIES:
        return Modifiers(f".global{access.cache}")
    text = f".global.L1::{access.eviction}"
    if not ctx.target.has(L2_POLICIES):
        return Modifiers(text)
    return Modifiers(f"{text}.L2::cache_hint", ctx.l2_policy(access.eviction))
