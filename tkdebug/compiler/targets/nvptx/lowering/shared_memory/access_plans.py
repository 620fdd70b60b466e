"""How registers of a tile and places of a shared-memory buffer meet: vectors and matrices.

Pure functions on layouts. A vector access takes registers that are consecutive in the buffer; a
matrix access (`ldmatrix`) takes 8 x 16 bytes tiles whose rows the lanes of a warp name, and hands
each lane its part of a tensor-core operand.

Source: PTX ISA, "Warp-level matrix load instruction: ldmatrix".
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

from tkdebug.compiler.layouts import LANE, OFFSET, REGISTER, WARP, LinearLayout, f2
from tkdebug.compiler.layouts.shuffles import representatives

MAX_VECTOR_BYTES = 16
_WORD_BYTES = 4
_ROW_BYTES = 16
_CACHED_PLANS = 256


@dataclass(frozen=True, slots=True)
class VectorPlan:
    """A tile's accesses of a buffer.

    Args:
        groups: registers of each access, in the order of offsets.
        copies: for each register the one of `groups` that holds the same element.
    """

    groups: tuple[tuple[int, ...], ...]
    copies: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MatrixPlan:
    """A tile's loads by `ldmatrix`.

    Args:
        is_transposed: whether the matrices are handed out transposed.
        rows: which row of which matrix a lane names, (register, lane, warp) -> coordinates: its
            registers are the loads, one for each.
        groups: for each load and each of its words the registers in it, lowest bits first.
        copies: for each register the one of `groups` that holds the same element.
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
    """The widest accesses, up to 16 bytes.

    Args:
        layout: of the tile, as large as the buffer (see `widened`).
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
    """Loads by `ldmatrix`, or None where rows or fragments do not lie as it wants them.

    Args:
        layout: of the tile, as large as the buffer (see `widened`).
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
