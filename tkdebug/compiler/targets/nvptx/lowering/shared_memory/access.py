"""Accesses of shared memory: vectors as LLVM loads and stores of up to 16 bytes, and matrices.

Their plans are pure functions on layouts. A vector access takes registers that are consecutive in
the buffer; a matrix access (`ldmatrix`) takes 8 x 16 bytes tiles whose rows the lanes of a warp
name, and hands each lane its part of a tensor-core operand. A tile of bytes that is read along one
dimension and stored along the other is transposed by byte permutes: eight for each 4 x 4 block;
byte by byte it would take some thirty.

Sources: PTX ISA, "Warp-level matrix load instruction: ldmatrix", "Data Movement and Conversion
Instructions: prmt".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tkdebug.compiler.layouts import LANE, OFFSET, REGISTER, WARP, LinearLayout, f2
from tkdebug.compiler.layouts.conversion import representatives
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import TYPE_BITS, Lowering
from tkdebug.compiler.targets.nvptx.lowering.types import Registers

MAX_VECTOR_BYTES = 16
_WORD_BYTES = 4
_ROW_BYTES = 16
_CACHED_PLANS = 256


@dataclass(frozen=True, slots=True)
class VectorPlan:
    """A tile's accesses of a buffer.

    Args:
        groups: registers of each access, in the order of offsets.
        copies: for each register, the register of `groups` that holds the same element.
    """

    groups: tuple[tuple[int, ...], ...]
    copies: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MatrixPlan:
    """A tile's loads by `ldmatrix`, or its stores by `stmatrix`.

    Args:
        is_transposed: whether the matrices are handed out transposed.
        rows: the row of the matrix that a lane names, (register, lane, warp) -> coordinates: its
            registers are the loads, one for each.
        groups: for each load and each of its words the registers in it, lowest bits first.
        copies: for each register, the register of `groups` that holds the same element.
    """

    is_transposed: bool
    rows: LinearLayout
    groups: tuple[tuple[tuple[int, ...], ...], ...]
    copies: tuple[int, ...]


def widened(layout: LinearLayout, buffer: LinearLayout) -> LinearLayout:
    """The layout of a tile that lies at the start of a larger buffer, in the buffer's sizes."""
    whole = LinearLayout((), tuple((name, buffer.out_size(name)) for name in layout.out_dims))
    ins = tuple(
        (dim, tuple(whole.pack_out(layout.unpack_out(v)) for v in vectors))
        for dim, vectors in layout.ins
    )
    return LinearLayout(ins, whole.outs)


@lru_cache(_CACHED_PLANS)
def plan_vectors(
    layout: LinearLayout,
    buffer: LinearLayout,
    element_bytes: int,
    fixed_offset: int = 0,
    max_elems: int = MAX_VECTOR_BYTES,
) -> VectorPlan:
    """Plan the widest accesses of a tile, up to 16 bytes each.

    Args:
        layout: the layout of the tile, as large as the buffer (see `widened`).
        buffer: offset in elements -> coordinates.
        element_bytes: size of an element.
        fixed_offset: XORed to all offsets, in elements.
        max_elems: most elements of one access, a power of two.
    """
    to_offset = layout.invert_and_compose(buffer)
    columns = _offsets(to_offset, REGISTER)
    threads = (*_offsets(to_offset, LANE), *_offsets(to_offset, WARP), fixed_offset)
    span = f2.Span(columns)
    bits = 0
    while (
        (2 << bits) * element_bytes <= MAX_VECTOR_BYTES
        and 2 << bits <= max_elems
        and 1 << bits in span
        and not any(offset >> bits & 1 for offset in threads)
    ):
        bits += 1
    low = (1 << bits) - 1
    by_start: dict[int, list[tuple[int, int]]] = defaultdict(list)
    copies = representatives(layout)
    offsets = f2.spanned(columns)
    for register in sorted(set(copies)):
        by_start[offsets[register] & ~low].append((offsets[register] & low, register))
    groups = tuple(tuple(register for _, register in sorted(g)) for g in by_start.values())
    return VectorPlan(groups, copies)


@lru_cache(_CACHED_PLANS)
def plan_matrices(
    layout: LinearLayout, buffer: LinearLayout, element_bytes: int, fixed_offset: int = 0
) -> MatrixPlan | None:
    """Plan `ldmatrix` or `stmatrix`; None if rows or fragments do not lie as they need them.

    Args:
        layout: the layout of the tile, as large as the buffer (see `widened`).
        buffer: offset in elements -> coordinates.
        element_bytes: size of an element, 1 to 4.
        fixed_offset: XORed to all offsets, in elements.
    """
    if element_bytes > _WORD_BYTES or layout.in_bits(LANE) != 5:
        return None
    to_offset = layout.invert_and_compose(buffer)
    columns = _offsets(to_offset, REGISTER)
    row_mask = _ROW_BYTES // element_bytes - 1
    outside = (*_offsets(to_offset, WARP), fixed_offset)
    if any(offset & row_mask for offset in outside) or 0 in columns:
        return None
    if len(f2.independent(columns)) != len(columns):
        return None
    word_bits = (_WORD_BYTES // element_bytes).bit_length() - 1
    for is_transposed in (False, True):
        plan = _fitting(layout, to_offset, word_bits, row_mask, is_transposed)
        if plan is not None:
            return plan
    return None


def _fitting(
    layout: LinearLayout,
    to_offset: LinearLayout,
    word_bits: int,
    row_mask: int,
    is_transposed: bool,
) -> MatrixPlan | None:
    registers, lanes = _offsets(to_offset, REGISTER), _offsets(to_offset, LANE)
    sources = layout.packed_bases(REGISTER), layout.packed_bases(LANE)
    if is_transposed:
        if word_bits != 1 or not registers:
            return None
        # Lane l gets rows 2 (l % 4) and 2 (l % 4) + 1 of column l / 4.
        if lanes[2:] != (1, 2, 4):
            return None
        word: tuple[int, ...] = (0,)
        row_places = (registers[0], *lanes[:2])
        rows = (sources[0][0], *sources[1][:2])
    else:
        # Lane l gets word l % 4 of row l / 4.
        units = [1 << i for i in range(word_bits)]
        if any(unit not in registers for unit in units):
            return None
        if lanes[:2] != (1 << word_bits, 2 << word_bits):
            return None
        word = tuple(registers.index(unit) for unit in units)
        row_places, rows = lanes[2:], sources[1][2:]
    rest = [bit for bit in range(len(registers)) if bit not in word]
    if any(offset & row_mask for offset in (*row_places, *(registers[bit] for bit in rest))):
        return None
    matrices, loads = rest[:2], rest[2:]
    # Lanes 8 m to 8 m + 7 name the rows of matrix m; with fewer matrices the others repeat them.
    named = [sources[0][bit] for bit in matrices] + [0] * (2 - len(matrices))
    naming = LinearLayout(
        (
            (REGISTER, tuple(sources[0][bit] for bit in loads)),
            (LANE, (*rows, *named)),
            (WARP, layout.packed_bases(WARP)),
        ),
        layout.outs,
    )
    word_masks = f2.spanned([1 << bit for bit in word])
    groups = tuple(
        tuple(
            tuple(load | matrix | within for within in word_masks)
            for matrix in f2.spanned([1 << bit for bit in matrices])
        )
        for load in f2.spanned([1 << bit for bit in loads])
    )
    return MatrixPlan(is_transposed, naming, groups, tuple(range(1 << len(registers))))


def _offsets(to_offset: LinearLayout, dim: str) -> tuple[int, ...]:
    return tuple(to_offset.unpack_out(v)[OFFSET] for v in to_offset.packed_bases(dim))


WORD_BYTES = 4


def load_bytes(ctx: Lowering, address: LLVMValue, count: int) -> list[LLVMValue]:
    """Read `count` consecutive bytes, a multiple of 4, as words; note the word of each byte."""
    emit, words = ctx.emit, count // WORD_BYTES
    if words == 1:
        parts = [emit.load("i32", address, count)]
    else:
        parts = emit.elements(emit.load(f"<{words} x i32>", address, count), words, "i32")
    found = []
    for word in parts:
        for place in range(WORD_BYTES):
            byte = emit.cast("trunc", emit.lshr(word, 8 * place), "i8")
            ctx.words_of_bytes[byte.text] = (word, place)
            found.append(byte)
    return found


def packed_words(ctx: Lowering, values: Sequence[LLVMValue]) -> list[LLVMValue] | None:
    """Return consecutive bytes as words; None unless each was read as part of a word."""
    sources = [ctx.words_of_bytes.get(value.text) for value in values]
    if len(sources) % WORD_BYTES:
        return None
    known = [source for source in sources if source is not None]
    if len(known) < len(sources):
        return None
    groups = (known[i : i + WORD_BYTES] for i in range(0, len(known), WORD_BYTES))
    return [_packed(ctx, group) for group in groups]


def _packed(ctx: Lowering, sources: Sequence[tuple[LLVMValue, int]]) -> LLVMValue:
    places = [place for _, place in sources]
    if len({word.text for word, _ in sources}) == 1 and places == list(range(WORD_BYTES)):
        return sources[0][0]
    low, high = (_paired(ctx, *sources[i : i + 2]) for i in (0, 2))
    halves = [0x32 if pair[0][1] & 1 else 0x10 for pair in (sources[:2], sources[2:])]
    return _permute(ctx, low, high, halves[0] | (halves[1] + 0x44) << 8)


def _paired(ctx: Lowering, a: tuple[LLVMValue, int], b: tuple[LLVMValue, int]) -> LLVMValue:
    """Return a word with two bytes side by side, and their neighbours if both are of one column.

    Of four such words two are the same.
    """
    even = [place & ~1 for _, place in (a, b)]
    if (a[1] ^ b[1]) & 1:
        # Not of one column: only these two, in both halves.
        pair = a[1] | (b[1] + 4) << 4
        return _permute(ctx, a[0], b[0], pair | pair << 8)
    first = even[0] | (even[1] + 4) << 4
    return _permute(ctx, a[0], b[0], first | (first + 0x11) << 8)


def _permute(ctx: Lowering, a: LLVMValue, b: LLVMValue, selector: int) -> LLVMValue:
    return ctx.emit.asm(
        f"prmt.b32 $0, $1, $2, {selector:#06x};", "=r,r,r", "i32", (a, b), side_effects=False
    )


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


def store_groups(
    ctx: Lowering,
    addresses: Sequence[LLVMValue],
    groups: Sequence[Sequence[int]],
    values: Registers,
    predicate: LLVMValue | None,
) -> None:
    """Write each group of a tile's registers to its address, as `store_vector`."""
    for group, address in zip(groups, addresses, strict=True):
        store_vector(ctx, address, [values[register] for register in group], predicate)


def load_groups(
    ctx: Lowering,
    addresses: Sequence[LLVMValue],
    groups: Sequence[Sequence[int]],
    copies: Sequence[int],
    type_: str,
) -> Registers:
    """Read the groups of a tile's registers; `copies` names a register in a group for each."""
    found: dict[int, LLVMValue] = {}
    for group, address in zip(groups, addresses, strict=True):
        found.update(zip(group, load_vector(ctx, address, type_, len(group)), strict=True))
    return [found[register] for register in copies]


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
        addresses: for each store, the address of the row that this lane names (see
            `MatrixPlan.rows`).
        plan: the registers that each store takes.
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
