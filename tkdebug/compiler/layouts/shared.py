"""Shared memory: its banks, and layouts of tensors in it: offsets (in elements) -> coordinates.

Swizzling is XOR, so a swizzled buffer is a linear layout too (arXiv:2505.23819). The inverse of
these layouts gives the offset of an element.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tkdebug.compiler.layouts.linear import OFFSET, LayoutError, LinearLayout, bits_of, dim_names


@dataclass(frozen=True, slots=True)
class SharedBanks:
    """The banks that serve a warp's accesses to shared memory.

    Successive words are in successive banks, and in one wavefront each bank gives one word. An
    access of several words per thread is made for fewer lanes at a time, consecutive ones.

    Attributes:
        count: banks, a power of two.
        word_bytes: bytes of a bank in one wavefront, a power of two.
        access_bytes: most that one thread accesses at once.
    """

    count: int
    word_bytes: int
    access_bytes: int

    @property
    def row_bytes(self) -> int:
        """The bytes of all banks in one wavefront."""
        return self.count * self.word_bytes

    def lanes_per_wavefront(self, access_bytes: int) -> int:
        """The number of lanes that are served together, for accesses of `access_bytes` each."""
        return self.row_bytes // max(access_bytes, self.word_bytes)


_CACHED_LAYOUTS = 256
# Rows of a core matrix, and bytes of its rows.
CORE_ROWS = 8
CORE_ROW_BYTES = 16
SWIZZLE_BYTES = (0, 32, 64, 128)


@lru_cache(_CACHED_LAYOUTS)
def shared(
    shape: tuple[int, ...], vec: int, per_phase: int, max_phase: int, order: tuple[int, ...]
) -> LinearLayout:
    """A buffer whose rows are swizzled in groups of `vec` elements.

    In row r, group c of `vec` elements is in the place of group c ^ ((r / per_phase) % max_phase).

    Args:
        shape: the tensor's shape.
        vec: elements that stay together.
        per_phase: consecutive rows that have the same swizzle.
        max_phase: number of different swizzles; 1 for none.
        order: dimensions, the fastest first; the first two are a row's elements and the rows.

    Raises:
        LayoutError: a size is no power of two, or `order` no permutation.

    Source: Triton's TritonGPU dialect, "SwizzledSharedEncodingAttr".
    """
    names = dim_names(len(shape))
    if sorted(order) != list(range(len(shape))):
        raise LayoutError(f"order {order} is not a permutation of {tuple(range(len(shape)))}")
    for what, value in (("vec", vec), ("per_phase", per_phase), ("max_phase", max_phase)):
        bits_of(value, what)
    sizes = {names[d]: shape[d] for d in order}
    bases = []
    for position, d in enumerate(order):
        for i in range(bits_of(shape[d], f"the size of {names[d]}")):
            coordinates = dict.fromkeys(sizes, 0)
            coordinates[names[d]] = 1 << i
            if position == 1:
                phase = ((1 << i) // per_phase) % max_phase
                coordinates[names[order[0]]] = (vec * phase) % shape[order[0]]
            bases.append(tuple(coordinates.values()))
    return LinearLayout.of({OFFSET: bases}, sizes).transpose_outs(names)


@lru_cache(_CACHED_LAYOUTS)
def nvmma_shared(
    shape: tuple[int, ...],
    swizzle_bytes: int,
    element_bits: int,
    transposed: bool = False,
) -> LinearLayout:
    """A buffer as TMA writes it and wgmma's matrix descriptors read it.

    The tensor is cut into columns of tiles `swizzle_bytes` wide (16 bytes without swizzle); each
    such column is contiguous, row after row. In row r, 16-byte chunk c is in the place of chunk c ^
    (r % 8) with 128 bytes, of c ^ (r / 2 % 4) with 64, and of c ^ (r / 4 % 2) with 32: bits 4-6 of
    the byte offset are XORed with its bits 7-9, as far as the width reaches. The buffer itself must
    be aligned to 8 * `swizzle_bytes` for this to hold for addresses.

    A descriptor's stride byte offset, between groups of 8 rows, is 8 * max(swizzle_bytes, 16).

    Args:
        shape: (..., rows, columns); leading dimensions count as further rows.
        swizzle_bytes: 0, 32, 64 or 128.
        element_bits: 8, 16 or 32 (64 for TMA alone).
        transposed: whether the next to last dimension is the contiguous one (MN-major operands).

    Raises:
        LayoutError: the tensor is smaller than one tile, or the swizzle is not the hardware's.

    Source: PTX ISA, "Shared Memory Matrix Layout" and "Matrix Descriptor Format" of wgmma, and
    "Swizzling Modes" of tensors; Triton's TritonGPU dialect, "NVMMASharedEncodingAttr".
    """
    if swizzle_bytes not in SWIZZLE_BYTES:
        raise LayoutError(f"swizzle of {swizzle_bytes} bytes; expected one of {SWIZZLE_BYTES}")
    if element_bits not in (8, 16, 32, 64):
        raise LayoutError(f"elements of {element_bits} bits; expected 8, 16, 32 or 64")
    if len(shape) < 2:
        raise LayoutError(f"nvmma_shared of shape {shape}; expected two dimensions or more")
    names = dim_names(len(shape))
    inner, outer = (-2, -1) if transposed else (-1, -2)
    row_bytes = max(swizzle_bytes, CORE_ROW_BYTES)
    row_elems = row_bytes * 8 // element_bits
    if shape[inner] < row_elems or prod(shape) // shape[inner] < CORE_ROWS:
        raise LayoutError(
            f"nvmma_shared of shape {shape}: got {shape[inner]} contiguous elements, expected at "
            f"least {row_elems} ({row_bytes} bytes) and {CORE_ROWS} rows; take a narrower swizzle"
        )
    chunk_elems = CORE_ROW_BYTES * 8 // element_bits
    chunks = row_bytes // CORE_ROW_BYTES
    inner_bits = bits_of(shape[inner], f"the size of {names[inner]}")
    in_tile = bits_of(row_elems, "a tile's row")
    # Rows of all leading dimensions are numbered consecutively: packed rows above packed columns.
    rows = [names[outer], *reversed(names[:-2])]
    sizes = {names[inner]: shape[inner], **{d: shape[names.index(d)] for d in rows}}
    row_bits = bits_of(prod(shape) // shape[inner], "the number of rows")
    # 128 bytes hold this many rows, which therefore share a phase.
    rows_per_phase = 8 // chunks
    columns = [1 << i for i in range(inner_bits)]
    tile_rows = []
    for i in range(row_bits):
        phase = ((1 << i) // rows_per_phase) % chunks
        swizzled = phase * chunk_elems if (1 << i) < CORE_ROWS else 0
        tile_rows.append((1 << (inner_bits + i)) | swizzled)
    offsets = (*columns[:in_tile], *tile_rows, *columns[in_tile:])
    return LinearLayout(((OFFSET, offsets),), tuple(sizes.items())).transpose_outs(names)
