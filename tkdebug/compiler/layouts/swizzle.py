"""A swizzled shared-memory buffer between two register layouts, and what its accesses cost.

The buffer is chosen so that both sides access it in vectors and without bank conflicts. Of its
offset bits the lowest run inside a vector, the next ones over the target's banks, the rest over
rows of all banks ("segments"). Lanes conflict when their offsets differ in segment bits
alone; so the segment subspace is chosen to meet neither side's lanes (arXiv:2505.23819,
optimal swizzling).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tkdebug.compiler.layouts import f2
from tkdebug.compiler.layouts.linear import (
    BLOCK,
    LANE,
    OFFSET,
    REGISTER,
    WARP,
    LayoutError,
    LinearLayout,
    bits_of,
)
from tkdebug.compiler.layouts.shared_banks import SharedBanks
from tkdebug.compiler.layouts.shuffles import representatives


@dataclass(frozen=True, slots=True)
class SharedTrip:
    """How a tensor goes through shared memory.

    Args:
        buffer: offset in elements (and block) -> coordinates.
        vector: elements of one access, on both sides.
        stores: register groups of the source; each is one access, in the order of offsets.
        loads: the same for the target.
        copies: for every target register the one that `loads` fills and that holds its element.
        store_conflicts: extra wavefronts of one warp's stores, 0 when free of bank conflicts.
        load_conflicts: the same for the loads.
    """

    buffer: LinearLayout
    vector: int
    stores: tuple[tuple[int, ...], ...]
    loads: tuple[tuple[int, ...], ...]
    copies: tuple[int, ...]
    store_conflicts: int
    load_conflicts: int


def plan_shared_trip(
    source: LinearLayout,
    target: LinearLayout,
    element_bytes: int,
    banks: SharedBanks,
    vector: tuple[int, ...] | None = None,
) -> SharedTrip:
    """Plans `source` -> shared memory -> `target`.

    Args:
        source: layout of the tensor now; outputs in the same order as `target`'s.
        target: layout of the tensor afterwards.
        element_bytes: size of an element in shared memory.
        banks: the target's.
        vector: what runs inside an access, lowest bits first: vectors that both sides hold in
            registers and that are independent of their threads; None to choose them.

    Raises:
        LayoutError: data would cross blocks, which shared memory of one block cannot do.
    """
    blocks = source.packed_bases(BLOCK)
    if blocks != target.packed_bases(BLOCK):
        raise LayoutError(
            f"conversion across the blocks of a cluster: {source.bases(BLOCK)} to "
            f"{target.bases(BLOCK)}; give both layouts the same blocks"
        )
    if vector is None:
        vector = _vector_basis(source, target, element_bytes, banks)
    offsets = _offset_basis(source, target, vector, element_bytes, banks)
    if len(f2.independent((*blocks, *offsets))) != source.out_bits:
        raise LayoutError("a block holds copies of another block's elements; slice them off first")
    kept_blocks = f2.independent(blocks)
    buffer = LinearLayout(((OFFSET, offsets), (BLOCK, kept_blocks)), source.outs)
    stores = _groups(source, buffer, len(vector))
    loads = _groups(target, buffer, len(vector))
    return SharedTrip(
        buffer,
        1 << len(vector),
        stores,
        loads,
        representatives(target),
        bank_conflicts(source, buffer, element_bytes, banks, stores),
        bank_conflicts(target, buffer, element_bytes, banks, loads),
    )


def bank_conflicts(
    layout: LinearLayout,
    buffer: LinearLayout,
    element_bytes: int,
    banks: SharedBanks,
    groups: Sequence[Sequence[int]] | None = None,
) -> int:
    """Extra wavefronts when warp 0 accesses a whole tensor, by simulating the banks.

    A wavefront serves any number of lanes as long as no bank must give two different words.

    Args:
        layout: register layout of the tensor.
        buffer: layout of shared memory, offset -> coordinates.
        element_bytes: size of an element.
        banks: the target's.
        groups: register groups, each one access, in the order of offsets. None: consecutive
            registers, as many as lie at consecutive offsets and fit in an access.
    """
    to_offset = layout.invert_and_compose(buffer)
    if groups is None:
        limit = max(1, banks.access_bytes // element_bytes)
        width = min(limit, to_offset.consecutive_elements(to_offset.out_dims))
        registers = range(layout.in_size(REGISTER))
        groups = [registers[i : i + width] for i in registers[::width]]
    offset_mask = buffer.in_size(OFFSET) - 1
    in_register = f2.spanned(to_offset.packed_bases(REGISTER))
    in_lane = f2.spanned(to_offset.packed_bases(LANE))
    extra = 0
    for group in groups:
        starts = [
            min((in_register[r] ^ lane) & offset_mask for r in group) * element_bytes
            for lane in in_lane
        ]
        access_bytes = len(group) * element_bytes
        lanes = banks.lanes_per_wavefront(access_bytes)
        for first in range(0, len(starts), lanes):
            extra += _wavefronts(starts[first : first + lanes], access_bytes, banks) - 1
    return extra


def _wavefronts(starts_bytes: Sequence[int], access_bytes: int, banks: SharedBanks) -> int:
    words_of_bank: dict[int, set[int]] = defaultdict(set)
    for start in starts_bytes:
        last = (start + access_bytes - 1) // banks.word_bytes
        for word in range(start // banks.word_bytes, last + 1):
            words_of_bank[word % banks.count].add(word)
    return max(len(words) for words in words_of_bank.values())


def _vector_basis(
    source: LinearLayout, target: LinearLayout, element_bytes: int, banks: SharedBanks
) -> tuple[int, ...]:
    """What both sides hold in registers, up to one access, and no lane or warp touches.

    The last condition keeps the order inside a vector the same in every thread.
    """
    common = f2.intersection(source.packed_bases(REGISTER), target.packed_bases(REGISTER))
    threads = thread_vectors(source, target)
    usable = f2.independent(common, over=threads)
    limit = bits_of(max(1, banks.access_bytes // element_bytes), "elements per access")
    return usable[:limit]


def _offset_basis(
    source: LinearLayout,
    target: LinearLayout,
    vector: tuple[int, ...],
    element_bytes: int,
    banks: SharedBanks,
) -> tuple[int, ...]:
    """The buffer's basis: vector bits, bits inside a bank's word, bank bits, segment bits."""
    blocks = source.packed_bases(BLOCK)
    access_bytes = element_bytes << len(vector)
    lane_bits = bits_of(banks.lanes_per_wavefront(access_bytes), "lanes per wavefront")
    threads = thread_vectors(source, target)
    units = [1 << i for i in range(source.out_bits)]
    # Thread vectors come first: they must stay free of vector bits (see `_vector_basis`).
    candidates = (*threads, *source.packed_bases(REGISTER), *units)
    word_bits = bits_of(max(1, banks.word_bytes // access_bytes), "accesses per word")
    word = f2.independent(candidates, (*blocks, *vector))[:word_bits]
    # Lanes that differ inside a word do not conflict, so what follows is modulo words.
    over = (*blocks, *vector, *word)
    source_lanes = f2.independent(source.packed_bases(LANE)[:lane_bits], over)
    target_lanes = f2.independent(target.packed_bases(LANE)[:lane_bits], over)
    common = f2.intersection((*over, *source_lanes), (*over, *target_lanes))
    only_source = f2.independent(source_lanes, common)
    only_target = f2.independent(target_lanes, common)
    size_bits = source.out_bits - len(f2.independent(blocks))
    row_bits = bits_of(max(1, banks.row_bytes // element_bytes), "elements of a row")
    segment_bits = max(0, size_bits - row_bits)
    outside = f2.independent(candidates, (*over, *source_lanes, *target_lanes))
    diagonal = [a ^ b for a, b in zip(only_source, only_target, strict=False)]
    segments = (*outside, *diagonal)[:segment_bits]
    in_row = f2.independent(candidates, (*over, *segments))
    return (*vector, *word, *in_row, *segments)


def thread_vectors(source: LinearLayout, target: LinearLayout) -> tuple[int, ...]:
    """What the lanes, warps and blocks of both sides move over."""
    return tuple(
        vector
        for layout in (source, target)
        for dim in (LANE, WARP, BLOCK)
        for vector in layout.packed_bases(dim)
    )


def _groups(
    layout: LinearLayout, buffer: LinearLayout, vector_bits: int
) -> tuple[tuple[int, ...], ...]:
    """The registers (without copies) by access, each group in the order of offsets."""
    to_offset = layout.invert_and_compose(buffer).packed_bases(REGISTER)
    low = (1 << vector_bits) - 1
    by_start: dict[int, list[tuple[int, int]]] = defaultdict(list)
    offsets = f2.spanned(to_offset)
    for register in sorted(set(representatives(layout))):
        by_start[offsets[register] & ~low].append((offsets[register] & low, register))
    return tuple(tuple(register for _, register in sorted(group)) for group in by_start.values())
