"""Accesses of shared memory: vectors as LLVM loads and stores of up to 16 bytes, and matrices."""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import TYPE_BITS, Lowering
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.access_plans import MatrixPlan
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.packed_bytes import packed_words

MAX_ACCESS_BYTES = 16
_WORD_BITS = 32


def _stored_type(type_: str) -> str:
    """The type in memory: i1 takes a byte, pointers are integers."""
    if type_ == "i1":
        return "i8"
    return "i64" if type_.startswith("ptr") else type_


def store_vector(
    ctx: Lowering,
    address: LLVMValue,
    values: Sequence[LLVMValue],
    predicate: LLVMValue | None = None,
) -> None:
    """Write consecutive elements to shared memory.

    Args:
        ctx: the kernel.
        address: pointer to the first; aligned to the whole access.
        values: elements of one type, up to 16 bytes together.
        predicate: i1, whether this thread writes; None when every one does.
    """
    emit = ctx.emit
    element = _stored_type(values[0].type)
    size_bytes = max(8, TYPE_BITS[element]) // 8 * len(values)
    stored = packed_words(ctx, values) if element == "i8" else None
    if stored is None:
        stored = [_to_memory(ctx, value) for value in values]
    whole = stored[0] if len(stored) == 1 else emit.vector(stored)
    if predicate is None:
        emit.store(whole, address, size_bytes)
        return
    write, after = emit.new_block("write"), emit.new_block("written")
    emit.branch_if(predicate, write, after)
    emit.start(write)
    emit.store(whole, address, size_bytes)
    emit.branch(after)
    emit.start(after)


def load_vector(ctx: Lowering, address: LLVMValue, type_: str, count: int) -> list[LLVMValue]:
    """Read `count` consecutive elements of `type_`; aligned as `store_vector` asks."""
    emit = ctx.emit
    element = _stored_type(type_)
    size_bytes = max(8, TYPE_BITS[element]) // 8 * count
    if count == 1:
        return [_from_memory(ctx, emit.load(element, address, size_bytes), type_)]
    whole = emit.load(f"<{count} x {element}>", address, size_bytes)
    return [_from_memory(ctx, value, type_) for value in emit.elements(whole, count, element)]


def store_matrices(
    ctx: Lowering,
    addresses: Sequence[LLVMValue],
    plan: MatrixPlan,
    values: Sequence[LLVMValue],
) -> None:
    """Write a tile by `stmatrix`.

    Args:
        ctx: the kernel.
        addresses: for each store, where the row goes that this lane names (see `MatrixPlan.rows`).
        plan: which registers each store takes.
        values: the tile's registers.
    """
    transposed = ".trans" if plan.is_transposed else ""
    for group, address in zip(plan.groups, addresses, strict=True):
        words = [word_of_elements(ctx, [values[r] for r in registers]) for registers in group]
        name = f"llvm.nvvm.stmatrix.sync.aligned.m8n8.x{len(words)}{transposed}.b16.p3"
        ctx.emit.intrinsic(name, address, *words)


def elements_of_word(ctx: Lowering, word: LLVMValue, element: str, count: int) -> list[LLVMValue]:
    """The elements that a 32-bit word holds."""
    if count == 1:
        return [ctx.from_bits(word, element)]
    vector = ctx.emit.cast("bitcast", word, f"<{count} x {element}>")
    return ctx.emit.elements(vector, count, element)


def word_of_elements(ctx: Lowering, elements: Sequence[LLVMValue]) -> LLVMValue:
    """A 32-bit word that holds the elements."""
    if len(elements) == 1:
        return ctx.to_bits(elements[0])
    assert TYPE_BITS[elements[0].type] * len(elements) == _WORD_BITS
    return ctx.emit.cast("bitcast", ctx.emit.vector(elements), "i32")


def _to_memory(ctx: Lowering, value: LLVMValue) -> LLVMValue:
    if value.type == "i1":
        return ctx.emit.cast("zext", value, "i8")
    return ctx.to_bits(value) if value.type.startswith("ptr") else value


def _from_memory(ctx: Lowering, value: LLVMValue, type_: str) -> LLVMValue:
    if type_ == "i1":
        return ctx.emit.icmp("ne", value, integer("i8", 0))
    return ctx.from_bits(value, type_) if type_.startswith("ptr") else value
