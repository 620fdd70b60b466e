"""The cheapest conversion of a tensor from one register layout to another.

It is nothing, register moves, or the cheaper of shuffles inside each warp (arXiv:2505.23819) and a
trip through shared memory. The plan is data; lowering turns it into instructions.

Shuffles go by rounds of `shfl.sync.idx`: in a round every lane offers one of its registers and
reads what one other lane offers. Where the conversion is a bijection on (register, lane), as many
rounds as there are registers suffice (arXiv:2505.23819, on warp shuffles).

A swizzled buffer is chosen so that both sides access it in vectors and without bank conflicts. Of
its offset bits the lowest run inside a vector, the next ones over the target's banks, the rest over
rows of all banks ("segments"). Lanes conflict when their offsets differ in segment bits alone; so
the segment subspace is chosen to meet neither side's lanes (arXiv:2505.23819, optimal swizzling).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

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
from tkdebug.compiler.layouts.shared import SharedBanks


@dataclass(frozen=True, slots=True)
class ShuffleRound:
    """One shuffle; every tuple is indexed by lane.

    Args:
        source_register: register that the lane offers; None if it is not read.
        source_lane: lane that the lane reads from.
        target_register: register that the lane puts the read value into; None for nowhere.
    """

    source_register: tuple[int | None, ...]
    source_lane: tuple[int, ...]
    target_register: tuple[int | None, ...]

    @property
    def lane_xor(self) -> int | None:
        """The x with which every lane l reads from l ^ x (0 needs no shuffle), None without one."""
        first = self.source_lane[0]
        same = all(source == lane ^ first for lane, source in enumerate(self.source_lane))
        return first if same else None


@dataclass(frozen=True, slots=True)
class ShufflePlan:
    """Rounds after which every lane has its target registers.

    Args:
        rounds: in any order; each writes every target register of `copies` at most once per lane.
        copies: for every target register the one that the rounds fill and that holds its element.
    """

    rounds: tuple[ShuffleRound, ...]
    copies: tuple[int, ...]

    @property
    def instructions(self) -> int:
        """The instructions of each lane: shuffles, and selects of registers that differ by lane."""
        return sum(
            len({*each.source_register} - {None}) + len({*each.target_register} - {None})
            for each in self.rounds
        )


def representatives(layout: LinearLayout) -> tuple[int, ...]:
    """Return, for each register, the one with free bits 0 that holds the same element."""
    vectors = layout.packed_bases(REGISTER)
    span = f2.Span(vectors)
    found = (span.solve(element) for element in f2.spanned(vectors))
    return tuple(register for register in found if register is not None)


def plan_shuffles(source: LinearLayout, target: LinearLayout) -> ShufflePlan | None:
    """Plans the conversion of `source` to `target` by shuffles; None if data must leave its warp.

    Args:
        source: layout of the tensor now; outputs in the same order as `target`'s.
        target: layout of the tensor afterwards.
    """
    if any(source.packed_bases(d) != target.packed_bases(d) for d in (WARP, BLOCK)):
        return None
    register_map = _source_of_bits(source, target.packed_bases(REGISTER), keep_lanes=False)
    lane_map = _source_of_bits(source, target.packed_bases(LANE), keep_lanes=True)
    if register_map is None or lane_map is None:
        return None
    copies = representatives(target)
    rounds = _linear_rounds(source, register_map, lane_map, copies)
    if rounds is None:
        rounds = _selecting_rounds(source, register_map, lane_map, copies)
    return ShufflePlan(rounds, copies)


def _source_of_bits(
    source: LinearLayout, vectors: Sequence[int], keep_lanes: bool
) -> tuple[int, ...] | None:
    """The places of vectors in `source`, each register + (lane << register bits); None for none."""
    register_bits = source.in_bits(REGISTER)
    lanes = source.packed_bases(LANE)
    registers = f2.Span(source.packed_bases(REGISTER))
    warp = f2.Span((*source.packed_bases(REGISTER), *lanes))
    found = []
    for bit, vector in enumerate(vectors):
        # A value that a lane holds itself, in some register, needs no other lane.
        own = registers.solve(vector ^ lanes[bit]) if keep_lanes else None
        place = warp.solve(vector) if own is None else own | 1 << (register_bits + bit)
        if place is None:
            return None
        found.append(place)
    return tuple(found)


def _linear_rounds(
    source: LinearLayout,
    register_map: tuple[int, ...],
    lane_map: tuple[int, ...],
    copies: tuple[int, ...],
) -> tuple[ShuffleRound, ...] | None:
    """One round per target register c: lane l fills register c ^ skew(l), skew linear.

    `skew` makes the lanes of a round read from distinct lanes. Returns None if no skew can.
    """
    skew = _skew(source.in_bits(REGISTER), register_map, lane_map)
    if skew is None:
        return None
    skews = f2.spanned(skew)
    rounds = []
    for register in sorted(set(copies)):
        wanted = [copies[register ^ skews[lane]] for lane in range(len(skews))]
        made = _round(source, register_map, lane_map, wanted)
        if made is None:
            return None
        rounds.append(made)
    return tuple(rounds)


def _skew(
    register_bits: int, register_map: tuple[int, ...], lane_map: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return for each lane bit the mask that it XORs into a round's register index, or None."""
    register_mask = (1 << register_bits) - 1
    lanes = f2.Span()
    unresolved = f2.Span()
    skew: list[int] = []
    unresolved_skews: list[int] = []
    distinct = [column >> register_bits for column in lane_map]
    for bit, column in enumerate(lane_map):
        others = lanes.solve(column >> register_bits)
        lanes.add(column >> register_bits)
        if others is None:
            skew.append(0)
            continue
        # Lanes that differ by `kernel` read from one lane: they must want one register of it.
        kernel = others | 1 << bit
        register = f2.combine(lane_map, kernel) & register_mask
        known = f2.combine(skew, others)
        seen = unresolved.solve(register)
        if seen is not None:
            skew.append(known ^ f2.combine(unresolved_skews, seen))
            continue
        free = _independent_register(register_bits, register_map, distinct)
        if free is None:
            return None
        distinct.append(register_map[free] >> register_bits)
        unresolved.add(register)
        unresolved_skews.append(1 << free)
        skew.append(known ^ 1 << free)
    return tuple(skew)


def _independent_register(
    register_bits: int, register_map: tuple[int, ...], lanes: Sequence[int]
) -> int | None:
    """A target register bit whose source lane is independent of `lanes`; None if there is none."""
    span = f2.Span(lanes)
    for bit, column in enumerate(register_map):
        if column >> register_bits not in span:
            return bit
    return None


def _selecting_rounds(
    source: LinearLayout,
    register_map: tuple[int, ...],
    lane_map: tuple[int, ...],
    copies: tuple[int, ...],
) -> tuple[ShuffleRound, ...]:
    """Rounds in which all lanes offer the same register; lanes that want it take it."""
    register_mask = source.in_size(REGISTER) - 1
    rounds = []
    for register in sorted(set(copies)):
        places = [f2.combine(register_map, register) ^ lane for lane in f2.spanned(lane_map)]
        for offered in sorted({place & register_mask for place in places}):
            wanted = [register if p & register_mask == offered else None for p in places]
            made = _round(source, register_map, lane_map, wanted)
            assert made is not None, "lanes that want one register cannot disagree"
            rounds.append(made)
    return tuple(rounds)


def _round(
    source: LinearLayout,
    register_map: tuple[int, ...],
    lane_map: tuple[int, ...],
    wanted: Sequence[int | None],
) -> ShuffleRound | None:
    """The round in which lane l fills register wanted[l]; None when a lane must offer two."""
    register_bits = source.in_bits(REGISTER)
    offered: list[int | None] = [None] * len(wanted)
    source_lanes = []
    for lane, register in enumerate(wanted):
        if register is None:
            source_lanes.append(lane)
            continue
        place = f2.combine(register_map, register) ^ f2.combine(lane_map, lane)
        from_lane, from_register = place >> register_bits, place & ((1 << register_bits) - 1)
        if offered[from_lane] not in (None, from_register):
            return None
        offered[from_lane] = from_register
        source_lanes.append(from_lane)
    return ShuffleRound(tuple(offered), tuple(source_lanes), tuple(wanted))


@dataclass(frozen=True, slots=True)
class SharedTrip:
    """A tensor's trip through shared memory.

    Args:
        buffer: offset in elements (and block) -> coordinates.
        vector: elements of one access, on both sides.
        stores: register groups of the source; each is one access, in the order of offsets.
        loads: the same for the target.
        copies: for every target register the one that `loads` fills and that holds its element.
        store_conflicts: extra wavefronts of one warp's stores, 0 when free of bank conflicts.
        load_conflicts: the bank conflicts of the loads.
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
        vector: the bits inside an access, lowest first: vectors that both sides hold in
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
    """The vectors that both sides hold in registers, up to one access, and no lane or warp touches.

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
    # Lanes that differ inside a word do not conflict, so all that follows ignores word bits.
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
    """The basis vectors of the lanes, warps and blocks of both sides."""
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


_CACHED_PLANS = 512

# Up to so many instructions, shuffles always beat a trip through shared memory, which waits for all
# warps twice and for the memory, some 30 cycles each time.
_FEW = 100


@dataclass(frozen=True, slots=True)
class NoConversion:
    """The conversion between two layouts that are the same map."""


@dataclass(frozen=True, slots=True)
class RegisterMoves:
    """Every thread holds the elements that it needs.

    Args:
        sources: for every target register the source register that holds its element.
    """

    sources: tuple[int, ...]


Conversion: TypeAlias = NoConversion | RegisterMoves | ShufflePlan | SharedTrip


@lru_cache(_CACHED_PLANS)
def classify_conversion(
    source: LinearLayout, target: LinearLayout, element_bytes: int, banks: SharedBanks
) -> Conversion:
    """The cheapest way from `source` to `target`.

    Args:
        source: layout of the tensor now, (register, lane, warp, block) -> coordinates.
        target: layout of the tensor afterwards.
        element_bytes: size of an element, for the vectors of shared memory.
        banks: the target's.

    Raises:
        LayoutError: the layouts are of different shapes or thread counts, do not cover the tensor,
            or place data in different blocks.
    """
    if set(source.out_dims) != set(target.out_dims):
        raise LayoutError(f"conversion from {source.outs} to {target.outs}: shapes differ")
    target = target.transpose_outs(source.out_dims)
    _expect_convertible(source, target)
    threads = (LANE, WARP, BLOCK)
    if all(source.packed_bases(d) == target.packed_bases(d) for d in threads):
        if source.packed_bases(REGISTER) == target.packed_bases(REGISTER):
            return NoConversion()
        moves = _register_moves(source, target)
        if moves is not None:
            return moves
    shuffles = plan_shuffles(source, target)
    if shuffles is not None and shuffles.instructions <= _FEW:
        return shuffles
    trip = plan_shared_trip(source, target, element_bytes, banks)
    cycles = _cycles(trip, source, element_bytes, banks)
    if shuffles is not None and shuffles.instructions <= _FEW + cycles:
        return shuffles
    return trip


def _cycles(trip: SharedTrip, layout: LinearLayout, element_bytes: int, banks: SharedBanks) -> int:
    """The number of cycles that one warp's accesses of a trip keep shared memory busy."""
    access = layout.in_size(LANE) * trip.vector * element_bytes
    accesses = len(trip.stores) + len(trip.loads)
    # A cycle moves a row of the banks (NVIDIA, CUDA C++ Programming Guide, "Shared Memory").
    moved = accesses * max(1, access // banks.row_bytes)
    return moved + trip.store_conflicts + trip.load_conflicts


def _register_moves(source: LinearLayout, target: LinearLayout) -> RegisterMoves | None:
    span = f2.Span(source.packed_bases(REGISTER))
    sources = []
    for element in f2.spanned(target.packed_bases(REGISTER)):
        register = span.solve(element)
        if register is None:
            return None
        sources.append(register)
    return RegisterMoves(tuple(sources))


def _expect_convertible(source: LinearLayout, target: LinearLayout) -> None:
    if source.outs != target.outs:
        raise LayoutError(f"conversion from {source.outs} to {target.outs}: shapes differ")
    for dim in (LANE, WARP, BLOCK):
        if source.in_bits(dim) != target.in_bits(dim):
            raise LayoutError(
                f"conversion from {source.in_size(dim)} to {target.in_size(dim)} {dim}s; "
                f"expected the same number"
            )
    for name, layout in (("source", source), ("target", target)):
        if not layout.is_surjective:
            raise LayoutError(f"conversion: the {name} layout does not cover the tensor")
