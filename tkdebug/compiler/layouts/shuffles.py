"""Moving a tensor between two layouts inside each warp, by rounds of `shfl.sync.idx`.

In a round every lane offers one of its registers and reads what one other lane offers. Where the
conversion is a bijection on (register, lane), as many rounds as there are registers suffice
(arXiv:2505.23819, on warp shuffles).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tkdebug.compiler.layouts import f2
from tkdebug.compiler.layouts.linear import BLOCK, LANE, REGISTER, WARP, LinearLayout


@dataclass(frozen=True, slots=True)
class ShuffleRound:
    """One shuffle; every tuple is indexed by lane.

    Args:
        source_register: register that the lane offers; None when it is not read.
        source_lane: lane that the lane reads from.
        target_register: register that the lane puts what it read into; None for nowhere.
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
        """How many each lane executes: shuffles, and selects of registers that differ by lane."""
        return sum(
            len({*each.source_register} - {None}) + len({*each.target_register} - {None})
            for each in self.rounds
        )


def representatives(layout: LinearLayout) -> tuple[int, ...]:
    """For every register the register with free bits 0 that holds the same element."""
    vectors = layout.packed_bases(REGISTER)
    span = f2.Span(vectors)
    found = (span.solve(element) for element in f2.spanned(vectors))
    return tuple(register for register in found if register is not None)


def plan_shuffles(source: LinearLayout, target: LinearLayout) -> ShufflePlan | None:
    """Plans the conversion of `source` to `target`; None when data must leave its warp.

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
    """Where `source` keeps each vector, as register + (lane << register bits)."""
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

    `skew` makes the lanes of a round read from distinct lanes. Where it cannot, returns None.
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
    """For each lane bit the mask that it XORs into the register index of a round."""
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
    """A target register bit whose source lane is independent of `lanes`."""
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
    """Rounds in which all lanes offer the same register; those that want it take it."""
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
