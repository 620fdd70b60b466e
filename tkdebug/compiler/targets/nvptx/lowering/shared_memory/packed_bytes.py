"""Bytes that go through registers from one order in shared memory to another, as 32-bit words.

A tile of bytes that is read along one dimension and stored along the other is transposed by byte
permutes: eight for each 4 x 4 block. Byte by byte it would take some thirty.

Source: PTX ISA, "Data Movement and Conversion Instructions: prmt".
"""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.compiler.targets.nvptx.emitter import LLVMValue
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering

WORD_BYTES = 4


def load_bytes(ctx: Lowering, address: LLVMValue, count: int) -> list[LLVMValue]:
    """Read `count` consecutive bytes, a multiple of 4, as words; each remembers its word."""
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
    """Consecutive bytes as words, where each of them was taken from a word."""
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
    """Both bytes next to each other, and their neighbours: of four such words two are the same."""
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
