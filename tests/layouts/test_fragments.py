"""Constructors against the formulas of the PTX ISA, enumerated over every register and thread."""

from __future__ import annotations

import itertools

import pytest

from tkdebug.compiler.layouts import (
    LANE,
    OFFSET,
    REGISTER,
    WARP,
    LayoutError,
    LinearLayout,
    blocked,
    dot_operand,
    expand_dims,
    fma_operand,
    mma_v2,
    nvmma_shared,
    reshape,
    slice_layout,
    transpose,
    wgmma,
)
from tkdebug.compiler.layouts.shared import shared


def at(layout: LinearLayout, register: int, lane: int, warp: int = 0) -> tuple[int, ...]:
    return tuple(layout.apply({REGISTER: register, LANE: lane, WARP: warp}).values())


def test_mma_accumulators_follow_the_fragment_table() -> None:
    layout = mma_v2((16, 8), (1, 1))
    for i, lane in itertools.product(range(4), range(32)):
        row = lane // 4 if i < 2 else lane // 4 + 8
        assert at(layout, i, lane) == (row, lane % 4 * 2 + i % 2)


def test_mma_repeats_along_n_then_m() -> None:
    layout = mma_v2((64, 32), (2, 2))
    for r, lane, warp in itertools.product(range(16), range(32), range(4)):
        i, n_repeat, m_repeat = r % 4, r // 4 % 2, r // 8
        row = lane // 4 + 8 * (i // 2) + 16 * (warp // 2) + 32 * m_repeat
        column = lane % 4 * 2 + i % 2 + 8 * (warp % 2) + 16 * n_repeat
        assert at(layout, r, lane, warp) == (row, column)


@pytest.mark.parametrize("instr_n", [8, 16, 64, 256])
def test_wgmma_accumulators_follow_the_fragment_table(instr_n: int) -> None:
    layout = wgmma((64, instr_n), (4, 1), instr_n)
    for i, lane, warp in itertools.product(range(instr_n // 2), range(32), range(4)):
        row = 16 * warp + lane // 4 + 8 * (i // 2 % 2)
        assert at(layout, i, lane, warp) == (row, 8 * (i // 4) + lane % 4 * 2 + i % 2)


def test_wgmma_second_warpgroup_follows_in_m() -> None:
    layout = wgmma((128, 64), (8, 1), 64)
    assert at(layout, 0, 0, 4) == (64, 0)
    assert at(wgmma((64, 128), (4, 2), 64), 0, 0, 4) == (0, 64)


# (k_width, K of the instruction): tf32, 16-bit and 8-bit operands.
@pytest.mark.parametrize("k_width", [1, 2, 4])
def test_operand_a_follows_the_fragment_table(k_width: int) -> None:
    layout = dot_operand(mma_v2((16, 8), (1, 1)), 0, k_width, (16, 8 * k_width))
    for i, lane in itertools.product(range(4 * k_width), range(32)):
        element, second_row, second_half = i % k_width, i // k_width % 2, i // k_width // 2
        row = lane // 4 + 8 * second_row
        column = lane % 4 * k_width + element + 4 * k_width * second_half
        assert at(layout, i, lane) == (row, column)


@pytest.mark.parametrize("k_width", [1, 2, 4])
def test_operand_b_follows_the_fragment_table(k_width: int) -> None:
    layout = dot_operand(mma_v2((16, 8), (1, 1)), 1, k_width, (8 * k_width, 8))
    for i, lane in itertools.product(range(2 * k_width), range(32)):
        row = lane % 4 * k_width + i % k_width + 4 * k_width * (i // k_width)
        assert at(layout, i, lane) == (row, lane // 4)


def test_wgmma_operand_a_follows_the_fragment_table() -> None:
    layout = dot_operand(wgmma((64, 64), (4, 1), 64), 0, 2, (64, 16))
    for i, lane, warp in itertools.product(range(8), range(32), range(4)):
        row = 16 * warp + lane // 4 + (8 if i in (2, 3, 6, 7) else 0)
        assert at(layout, i, lane, warp) == (row, lane % 4 * 2 + i % 2 + (8 if i >= 4 else 0))


def test_operands_lie_where_the_accumulators_need_them() -> None:
    parent = mma_v2((64, 64), (2, 2))
    a, b = dot_operand(parent, 0, 2, (64, 32)), dot_operand(parent, 1, 2, (32, 64))
    for warp in range(4):

        def covered(layout: LinearLayout, dim: str, warp: int = warp) -> set[int]:
            return {x[dim] for where, x in layout if where[WARP] == warp}

        assert covered(a, "dim0") == covered(parent, "dim0")
        assert covered(b, "dim1") == covered(parent, "dim1")
        assert covered(a, "dim1") == covered(b, "dim0") == set(range(32))


def test_fma_operand_holds_all_of_k_in_each_thread() -> None:
    parent = blocked((2, 2), (4, 8), (2, 2), (1, 0), (32, 64))
    a = fma_operand(parent, 0, (32, 16))
    for lane, warp in itertools.product(range(32), range(4)):
        mine = {at(a, r, lane, warp) for r in range(a.in_size(REGISTER))}
        rows = {at(parent, r, lane, warp)[0] for r in range(parent.in_size(REGISTER))}
        assert mine == set(itertools.product(rows, range(16)))


def test_dot_operand_of_a_blocked_parent_is_refused() -> None:
    parent = blocked((1, 1), (4, 8), (1, 1), (1, 0), (16, 16))
    with pytest.raises(LayoutError, match="tensor-core accumulators"):
        dot_operand(parent, 0, 2, (16, 16))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("shape", [(8, 8), (64, 32), (256, 128)])
def test_blocked_follows_its_definition(order: tuple[int, int], shape: tuple[int, int]) -> None:
    per_thread, lanes, warps = (2, 4), (8, 4), (2, 2)
    layout = blocked(per_thread, lanes, warps, order, shape)

    def split(index: int, sizes: tuple[int, int]) -> list[int]:
        found = [0, 0]
        for d in order:
            found[d], index = index % sizes[d], index // sizes[d]
        return found

    box = [per_thread[d] * lanes[d] * warps[d] for d in range(2)]
    repeats = (max(1, shape[0] // box[0]), max(1, shape[1] // box[1]))
    # Sizes below one box of a thread do not occur here, so registers are box x repeats.
    for r, lane, warp in itertools.product(range(8 * repeats[0] * repeats[1]), range(32), range(4)):
        parts = zip(
            split(r % 8, per_thread),
            split(lane, lanes),
            split(warp, warps),
            split(r // 8, repeats),
            range(2),
            strict=True,
        )
        wanted = tuple(
            (x + per_thread[d] * (t + lanes[d] * (w + warps[d] * n))) % shape[d]
            for x, t, w, n, d in parts
        )
        assert at(layout, r, lane, warp) == wanted


def test_slice_drops_a_dimension_and_its_registers() -> None:
    parent = blocked((2, 4), (8, 4), (2, 2), (1, 0), (64, 32))
    layout = slice_layout(parent, 1)
    assert layout.shape == (64,)
    assert layout.in_size(REGISTER) == 4
    for lane, warp in itertools.product(range(32), range(4)):
        rows = {at(parent, r, lane, warp)[0] for r in range(parent.in_size(REGISTER))}
        assert {at(layout, r, lane, warp)[0] for r in range(4)} == rows


def test_views_follow_the_tensor_operations() -> None:
    layout = blocked((2, 4), (8, 4), (2, 2), (1, 0), (64, 32))
    for (_, x), (_, t), (_, flat), (_, e) in zip(
        layout,
        transpose(layout, (1, 0)),
        reshape(layout, (16, 128)),
        expand_dims(layout, 1),
        strict=True,
    ):
        row, column = x.values()
        assert tuple(t.values()) == (column, row)
        assert tuple(flat.values()) == divmod(row * 32 + column, 128)
        assert tuple(e.values()) == (row, 0, column)


@pytest.mark.parametrize(("vec", "per_phase", "max_phase"), [(8, 1, 8), (4, 2, 4), (1, 1, 1)])
def test_shared_follows_the_swizzle_formula(vec: int, per_phase: int, max_phase: int) -> None:
    layout = shared((32, 64), vec, per_phase, max_phase, (1, 0)).inverse()
    for row, column in itertools.product(range(32), range(64)):
        group = column // vec ^ (row // per_phase) % max_phase
        offset = row * 64 + group * vec + column % vec
        assert layout.apply({"dim0": row, "dim1": column}) == {OFFSET: offset}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("swizzle_bytes", [0, 32, 64, 128])
@pytest.mark.parametrize("element_bits", [8, 16, 32])
def test_nvmma_shared_xors_address_bits(
    swizzle_bytes: int, element_bits: int, transposed: bool
) -> None:
    layout = nvmma_shared((128, 128), swizzle_bytes, element_bits, transposed).inverse()
    element_bytes, width_bytes = element_bits // 8, max(swizzle_bytes, 16)
    for row, column in itertools.product(range(0, 128, 3), range(0, 128, 5)):
        tile, byte = divmod(column * element_bytes, width_bytes)
        address = (tile * 128 + row) * width_bytes + byte
        # Swizzle<B, 4, 3> of the address, B = log2 of the 16-byte chunks in a row.
        address ^= (address >> 7 & width_bytes // 16 - 1) << 4
        where = {"dim0": column, "dim1": row} if transposed else {"dim0": row, "dim1": column}
        assert layout.apply(where) == {OFFSET: address // element_bytes}


def test_nvmma_shared_counts_leading_dimensions_as_rows() -> None:
    deep, flat = nvmma_shared((2, 16, 64), 128, 16), nvmma_shared((32, 64), 128, 16)
    assert reshape(deep, (32, 64)) == flat


def test_nvmma_shared_refuses_rows_narrower_than_the_swizzle() -> None:
    with pytest.raises(LayoutError, match="at least 64"):
        nvmma_shared((64, 32), 128, 16)
