"""Lowering of atomics: one thread acts for an element, all that hold it learn the result.

Scalars are thread 0's affair. A scalar atomic that releases waits for the whole block before, so
that the program's writes, not merely this thread's, come first; one whose result is used has every
thread wait for it. Tiles order each thread's own accesses, as upstream's do: where a thread has one
instruction, that one does, else fences before and behind all of them, since each one by itself
would wait for the one before and drop what L1 holds.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: atom".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tkdebug.compiler.analysis.vectorization import vector_elems
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import PointerAccess
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.types import TensorType, element_of
from tkdebug.compiler.layouts import LANE, WARP, LinearLayout
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import TYPE_BITS, WARP_SIZE, Lowering
from tkdebug.compiler.targets.nvptx.lowering.memory.atomic_updates import (
    LETTERS,
    atom,
    update,
    vector_sum,
)
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.access import load_vector, store_vector
from tkdebug.compiler.targets.nvptx.lowering.types import Good, Lower, Registers, memory_bits
from tkdebug.compiler.targets.target import VECTOR_ATOMICS

_RELEASES = ("release", "acq_rel")
_ACQUIRES = ("acquire", "acq_rel")


def lower_atomic_load(
    ctx: Lowering, op: Operation, pointers: Registers, mask: Registers | None = None
) -> Sequence[Registers]:
    """`ld` with the semantics and the scope; zero where the mask is off."""
    acting, type_ = _begin(ctx, op), ctx.element_type(op.result)
    sem = _ordered(ctx, op, len(pointers))
    bits = TYPE_BITS[type_]
    name = f"ld.{sem}.{tt.Atomic(op).scope}.global.b{bits}"

    def loads(mask: Registers | None) -> Registers:
        results = []
        for place, pointer in enumerate(pointers):
            predicate = _both(ctx, acting, None if mask is None else mask[place])
            guard = "" if predicate is None else "@$2 "
            arguments = [pointer] if predicate is None else [pointer, predicate]
            text = f"mov.b{max(bits, 16)} $0, 0;\n{guard}{name} $0, [$1];"
            constraints = f"=&{LETTERS[bits]},l{'' if predicate is None else ',b'},~{{memory}}"
            word = ctx.emit.asm(text, constraints, f"i{max(bits, 16)}", arguments)
            if bits < 16:
                word = ctx.emit.cast("trunc", word, f"i{bits}")
            results.append(ctx.from_bits(word, type_))
        return results

    guard = ctx.guard(op, pointers, mask, 1)
    if guard is None:
        results = loads(mask)
    else:
        results = guard.either_way(
            lambda: loads(mask), lambda good: loads(_masked_on(ctx, good, 1))
        )
    _fence_behind(ctx, op, sem)
    return (_shared_with_all(ctx, op, results),)


def _both(ctx: Lowering, acting: LLVMValue | None, mask: LLVMValue | None) -> LLVMValue | None:
    """Where a thread acts and the mask is on; None for everywhere."""
    if acting is None or mask is None:
        return acting if mask is None else mask
    return ctx.emit.bit_and(acting, mask)


def lower_atomic_rmw(
    ctx: Lowering,
    op: Operation,
    pointers: Registers,
    values: Registers,
    mask: Registers | None = None,
) -> Sequence[Registers]:
    """`atom`, predicated by the mask and by who acts for the element."""
    if _only_looks(op):
        return lower_atomic_load(ctx, op, pointers, mask)
    acting, group = _begin(ctx, op), _group(ctx, op)
    sem = _ordered(ctx, op, len(pointers) // group)
    update = partial(_updates, ctx, op, sem, values=values, acting=acting)
    guard = ctx.guard(op, pointers, mask, group)
    if guard is None:
        results = update(pointers, mask, group=group)
    else:
        results = guard.either_way(
            lambda: update(pointers, mask, group=group),
            lambda good: update(pointers, _masked_on(ctx, good, group), group=1),
        )
    _fence_behind(ctx, op, sem)
    return (_shared_with_all(ctx, op, results),)


def _only_looks(op: Operation) -> bool:
    """Whether it adds nothing to one element, as loops do that wait for another program.

    Such loops load, as upstream's do: updates of all programs that wait would come one by one.
    """
    rmw = tt.AtomicRmw(op)
    if isinstance(rmw.pointer.type, TensorType) or tt.Atomic(op).sem in _RELEASES:
        return False
    return rmw.kind in ("add", "fadd") and constant_value(rmw.value) == 0


def _updates(
    ctx: Lowering,
    op: Operation,
    sem: str,
    pointers: Registers,
    mask: Registers | None,
    *,
    values: Registers,
    acting: LLVMValue | None,
    group: int,
) -> Registers:
    """The old values of registers, `group` of them by each instruction."""
    results: Registers = []
    for first in range(0, len(pointers), group):
        predicate = _both(ctx, acting, None if mask is None else mask[first])
        part = values[first : first + group]
        if group > 1:
            results += vector_sum(ctx, op, sem, pointers[first], part, predicate)
        else:
            results.append(update(ctx, op, sem, pointers[first], part[0], predicate))
    return results


def _group(ctx: Lowering, op: Operation) -> int:
    """Registers of one access: several for float sums that the target has vectors or pairs of."""
    pointer, type_ = tt.AtomicRmw(op).pointer, ctx.element_type(op.result)
    if not isinstance(pointer.type, TensorType) or tt.AtomicRmw(op).kind != "fadd":
        return 1
    vectors = ctx.target.has(VECTOR_ATOMICS)
    longest = {"half": 8 if vectors else 2, "bfloat": 8 if vectors else 1, "float": 4 * vectors}
    mask = tt.AtomicRmw(op).mask
    masks = None if mask is None else ctx.axis_info[mask]
    together = vector_elems(op, ctx.layout(pointer), ctx.axis_info[pointer], masks)
    return max(1, min(together, longest.get(type_, 1)))


def lower_atomic_cas(
    ctx: Lowering, op: Operation, pointers: Registers, compare: Registers, values: Registers
) -> Sequence[Registers]:
    """`atom.cas` on the bits of the element."""
    acting, sem = _begin(ctx, op), _ordered(ctx, op, len(pointers))
    swap = partial(_swaps, ctx, op, sem, pointers, compare, values)
    guard = ctx.guard(op, pointers, None, 1)
    if guard is None:
        results = swap([acting] * len(pointers))
    else:
        results = guard.either_way(
            lambda: swap([acting] * len(pointers)),
            lambda good: swap([_both(ctx, acting, x) for x in _masked_on(ctx, good, 1)]),
        )
    _fence_behind(ctx, op, sem)
    return (_shared_with_all(ctx, op, results),)


def _swaps(
    ctx: Lowering,
    op: Operation,
    sem: str,
    pointers: Registers,
    compare: Registers,
    values: Registers,
    predicates: Sequence[LLVMValue | None],
) -> Registers:
    results = []
    for pointer, expected, value, predicate in zip(
        pointers, compare, values, predicates, strict=True
    ):
        words = (ctx.to_bits(expected), ctx.to_bits(value))
        name = f"cas.b{TYPE_BITS[value.type]}"
        old = atom(ctx, op, sem, ((name, predicate),), pointer, words)
        results.append(ctx.from_bits(old, value.type))
    return results


def _begin(ctx: Lowering, op: Operation) -> LLVMValue | None:
    """Order what came before; i1: whether this thread acts, None when all do."""
    pointer = PointerAccess(op).pointer
    if isinstance(pointer.type, TensorType):
        return ctx.owner(ctx.layout(pointer))
    if tt.Atomic(op).sem in _RELEASES:
        ctx.barrier()
    return ctx.is_first_thread


def _ordered(ctx: Lowering, op: Operation, instructions: int) -> str:
    """The semantics of so many instructions, after a fence where they leave it to that."""
    sem = tt.Atomic(op).sem
    if instructions == 1 or sem == "relaxed":
        return sem
    if sem in _RELEASES:
        _fence(ctx, op)
    return "relaxed"


def _fence_behind(ctx: Lowering, op: Operation, sem: str) -> None:
    # Who does not look at what was there learns nothing of those that wrote it.
    if sem != tt.Atomic(op).sem and tt.Atomic(op).sem in _ACQUIRES and op.result.uses:
        _fence(ctx, op)


def _fence(ctx: Lowering, op: Operation) -> None:
    ctx.emit.asm(f"fence.acq_rel.{tt.Atomic(op).scope};", "~{memory}", "void", ())


# The result in every thread that holds the element


def atomic_scratch_bytes(op: Operation) -> int:
    """Scratch memory through which the result goes; 0 where it needs none."""
    type_ = op.result.type
    if not op.result.uses:
        return 0
    element_bytes = memory_bits(element_of(type_)) // 8
    if not isinstance(type_, TensorType):
        return element_bytes
    assert isinstance(type_.encoding, LinearLayout)
    return type_.size_elems * element_bytes if _crosses_warps(type_.encoding) else 0


def _crosses_warps(layout: LinearLayout) -> bool:
    """Whether copies are elsewhere than in lanes that differ from the owner's by free bits."""
    free = layout.free_masks
    bases = layout.packed_bases(LANE)
    moved = any(base for bit, base in enumerate(bases) if free.get(LANE, 0) >> bit & 1)
    return moved or bool(free.get(WARP, 0))


def _shared_with_all(ctx: Lowering, op: Operation, results: Registers) -> Registers:
    if not op.result.uses:
        return results
    if not isinstance(op.result.type, TensorType):
        return _scalar_shared(ctx, op, results)
    layout = ctx.layout(op.result)
    if _crosses_warps(layout):
        return _tile_shared(ctx, op, layout, results)
    copies = layout.free_masks.get(LANE, 0)
    if not copies:
        return results
    owner = ctx.emit.bit_and(ctx.lane, ~copies & (WARP_SIZE - 1))
    return [ctx.shuffle("idx", value, owner) for value in results]


def _scalar_shared(ctx: Lowering, op: Operation, results: Registers) -> Registers:
    place = ctx.scratch(op)
    store_vector(ctx, place, results, ctx.is_first_thread)
    ctx.barrier()
    return load_vector(ctx, place, results[0].type, 1)


def _tile_shared(
    ctx: Lowering, op: Operation, layout: LinearLayout, results: Registers
) -> Registers:
    """Through shared memory, in which each element has its place."""
    base, element_bytes = ctx.scratch(op), max(8, TYPE_BITS[results[0].type]) // 8
    places = []
    for coordinates in ctx.coordinates(layout):
        index = integer("i32", 0)
        for coordinate, (_, size) in zip(coordinates, layout.outs, strict=True):
            index = ctx.emit.add(ctx.emit.mul(index, size), coordinate)
        places.append(ctx.emit.gep(base, f"i{8 * element_bytes}", index))
    owner = ctx.owner(layout)
    for place, value in zip(places, results, strict=True):
        store_vector(ctx, place, [value], owner)
    ctx.barrier()
    return [load_vector(ctx, place, results[0].type, 1)[0] for place in places]


def _masked_on(ctx: Lowering, good: Good, group: int) -> Registers:
    """i1 of each register: whether its element is masked on and good."""
    return [ctx.emit.icmp("ugt", count, place) for count in good for place in range(group)]


LOWERINGS: dict[str, Lower] = {
    tt.AtomicLoad.name: lower_atomic_load,
    tt.AtomicRmw.name: lower_atomic_rmw,
    tt.AtomicCas.name: lower_atomic_cas,
}
