"""Conversions, carried out on arrays, move every element to its place."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_support import convert, held, named_layouts, row_slices, surjective_layouts

from tkdebug.compiler.layouts import (
    BLOCK,
    LANE,
    REGISTER,
    Conversion,
    LayoutError,
    LinearLayout,
    NoConversion,
    RegisterMoves,
    SharedTrip,
    ShufflePlan,
    bank_conflicts,
    blocked,
    classify_conversion,
    dot_operand,
    mma_v2,
)
from tkdebug.compiler.layouts.conversion import plan_shuffles
from tkdebug.compiler.layouts.shared import shared
from tkdebug.compiler.targets.nvptx.architectures import BANKS

PAIRS = list(itertools.permutations(named_layouts(), 2))
SLICE_PAIRS = list(itertools.permutations(row_slices(), 2))
PAIR_OF_RANDOM = st.integers(6, 8).flatmap(
    lambda bits: st.tuples(surjective_layouts(bits), surjective_layouts(bits))
)
IN_ONE_WARP = st.integers(3, 8).flatmap(
    lambda bits: st.tuples(surjective_layouts(bits, 0), surjective_layouts(bits, 0))
)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_conversion_moves_every_element(source: str, target: str) -> None:
    before, after = named_layouts()[source], named_layouts()[target]
    assert convert(classify_conversion(before, after, 2, BANKS), before, after) == held(after)


@pytest.mark.parametrize(("source", "target"), SLICE_PAIRS)
def test_conversion_of_slices_moves_every_element(source: str, target: str) -> None:
    before, after = row_slices()[source], row_slices()[target]
    assert convert(classify_conversion(before, after, 4, BANKS), before, after) == held(after)


@settings(max_examples=60, deadline=None)
@given(PAIR_OF_RANDOM, st.sampled_from([1, 2, 4, 8]))
def test_conversion_of_random_layouts_moves_every_element(
    pair: tuple[LinearLayout, LinearLayout], element_bytes: int
) -> None:
    source, target = pair
    plan = classify_conversion(source, target, element_bytes, BANKS)
    assert convert(plan, source, target) == held(target)


@settings(max_examples=60, deadline=None)
@given(IN_ONE_WARP)
def test_shuffles_carry_out_every_conversion_in_one_warp(
    pair: tuple[LinearLayout, LinearLayout],
) -> None:
    source, target = pair
    plan = plan_shuffles(source, target)
    assert plan is not None
    assert convert(plan, source, target) == held(target)


@pytest.mark.parametrize(("rows", "kind"), [(4, ShufflePlan), (64, SharedTrip)])
def test_transposing_in_one_warp_goes_the_cheaper_way(rows: int, kind: type[Conversion]) -> None:
    across = blocked((1, 1), (1, 32), (1, 1), (1, 0), (rows, 32))
    along = blocked((1, min(rows, 8)), (8, 4), (1, 1), (1, 0), (rows, 32))
    plan = classify_conversion(across, along, 2, BANKS)
    assert isinstance(plan, kind)
    assert convert(plan, across, along) == held(along)


@settings(max_examples=60, deadline=None)
@given(PAIR_OF_RANDOM, st.sampled_from([1, 2, 4, 8]))
def test_shared_trip_of_random_layouts_is_free_of_bank_conflicts(
    pair: tuple[LinearLayout, LinearLayout], element_bytes: int
) -> None:
    plan = classify_conversion(*pair, element_bytes, BANKS)
    if isinstance(plan, SharedTrip):
        assert (plan.store_conflicts, plan.load_conflicts) == (0, 0)


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(8)), st.permutations(range(8)))
def test_bijections_in_a_warp_take_one_round_per_register(
    left: list[int], right: list[int]
) -> None:
    source, target = (
        LinearLayout(
            ((REGISTER, tuple(1 << i for i in p[:3])), (LANE, tuple(1 << i for i in p[3:]))),
            (("dim0", 256),),
        )
        for p in (left, right)
    )
    plan = classify_conversion(source, target, 4, BANKS)
    if isinstance(plan, ShufflePlan):
        assert len(plan.rounds) == 8


@pytest.mark.parametrize("element_bytes", [1, 2, 4, 8])
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_shared_trips_are_free_of_bank_conflicts(
    source: str, target: str, element_bytes: int
) -> None:
    plan = classify_conversion(
        named_layouts()[source], named_layouts()[target], element_bytes, BANKS
    )
    if isinstance(plan, SharedTrip):
        assert (plan.store_conflicts, plan.load_conflicts) == (0, 0)


def test_same_layout_needs_no_conversion() -> None:
    layout = mma_v2((64, 64), (2, 2))
    assert classify_conversion(layout, layout, 4, BANKS) == NoConversion()


def test_same_layout_with_dimensions_in_other_order_needs_no_conversion() -> None:
    layout = mma_v2((64, 64), (2, 2))
    assert (
        classify_conversion(layout, layout.transpose_outs(["dim1", "dim0"]), 4, BANKS)
        == NoConversion()
    )


def test_mma_accumulators_become_operand_a_by_register_moves() -> None:
    # Attention's second dot: the accumulators of the first are its operand A.
    parent = mma_v2((64, 64), (4, 1))
    plan = classify_conversion(parent, dot_operand(parent, 0, 2, (64, 64)), 4, BANKS)
    assert plan == NoConversion()


def test_reordered_registers_are_register_moves() -> None:
    source = blocked((2, 4), (8, 4), (4, 1), (1, 0), (64, 16))
    registers = tuple(reversed(source.packed_bases(REGISTER)))
    target = LinearLayout(((REGISTER, registers), *source.ins[1:]), source.outs)
    assert classify_conversion(source, target, 4, BANKS) == RegisterMoves((0, 4, 2, 6, 1, 5, 3, 7))


def test_shuffle_with_swapped_lanes_is_one_xor() -> None:
    source = LinearLayout(((REGISTER, (32,)), (LANE, (1, 2, 4, 8, 16))), (("dim0", 64),))
    target = LinearLayout(((REGISTER, (33,)), (LANE, (1, 2, 4, 8, 16))), (("dim0", 64),))
    plan = classify_conversion(source, target, 4, BANKS)
    assert isinstance(plan, ShufflePlan)
    assert [step.lane_xor for step in plan.rounds] == [0, 1]


def test_shared_trip_takes_16_byte_vectors_where_both_sides_have_them() -> None:
    source = blocked((1, 8), (4, 8), (4, 1), (1, 0), (64, 64))
    target = blocked((1, 8), (16, 2), (1, 4), (1, 0), (64, 64))
    plan = classify_conversion(source, target, 2, BANKS)
    assert isinstance(plan, SharedTrip)
    assert plan.vector == 8


def test_bank_conflicts_counts_a_column_of_a_plain_buffer() -> None:
    # 32 lanes read one column of 32 rows of 128 bytes: one bank, 32 words.
    column = blocked((1, 1), (32, 1), (1, 1), (0, 1), (32, 32))
    plain = shared((32, 32), 1, 1, 1, (1, 0))
    single = [[register] for register in range(32)]
    assert bank_conflicts(column, plain, 4, BANKS, single) == 31 * 32
    # In vectors of 16 bytes: 8 accesses of 4 quarter-warps, 8 rows to each bank.
    assert bank_conflicts(column, plain, 4, BANKS) == 8 * 4 * 7


def test_bank_conflicts_counts_none_in_a_swizzled_buffer() -> None:
    column = blocked((1, 1), (32, 1), (1, 1), (0, 1), (32, 32))
    assert bank_conflicts(column, shared((32, 32), 1, 1, 32, (1, 0)), 4, BANKS) == 0


def test_bank_conflicts_splits_16_byte_accesses_in_quarter_warps() -> None:
    row = blocked((1, 4), (4, 8), (1, 1), (1, 0), (4, 32))
    assert bank_conflicts(row, shared((4, 32), 4, 1, 1, (1, 0)), 4, BANKS) == 0
    column = blocked((1, 4), (32, 1), (1, 1), (1, 0), (32, 4))
    padded_rows = shared((32, 32), 4, 1, 1, (1, 0))
    wide = blocked((1, 4), (32, 1), (1, 1), (1, 0), (32, 32))
    assert bank_conflicts(column, shared((32, 4), 4, 1, 1, (1, 0)), 4, BANKS) == 0
    assert bank_conflicts(wide, padded_rows, 4, BANKS) == 8 * 4 * 7


def test_conversion_keeps_blocks_apart() -> None:
    blocks = LinearLayout.identity(2, BLOCK, "dim0")
    source = blocked((1, 8), (4, 8), (4, 1), (1, 0), (32, 64)) * blocks
    target = blocked((8, 1), (8, 4), (1, 4), (0, 1), (32, 64)) * blocks
    plan = classify_conversion(source, target, 2, BANKS)
    assert isinstance(plan, SharedTrip)
    assert plan.buffer.packed_bases(BLOCK) == source.packed_bases(BLOCK)
    assert plan.buffer.is_permutation


def test_conversion_across_blocks_is_refused() -> None:
    rows, columns = (LinearLayout.identity(2, BLOCK, name) for name in ("dim0", "dim1"))
    source = blocked((1, 8), (4, 8), (4, 1), (1, 0), (32, 64)) * rows
    target = blocked((1, 8), (4, 8), (4, 1), (1, 0), (64, 32)) * columns
    with pytest.raises(LayoutError, match="across the blocks"):
        classify_conversion(source, target, 4, BANKS)


def test_conversion_between_shapes_is_refused() -> None:
    with pytest.raises(LayoutError, match="shapes differ"):
        classify_conversion(mma_v2((64, 64), (2, 2)), mma_v2((64, 32), (2, 2)), 4, BANKS)


def test_conversion_between_warp_counts_is_refused() -> None:
    with pytest.raises(LayoutError, match="8 warps"):
        classify_conversion(mma_v2((64, 64), (2, 2)), mma_v2((64, 64), (2, 4)), 4, BANKS)
