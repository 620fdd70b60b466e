"""Threads of a program: which accesses which element of a tile, and the order among them.

The facts are read off GPU IR right after layouts were assigned, where ops are still in the order of
the source, and noted for the Tile IR ops that each op was made of. Threads are ordered by a
barrier, an atomic, and every exchange through shared memory: a reduction across warps, a change of
layout, the operands of a dot. Barriers that `InsertBarriers` puts between accesses to global memory
are not there yet: Triton has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tkdebug.compiler.analysis.global_memory import pointer_base, waits_for_others
from tkdebug.compiler.dialects import scf, tt, ttg
from tkdebug.compiler.dialects.interfaces import DotLike, PointerAccess, ProgramBarrier
from tkdebug.compiler.ir.control_flow import BRANCHES, CONTROL_FLOW, deciding, forwarded
from tkdebug.compiler.ir.core import Block, Module, Operation, Value
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import encoding_of, shape_of
from tkdebug.compiler.layouts import LinearLayout

_ACCESSES = names_of(tt.Load, tt.Store)
_STORES = names_of(tt.Store, tt.Atomic, tt.DescriptorStore, tt.DescriptorScatter)
# Smaller tiles may leave some of the threads of 32 warps without an element of their own.
MOST_THREADS = 1024
# Barriers are noted at these ops. Threads pass them in order, so a barrier also orders the
# accesses before it.
_PASSED = _ACCESSES | names_of(scf.If, scf.For, scf.While, scf.Yield, scf.Condition, tt.Return)
_BARRIERS = names_of(
    *(ProgramBarrier, tt.Atomic),
    *(tt.DescriptorLoad, tt.DescriptorStore, tt.DescriptorGather, tt.DescriptorScatter),
)


@dataclass(frozen=True, slots=True, eq=False)
class ThreadOrder:
    """Layouts and barriers of one kernel, by ops of its Tile IR.

    Attributes:
        layouts: for each load and store, the layouts in which threads do it; None for a scalar.
        barriers: the ops before which all threads have waited for each other.
    """

    layouts: Mapping[Operation, tuple[LinearLayout | None, ...]]
    barriers: frozenset[Operation]


@dataclass(frozen=True, slots=True)
class MeetingAccesses:
    """The loads and stores of a module by which threads may pass values to each other.

    Attributes:
        of_one_pointer: accesses that load and store, or store twice, through one argument or other
            pointer, and not by the same threads, as far as the source shows.
        of_all: all accesses, if two arguments may share memory; none if nothing is stored.
    """

    of_one_pointer: frozenset[Operation]
    of_all: frozenset[Operation]

    @classmethod
    def of(cls, module: Module) -> MeetingAccesses:
        """Return the meeting accesses of a module, computed at the first call."""
        found = module.derived.get(cls)
        if found is None:
            found = module.derived[cls] = _meeting_accesses(module.function)
        assert isinstance(found, cls)
        return found


def _meeting_accesses(function: Operation) -> MeetingAccesses:
    groups: dict[Value, list[Operation]] = {}
    for op in function.walk():
        if op.name in _ACCESSES and not waits_for_others(op):
            groups.setdefault(pointer_base(PointerAccess(op).pointer), []).append(op)
    ops = [op for group in groups.values() for op in group]
    is_stored = any(map(tt.Store.matches, ops)) and len(groups) > 1
    return MeetingAccesses(
        frozenset(op for group in groups.values() if _may_meet(group) for op in group),
        frozenset(ops if is_stored else ()),
    )


def _may_meet(ops: Sequence[Operation]) -> bool:
    """Whether threads may have to wait for each other between two of `ops`, all on one tensor."""
    stores = [op for op in ops if tt.Store.matches(op)]
    return any(
        not _is_same_place(store, other) for store in stores for other in ops if other is not store
    )


def _is_same_place(store: Operation, other: Operation) -> bool:
    """Whether both access the same elements by the same threads, as far as the source shows."""
    if PointerAccess(store).pointer is not PointerAccess(other).pointer:
        return False
    if not tt.Load.matches(other):
        return True
    uses, shape = Uses.of(other), accessed_shape(other)
    if not uses.decide and all(accessed_shape(use) == shape for use in uses.stores):
        return True
    return shape is not None and math.prod(shape) >= MOST_THREADS


def accessed_shape(access: Operation) -> tuple[int, ...] | None:
    """Return the shape of the tile that an access by pointers reaches; None for other ops."""
    pointers = PointerAccess.cast(access)
    return None if pointers is None else shape_of(pointers.pointer.type)


def thread_order(
    tile: Module, gpu_ir: Module, scratch_bytes: Callable[[Operation], int]
) -> ThreadOrder:
    """Return the layouts and barriers of a kernel's threads.

    Args:
        tile: the kernel's Tile IR after the passes.
        gpu_ir: the GPU IR made of `tile`, with layouts, and with ids and locations of its ops.
        scratch_bytes: how much shared memory the lowering of an op needs for itself.
    """
    return _Reading(tile, scratch_bytes).of(gpu_ir)


class _Reading:
    def __init__(self, tile: Module, scratch_bytes: Callable[[Operation], int]) -> None:
        ops = tile.walk()
        self._by_id = {op.id: op for op in ops}
        self._by_place: dict[tuple[str, object], list[Operation]] = {}
        for op in ops:
            self._by_place.setdefault((op.name, op.location.primary), []).append(op)
        self._scratch_bytes = scratch_bytes
        self._layouts: dict[Operation, dict[LinearLayout | None, None]] = {}
        self._barriers: set[Operation] = set()
        # Users of values that threads exchange: the exchange may be as late as right before them.
        self._due: set[Operation] = set()

    def of(self, gpu_ir: Module) -> ThreadOrder:
        """Return the layouts and barriers of the threads of `gpu_ir`, by Tile IR op."""
        self._block(gpu_ir.function.regions[0].block)
        layouts = {op: tuple(found) for op, found in self._layouts.items()}
        return ThreadOrder(layouts, frozenset(self._barriers))

    def _block(self, block: Block) -> None:
        is_ordered = False
        for op in block.operations:
            orders = self._orders(op)
            is_ordered = is_ordered or orders or op in self._due
            if orders:
                for result in op.results:
                    self._due.update(result.uses)
            if op.name in _PASSED:
                for here in self._tile_ops(op):
                    if op.name in _ACCESSES:
                        layout = encoding_of(PointerAccess(op).pointer.type)
                        self._layouts.setdefault(here, {})[layout] = None
                    if is_ordered:
                        self._barriers.add(here)
                is_ordered = False
            for region in op.regions:
                if op.name in _PASSED:
                    self._block(region.block)

    def _tile_ops(self, op: Operation) -> list[Operation]:
        """The Tile IR ops that an op of GPU IR was made of."""
        known = self._by_id.get(op.id)
        if known is not None and known.name == op.name:
            return [known]
        return self._by_place.get((op.name, op.location.primary), [])

    def _orders(self, op: Operation) -> bool:
        if op.name in _BARRIERS or DotLike.matches(op) or self._scratch_bytes(op):
            return True
        if tt.ElementwiseInlineAsm.matches(op):
            return "bar" in tt.ElementwiseInlineAsm(op).asm
        return ttg.LocalAlloc.matches(op) and bool(op.operands)


@dataclass(frozen=True, slots=True)
class Uses:
    """The stores and branches that depend on the elements of a load.

    Attributes:
        stores: the stores and atomics that the elements reach.
        decide: whether the elements decide a branch, which all threads take alike.
    """

    stores: tuple[Operation, ...]
    decide: bool

    @classmethod
    def of(cls, load: Operation) -> Uses:
        """Return the uses of a load."""
        found: dict[Operation, None] = {}
        decide = False
        pending, seen = [load.result], {load.result}
        while pending:
            value = pending.pop()
            following: list[Value] = []
            for user in value.uses:
                if user.name in _STORES:
                    found[user] = None
                decide = decide or (user.name in BRANCHES and value in deciding(user))
                following += [target for source, target in forwarded(user) if source is value]
                if user.name not in CONTROL_FLOW:
                    following += user.results
            pending += [one for one in following if one not in seen]
            seen.update(following)
        return cls(tuple(found), decide)
