"""Lowering of asynchronous copies from global to shared memory (cp.async) and of their waits.

Source: PTX ISA, "Data Movement and Conversion Instructions: cp.async", "cp.async.commit_group",
"cp.async.wait_group".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tkdebug.compiler.analysis.global_memory import vector_elems
from tkdebug.compiler.dialects import ttg
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.types import PointerType, ScalarType
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import ZEROS, Lowering
from tkdebug.compiler.targets.nvptx.lowering.conversions import shared_addresses
from tkdebug.compiler.targets.nvptx.lowering.memory.loads_and_stores import (
    Words,
    fill_words,
    load_good,
    pointee_of,
)
from tkdebug.compiler.targets.nvptx.lowering.observers import AccessGuard
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.access import (
    VectorPlan,
    plan_vectors,
    store_vector,
    widened,
)
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.buffers import buffer_place, buffer_type
from tkdebug.compiler.targets.nvptx.lowering.types import (
    Good,
    Lower,
    LoweringError,
    Modifiers,
    Registers,
    memory_bits,
)
from tkdebug.compiler.targets.target import WGMMA

_COPY_BYTES = (4, 8, 16)
_FENCE = "fence.proxy.async.shared::cta;"


@dataclass(frozen=True, slots=True)
class _TileCopy:
    """The operands that the instructions of one copy share.

    Attributes:
        ctx: the kernel.
        pointers: the pointers of the tile's registers.
        mask: i1 of each; None if all is copied.
        fill: values written where the mask is false; None for zeros, which cp.async writes itself.
        pointee: the type that the pointers point to.
        plan: the registers that an instruction copies.
        addresses: the address in shared memory for each instruction.
        element_bytes: the size of an element.
        owner: i1: whether this thread copies its elements; None if all do.
    """

    ctx: Lowering
    pointers: Registers
    mask: Registers | None
    fill: Registers | None
    pointee: ScalarType | PointerType
    plan: VectorPlan
    addresses: Sequence[LLVMValue]
    element_bytes: int
    owner: LLVMValue | None

    @property
    def vector(self) -> int:
        """Number of elements that an instruction copies."""
        return len(self.plan.groups[0])

    @property
    def size_bytes(self) -> int:
        """Number of bytes that an instruction copies."""
        return self.vector * self.element_bytes

    def write(self) -> Registers:
        """Write all copies; no registers result."""
        if self.mask is None:
            self._copy_bytes(None)
            return []
        wanted = [self.mask[group[0]] for group in self.plan.groups]
        if self.fill is None:
            self._copy_bytes([_size(self.ctx, on, self.size_bytes) for on in wanted])
            return []
        for group, address, on in zip(self.plan.groups, self.addresses, wanted, strict=True):
            filled = [self.fill[register] for register in group]
            place, size = self.pointers[group[0]], self.size_bytes
            _copy_or_fill(self.ctx, place, address, filled, on, size, self.owner)
        return []

    def write_good(self, good: Good) -> Registers:
        """Copy the good elements; no registers result."""
        ctx = self.ctx
        if self.fill is None:
            of_groups = [good[group[0] // self.vector] for group in self.plan.groups]
            self._copy_bytes([ctx.emit.mul(count, self.element_bytes) for count in of_groups])
            return []
        words = Words.of(memory_bits(self.pointee), self.vector)
        filled = fill_words(ctx, self.pointee, self.fill, len(self.pointers), words)
        got = load_good(ctx, Modifiers(), self.pointers, filled, words, good)
        loaded = list(words.groups(got))
        for group, address in zip(self.plan.groups, self.addresses, strict=True):
            store_vector(ctx, address, loaded[group[0] // self.vector], self.owner)
        if ctx.target.has(WGMMA):
            # Threads' stores are not ordered with tensor cores' reads as copies are.
            ctx.emit.asm(_FENCE, "~{memory}", "void", ())
        return []

    def write_guarded(self, guard: AccessGuard) -> None:
        """Write all copies, or only those of good elements, as one piece of PTX."""
        there = {
            group[0] // self.vector: self.ctx.emit.cast("ptrtoint", address, "i32")
            for group, address in zip(self.plan.groups, self.addresses, strict=True)
        }
        places = [there[group] for group in range(len(there))]
        instruction = _instruction(self.size_bytes)
        guard.copy(instruction, places, self.size_bytes, self.owner)

    def _copy_bytes(self, sizes: Sequence[LLVMValue] | None) -> None:
        """Write a copy of each vector, which reads the given number of bytes, or all for None."""
        for index, (group, address) in enumerate(
            zip(self.plan.groups, self.addresses, strict=True)
        ):
            read_bytes = None if sizes is None else sizes[index]
            place = self.pointers[group[0]]
            _copy(self.ctx, place, address, self.size_bytes, read_bytes, self.owner)


def lower_async_copy(
    ctx: Lowering,
    op: Operation,
    pointers: Registers,
    buffer: Registers,
    mask: Registers | None = None,
    other: Registers | None = None,
) -> Sequence[Registers]:
    """Lower to cp.async by each thread for its own elements; masked-off ones are zero or `other`.

    The token orders ops and is held in no register.
    """
    copy = _tile_copy(ctx, op, pointers, buffer[0], mask, other)
    guard = ctx.guard(op, pointers, mask, copy.vector)
    if guard is None:
        copy.write()
    elif guard.is_short and copy.fill is None:
        copy.write_guarded(guard)
    else:
        guard.either_way(copy.write, copy.write_good)
    return ([],)


def _tile_copy(
    ctx: Lowering,
    op: Operation,
    pointers: Registers,
    buffer: LLVMValue,
    mask: Registers | None,
    other: Registers | None,
) -> _TileCopy:
    copy = ttg.AsyncCopyGlobalToLocal(op)
    memory = buffer_type(copy.buffer)
    base, fixed = buffer_place(ctx, op, copy.buffer, buffer)
    layout = widened(ctx.layout(copy.pointer), memory.layout)
    plan, element_bytes = async_copy_plan(ctx, op, fixed), memory.element_bytes
    size_bytes = len(plan.groups[0]) * element_bytes
    if size_bytes not in _COPY_BYTES:
        raise LoweringError.at(
            op,
            f"{op.name}: {size_bytes} bytes follow each other, cp.async copies 4, 8 or 16; "
            "load and store this tile instead",
        )
    addresses = shared_addresses(
        ctx, base, layout, memory.layout, plan.groups, element_bytes, fixed
    )
    fill = None if other is None or all(map(_is_zero, other)) else other
    pointee, owner = pointee_of(copy.pointer), ctx.owner(ctx.layout(copy.pointer))
    return _TileCopy(ctx, pointers, mask, fill, pointee, plan, addresses, element_bytes, owner)


def _size(ctx: Lowering, wanted: LLVMValue, size_bytes: int) -> LLVMValue:
    """The number of bytes that a copy reads; it fills the rest with zeros."""
    return ctx.emit.select(wanted, integer("i32", size_bytes), integer("i32", 0))


def _copy_or_fill(
    ctx: Lowering,
    pointer: LLVMValue,
    address: LLVMValue,
    fill: Sequence[LLVMValue],
    wanted: LLVMValue,
    size_bytes: int,
    owner: LLVMValue | None,
) -> None:
    """Copy where `wanted` holds, and write `fill` elsewhere."""
    emit = ctx.emit
    elsewhere = emit.xor(wanted, integer("i1", 1))
    if owner is not None:
        elsewhere = emit.binary("and", owner, elsewhere)
    store_vector(ctx, address, fill, elsewhere)
    predicate = wanted if owner is None else emit.binary("and", owner, wanted)
    _copy(ctx, pointer, address, size_bytes, None, predicate)


def async_copy_plan(ctx: Lowering, op: Operation, fixed_offset: int) -> VectorPlan:
    """Plan copies of registers that are consecutive in memory and buffer, in the same order."""
    copy = ttg.AsyncCopyGlobalToLocal(op)
    memory = buffer_type(copy.buffer)
    layout = widened(ctx.layout(copy.pointer), memory.layout)
    mask = copy.mask
    width = vector_elems(
        op,
        ctx.layout(copy.pointer),
        ctx.axis_info[copy.pointer],
        None if mask is None else ctx.axis_info[mask],
    )
    while True:
        plan = plan_vectors(layout, memory.layout, memory.element_bytes, fixed_offset, width)
        if all(group == tuple(range(group[0], group[0] + len(group))) for group in plan.groups):
            return plan
        width //= 2


def _instruction(size_bytes: int) -> str:
    # Whole 16 bytes may bypass the first-level cache: they are not read from it again.
    cache = "cg" if size_bytes == max(_COPY_BYTES) else "ca"
    return f"cp.async.{cache}.shared.global"


def _copy(
    ctx: Lowering,
    source: LLVMValue,
    target: LLVMValue,
    size_bytes: int,
    read_bytes: LLVMValue | None,
    predicate: LLVMValue | None,
) -> None:
    emit = ctx.emit
    arguments = [emit.cast("ptrtoint", target, "i32"), source]
    constraints = ["r", "l"]
    operands = f"[$0], [$1], {size_bytes}"
    if read_bytes is not None:
        arguments.append(read_bytes)
        constraints.append("r")
        operands += ", $2"
    guard = ""
    if predicate is not None:
        guard = f"@${len(arguments)} "
        arguments.append(predicate)
        constraints.append("b")
    emit.asm(
        f"{guard}{_instruction(size_bytes)} {operands};",
        ",".join((*constraints, "~{memory}")),
        "void",
        arguments,
    )


def _is_zero(value: LLVMValue) -> bool:
    return value.constant == 0 or value.text == ZEROS.get(value.type)


def lower_commit_group(ctx: Lowering, op: Operation, *tokens: Registers) -> Sequence[Registers]:
    """Lower to cp.async.commit_group: copies since the last one become a group."""
    ctx.emit.asm("cp.async.commit_group;", "~{memory}", "void", ())
    return ([],)


def lower_async_wait(ctx: Lowering, op: Operation, *tokens: Registers) -> Sequence[Registers]:
    """Wait until all of this thread's groups but the last `num` landed.

    Other threads' copies need a barrier, too.
    """
    count = ttg.AsyncWait(op).num
    ctx.emit.asm(f"cp.async.wait_group {count};", "~{memory}", "void", ())
    return ([],)


LOWERINGS: dict[str, Lower] = {
    ttg.AsyncCopyGlobalToLocal.name: lower_async_copy,
    ttg.AsyncCommitGroup.name: lower_commit_group,
    ttg.AsyncWait.name: lower_async_wait,
}
