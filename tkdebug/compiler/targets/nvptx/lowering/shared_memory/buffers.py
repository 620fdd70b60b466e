"""Lowering of shared-memory buffers: allocation, views, loads and stores of tiles, barriers."""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.compiler.dialects import gpu, ttg, ttng
from tkdebug.compiler.ir import MemDescType, Operation, Value
from tkdebug.compiler.layouts import OFFSET, LinearLayout
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.conversions import matrix_addresses, shared_addresses
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.access import (
    MAX_ACCESS_BYTES,
    WORD_BYTES,
    MatrixPlan,
    elements_of_word,
    load_bytes,
    load_vector,
    plan_matrices,
    plan_vectors,
    store_groups,
    store_matrices,
    widened,
)
from tkdebug.compiler.targets.nvptx.lowering.types import Lower, LoweringError, Registers, llvm_type
from tkdebug.compiler.targets.target import STMATRIX


def lower_local_alloc(
    ctx: Lowering, op: Operation, x: Registers | None = None
) -> Sequence[Registers]:
    """Lower `ttg.local_alloc` to the place from AllocateShared; store initial contents there."""
    alloc = ttg.LocalAlloc(op)
    offset = alloc.offset
    assert isinstance(offset, int), f"{op.name} #{op.id} was given no place"
    base = ctx.shared(offset)
    if x is not None and alloc.source is not None:
        store_tile(ctx, op, alloc.source, x, op.result, base)
    return ([base],)


def lower_local_dealloc(ctx: Lowering, op: Operation, buffer: Registers) -> Sequence[Registers]:
    """Emit nothing: only the allocation of buffers reads this op."""
    return ()


def lower_local_load(ctx: Lowering, op: Operation, buffer: Registers) -> Sequence[Registers]:
    """Lower `ttg.local_load` to vector loads, or to `ldmatrix` where the layout fits it."""
    source = ttg.LocalLoad(op).buffer
    memory = buffer_type(source)
    base, fixed = buffer_place(ctx, op, source, buffer[0])
    layout = widened(ctx.layout(op.result), memory.layout)
    matrices = plan_matrices(layout, memory.layout, memory.element_bytes, fixed)
    element = ctx.element_type(op.result)
    if matrices is not None:
        return (_load_matrices(ctx, matrices, memory, base, fixed, element),)
    as_words = element == "i8" and _is_only_stored(op.result)
    return (load_part(ctx, base, fixed, memory, layout, as_words),)


def load_part(
    ctx: Lowering,
    base: LLVMValue,
    fixed: int,
    memory: MemDescType,
    layout: LinearLayout,
    as_words: bool = False,
) -> Registers:
    """Read a part of a buffer by vectors.

    Args:
        ctx: the kernel.
        base: pointer to the buffer.
        fixed: the beginning of the part, XORed to offsets, in elements.
        memory: the buffer.
        layout: the layout of the part, in the buffer's sizes (see `widened`).
        as_words: whether to read words, as the elements are bytes that are only stored again.
    """
    element = llvm_type(memory.element)
    plan = plan_vectors(layout, memory.layout, memory.element_bytes, fixed)
    addresses = shared_addresses(
        ctx, base, layout, memory.layout, plan.groups, memory.element_bytes, fixed
    )
    found: dict[int, LLVMValue] = {}
    for group, address in zip(plan.groups, addresses, strict=True):
        if as_words and len(group) % WORD_BYTES == 0:
            values = load_bytes(ctx, address, len(group))
        else:
            values = load_vector(ctx, address, element, len(group))
        found.update(zip(group, values, strict=True))
    return [found[register] for register in plan.copies]


def _is_only_stored(value: Value) -> bool:
    return all(ttg.LocalAlloc.matches(user) for user in value.uses)


def _load_matrices(
    ctx: Lowering, plan: MatrixPlan, memory: MemDescType, base: LLVMValue, fixed: int, element: str
) -> Registers:
    emit = ctx.emit
    addresses = matrix_addresses(ctx, base, plan, memory.layout, memory.element_bytes, fixed)
    transposed = ".trans" if plan.is_transposed else ""
    found: dict[int, LLVMValue] = {}
    for group, address in zip(plan.groups, addresses, strict=True):
        count = len(group)
        name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{transposed}.b16.p3"
        got = emit.intrinsic(name, address)
        words = [got] if count == 1 else [emit.extract_value(got, i, "i32") for i in range(count)]
        for word, registers in zip(words, group, strict=True):
            values = elements_of_word(ctx, word, element, len(registers))
            found.update(zip(registers, values, strict=True))
    return [found[register] for register in plan.copies]


def lower_local_store(
    ctx: Lowering, op: Operation, x: Registers, buffer: Registers
) -> Sequence[Registers]:
    """Lower `ttg.local_store` (`store_tile`); of threads that hold copies, one stores."""
    store_tile(ctx, op, ttg.LocalStore(op).source, x, ttg.LocalStore(op).buffer, buffer[0])
    return ()


def store_tile(
    ctx: Lowering,
    op: Operation,
    value: Value,
    registers: Registers,
    buffer: Value,
    pointer: LLVMValue,
) -> None:
    """Put a tile's registers into a buffer.

    Args:
        ctx: the kernel.
        op: the op that stores, for errors.
        value: the tile.
        registers: the tile's registers.
        buffer: the buffer to store to.
        pointer: the lowered `buffer`.
    """
    memory = buffer_type(buffer)
    base, fixed = buffer_place(ctx, op, buffer, pointer)
    source = ctx.layout(value)
    layout = widened(source, memory.layout)
    owner = ctx.owner(source)
    plan = plan_vectors(layout, memory.layout, memory.element_bytes, fixed)
    is_narrow = len(plan.groups[0]) * memory.element_bytes < MAX_ACCESS_BYTES
    if ctx.target.has(STMATRIX) and is_narrow and owner is None:
        matrices = plan_matrices(layout, memory.layout, memory.element_bytes, fixed)
        if matrices is not None:
            rows = matrix_addresses(ctx, base, matrices, memory.layout, memory.element_bytes, fixed)
            store_matrices(ctx, rows, matrices, registers)
            return
    addresses = shared_addresses(
        ctx, base, layout, memory.layout, plan.groups, memory.element_bytes, fixed
    )
    store_groups(ctx, addresses, plan.groups, registers, owner)


# Views


def buffer_type(value: Value) -> MemDescType:
    """The type of a value that is a buffer."""
    assert isinstance(value.type, MemDescType), f"{value} is no buffer"
    return value.type


def buffer_place(
    ctx: Lowering, op: Operation, value: Value, pointer: LLVMValue
) -> tuple[LLVMValue, int]:
    """A pointer to the whole buffer, and the number to XOR to offsets in it, in elements.

    Swizzling XORs bits of the row into those of the column, so that a part of a buffer begins at
    an offset that is XORed, not added.

    Args:
        ctx: the kernel.
        op: the op that asks, for errors.
        value: the buffer, or a part of it.
        pointer: the lowered `value`.

    Raises:
        LoweringError: a part of a buffer went through a loop or a branch.
    """
    fixed, asked = 0, value
    while True:
        maker = value.defining_op
        if maker is None or maker.name not in (ttg.MemDescSubslice.name, ttg.MemDescTrans.name):
            break
        if ttg.MemDescSubslice.matches(maker):
            fixed ^= _part_offset(maker)
        value = ttg.MemDescView(maker).buffer
    memory = buffer_type(value)
    if memory.buffer_shape != memory.layout.shape:
        raise LoweringError.at(
            op, f"{op.name}: a part of a buffer that went through control flow; take it inside"
        )
    return (pointer if value is asked else ctx.values[value][0]), fixed


def _part_offset(op: Operation) -> int:
    """The offset in elements at which a ttg.memdesc_subslice begins."""
    layout = buffer_type(ttg.MemDescSubslice(op).buffer).layout
    start = dict(zip(layout.out_dims, ttg.MemDescSubslice(op).offsets, strict=True))
    return layout.unpack_in(layout.solve(layout.pack_out(start)))[OFFSET]


def lower_memdesc_index(
    ctx: Lowering, op: Operation, buffers: Registers, index: Registers
) -> Sequence[Registers]:
    """Lower `ttg.memdesc_index`: buffers are contiguous, so the address moves by whole ones."""
    size_bytes = buffer_type(op.result).buffer_bytes
    return ([ctx.emit.gep(buffers[0], "i8", ctx.emit.mul(index[0], size_bytes))],)


def lower_memdesc_trans(ctx: Lowering, op: Operation, buffer: Registers) -> Sequence[Registers]:
    """Lower `ttg.memdesc_trans`, which changes the layout alone."""
    return (buffer,)


def lower_memdesc_subslice(ctx: Lowering, op: Operation, buffer: Registers) -> Sequence[Registers]:
    """Lower `ttg.memdesc_subslice` to its start; users look up the whole (`buffer_place`)."""
    start = _part_offset(op) * buffer_type(op.result).element_bytes
    return ([ctx.emit.gep(buffer[0], "i8", start)],)


# Order of accesses


def lower_barrier(ctx: Lowering, op: Operation) -> Sequence[Registers]:
    """Have all threads of the block wait for each other."""
    ctx.barrier()
    return ()


def lower_fence_async_shared(ctx: Lowering, op: Operation) -> Sequence[Registers]:
    """Have tensor cores and bulk copies after the fence see stores before it."""
    ctx.emit.asm("fence.proxy.async.shared::cta;", "~{memory}", "void", ())
    return ()


LOWERINGS: dict[str, Lower] = {
    ttg.LocalAlloc.name: lower_local_alloc,
    ttg.LocalDealloc.name: lower_local_dealloc,
    ttg.LocalLoad.name: lower_local_load,
    ttg.LocalStore.name: lower_local_store,
    ttg.MemDescIndex.name: lower_memdesc_index,
    ttg.MemDescTrans.name: lower_memdesc_trans,
    ttg.MemDescSubslice.name: lower_memdesc_subslice,
    gpu.Barrier.name: lower_barrier,
    ttng.FenceAsyncShared.name: lower_fence_async_shared,
}
