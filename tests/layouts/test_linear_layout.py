"""The algebra of linear layouts against enumeration."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_support import surjective_layouts

from tkdebug.compiler.layouts import LANE, REGISTER, LayoutError, LinearLayout, blocked, f2

VECTORS = st.lists(st.integers(0, 63), max_size=8)
LAYOUTS = surjective_layouts(7)


@st.composite
def any_layouts(draw: st.DrawFn) -> LinearLayout:
    """Layouts (a, b) -> (x: 4, y: 8), of any rank."""
    vectors = st.tuples(st.integers(0, 3), st.integers(0, 7))
    bases = {name: draw(st.lists(vectors, max_size=3)) for name in ("a", "b")}
    return LinearLayout.of(bases, {"x": 4, "y": 8})


@settings(max_examples=40, deadline=None)
@given(VECTORS, VECTORS)
def test_subspaces_are_those_of_enumeration(left: list[int], right: list[int]) -> None:
    common = f2.intersection(left, right)
    assert set(f2.spanned(common)) == set(f2.spanned(left)) & set(f2.spanned(right))
    assert len(set(f2.spanned(common))) == 1 << len(common)
    span = f2.Span(left)
    for vector in range(64):
        mask = span.solve(vector)
        assert (mask is not None) == (vector in set(f2.spanned(left)))
        assert mask is None or f2.combine(left, mask) == vector


@settings(max_examples=40, deadline=None)
@given(any_layouts())
def test_apply_is_linear_and_injectivity_counts_values(layout: LinearLayout) -> None:
    values = layout.table
    for i, left in enumerate(values):
        assert layout.pack_out(layout.apply(layout.unpack_in(i))) == left
        assert all(values[i ^ j] == left ^ right for j, right in enumerate(values))
    assert layout.is_injective == (len(set(values)) == len(values))
    assert layout.is_surjective == (len(set(values)) == 32)
    assert layout.is_permutation == (layout.is_injective and layout.is_surjective)


@settings(max_examples=40, deadline=None)
@given(any_layouts())
def test_inputs_with_free_bits_zero_hold_each_value_once(layout: LinearLayout) -> None:
    free = layout.pack_in(layout.free_masks)
    kept = [value for i, value in enumerate(layout.table) if not i & free]
    assert sorted(kept) == sorted(set(layout.table))


@settings(max_examples=40, deadline=None)
@given(any_layouts(), any_layouts())
def test_product_is_undone_by_quotient(tile: LinearLayout, outer: LinearLayout) -> None:
    product = tile * outer
    assert product.quotient(tile) == outer
    for where, x in outer:
        high = {d: i << tile.in_bits(d) for d, i in where.items()}
        assert product.apply(high) == {"x": 4 * x["x"], "y": 8 * x["y"]}


@settings(max_examples=40, deadline=None)
@given(LAYOUTS)
def test_pseudo_inverse_names_an_input_that_holds_the_element(layout: LinearLayout) -> None:
    inverse = layout.pseudo_inverse()
    assert inverse.compose(layout).table == tuple(range(128))
    assert all(not i & layout.pack_in(layout.free_masks) for i in inverse.table)


@settings(max_examples=40, deadline=None)
@given(LAYOUTS, LAYOUTS)
def test_invert_and_compose_finds_the_element(left: LinearLayout, right: LinearLayout) -> None:
    assert left.invert_and_compose(right).compose(right) == left


def test_inverse_of_a_layout_with_copies_is_refused() -> None:
    with pytest.raises(LayoutError, match="no permutation"):
        LinearLayout.zeros(2, LANE, "dim0").inverse()


def test_quotient_by_what_does_not_divide_is_none() -> None:
    layout = LinearLayout.of({REGISTER: [(2,), (1,)]}, {"dim0": 4})
    assert layout.quotient(LinearLayout.identity(2, REGISTER, "dim0")) is None


@pytest.mark.parametrize(
    ("size_per_thread", "order", "expected"),
    [((1, 8), (1, 0), 8), ((2, 4), (1, 0), 4), ((4, 1), (0, 1), 4), ((1, 1), (1, 0), 1)],
)
def test_consecutive_elements(
    size_per_thread: tuple[int, int], order: tuple[int, int], expected: int
) -> None:
    layout = blocked(size_per_thread, (8, 4), (2, 2), order, (64, 64))
    assert layout.consecutive_elements([f"dim{d}" for d in order]) == expected


def test_consecutive_elements_needs_aligned_groups() -> None:
    # Lane 1 starts at element 1: its pair 1, 0 is not in order.
    layout = LinearLayout.of({REGISTER: [(1,)], LANE: [(3,)]}, {"dim0": 4})
    assert layout.consecutive_elements(["dim0"]) == 1


def test_reshape_keeps_the_packed_map() -> None:
    layout = blocked((1, 8), (8, 4), (2, 2), (1, 0), (64, 64))
    assert layout.reshape_outs({"dim0": 4096}).table == layout.table
    with pytest.raises(LayoutError, match="sizes differ"):
        layout.reshape_outs({"dim0": 64})


def test_sizes_that_are_no_power_of_two_are_refused() -> None:
    with pytest.raises(LayoutError, match="dim0 is 48; layouts need a power of two"):
        blocked((1,), (32,), (4,), (0,), (48,))


def test_layouts_are_hashable_and_print_their_bases() -> None:
    layout = LinearLayout.of({REGISTER: [(0, 1)], LANE: []}, {"dim0": 1, "dim1": 2})
    assert {layout: 1}[LinearLayout.of({REGISTER: [(0, 1)], LANE: []}, {"dim0": 1, "dim1": 2})]
    assert str(layout) == "register: 1 -> (0, 1)\nlane: size 1\nof dim0: 1, dim1: 2"
