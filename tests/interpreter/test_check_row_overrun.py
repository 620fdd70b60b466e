"""`--check row-overrun`: accesses that leave their row, but not their tensor."""

from functools import partial

import pytest
import row_kernels as kernels
import torch
from differential import run
from marked_lines import line_of, only

from tkdebug.knobs import scope

line = partial(line_of, kernels)
BUDGETS = pytest.mark.parametrize("budget", [None, 1 << 16], ids=["whole", "batches"])
ones, zeros = torch.ones, torch.zeros


@pytest.fixture(autouse=True)
def checked():
    with scope(checks=("row-overrun",)):
        yield


def reported(faults, marker, tensor, index):
    fault = only(faults)
    assert (fault.kind, fault.severity) == ("row-overrun", "warning")
    assert (fault.line, fault.tensor, fault.index) == (line(f"ROW {marker}"), tensor, index)
    return fault


# Rows that are left


def test_row_whose_mask_ends_with_the_tensor():
    arguments = ones(6, 100), zeros(6), 6, 100
    fault = reported(
        run(kernels.row_sum, (6,), *arguments, FLAT=True, BLOCK=128), "row_sum", "x_ptr", 100
    )
    assert (fault.program_id, fault.lane, fault.count) == ((0, 0, 0), (100,), 5 * 28)
    assert "of `x_ptr` (100 elements)" in fault.message
    assert "cols < n" in fault.hint
    assert not run(kernels.row_sum, (6,), *arguments, FLAT=False, BLOCK=128)


@pytest.mark.parametrize("n", [5, 33, 100, 127])
def test_rows_of_several_lengths(n):
    arguments = ones(40, n), zeros(40), 40, n
    faults = run(kernels.row_sum, (40,), *arguments, FLAT=True, BLOCK=128)
    reported(faults, "row_sum", "x_ptr", n)
    assert not run(kernels.row_sum, (40,), *arguments, FLAT=False, BLOCK=128)


def test_softmax_whose_mask_ends_with_the_tensor():
    arguments = ones(6, 100), zeros(6, 100), 600, 100
    faults = run(kernels.row_softmax, (6,), *arguments, FLAT=True, BLOCK=128)
    assert [(f.line, f.tensor, f.index) for f in faults] == [
        (line("ROW softmax load"), "x_ptr", 100), (line("ROW softmax store"), "out_ptr", 100),
    ]  # fmt: skip
    assert not run(kernels.row_softmax, (6,), *arguments, FLAT=False, BLOCK=128)


def test_last_block_of_a_row():
    arguments = ones(6, 100), zeros(6), 6, 100
    faults = run(kernels.row_sum_in_blocks, (6,), *arguments, FLAT=True, BLOCK=64)
    assert reported(faults, "row_sum_in_blocks", "x_ptr", 100).lane == (36,)
    assert not run(kernels.row_sum_in_blocks, (6,), *arguments, FLAT=False, BLOCK=64)


@pytest.mark.parametrize("rows", [10, 9])
def test_tile_of_rows_whose_mask_ends_with_the_tensor(rows):
    arguments = ones(rows, 30), zeros(rows, 30), rows, 30
    faults = run(kernels.tile_softmax, (5,), *arguments, FLAT=True, BLOCK_R=2, BLOCK=32)
    fault = reported(faults, "tile_softmax", "x_ptr", 30)
    assert (fault.program_id, fault.lane) == ((0, 0, 0), (0, 30))
    assert fault.count == 2 * (rows - 1)
    assert not run(kernels.tile_softmax, (5,), *arguments, FLAT=False, BLOCK_R=2, BLOCK=32)


def test_store_beyond_a_row():
    faults = run(kernels.fill_rows, (6,), zeros(6, 20), 120, 20, FLAT=True, BLOCK=32)
    assert (
        "store writes 60 elements beyond the end"
        in reported(faults, "fill_rows", "out_ptr", 20).message
    )
    assert not run(kernels.fill_rows, (6,), zeros(6, 20), 120, 20, FLAT=False, BLOCK=32)


def test_rows_of_planes():
    arguments = ones(3, 4, 20), zeros(12), 240, 4, 20
    reported(run(kernels.planes, (4, 3), *arguments, FLAT=True, BLOCK=32), "planes", "x_ptr", 20)
    assert not run(kernels.planes, (4, 3), *arguments, FLAT=False, BLOCK=32)


def test_rows_in_the_middle_of_a_tensor():
    x = ones(10, 20)[3:9]
    faults = run(kernels.row_sum, (6,), x, zeros(6), 6, 20, FLAT=True, BLOCK=32)
    reported(faults, "row_sum", "x_ptr", 20)


def sums(m, n, swap, grid=(1,), block_m=64, strides=None, choose=False):
    x = ones(m, n)
    return run(
        kernels.column_sums, grid, x, zeros(n), m, n, *(strides or x.stride()), SWAP=swap,
        BLOCK_M=block_m, BLOCK_N=16, CHOOSE=choose,
    )  # fmt: skip


def test_strides_that_are_swapped_in_the_kernel():
    fault = reported(sums(64, 16, True), "swapped", "x_ptr", 16)
    assert "stride_n=1 is x_ptr.stride(1), stride_m=16 is x_ptr.stride(0)" in fault.hint
    assert not sums(64, 16, False)


@pytest.mark.parametrize(("m", "n"), [(64, 10), (50, 16), (40, 5)])
def test_swapped_strides_of_tall_matrices(m, n):
    assert only(sums(m, n, True)).kind == "row-overrun"
    assert not sums(m, n, False)


def test_swapped_strides_of_a_kernel_that_chooses_by_lane():
    # The mask ends these lanes, so nothing beyond the row is dropped afterwards.
    reported(sums(50, 10, True, choose=True), "swapped", "x_ptr", 10)
    assert not sums(50, 10, False, choose=True)


def test_columns_of_the_next_row_that_are_dropped_afterwards():
    x = ones(12, 10)
    assert not run(kernels.chosen_columns, (1,), x, zeros(10), 11, 10, *x.stride(), BLOCK=16)


def test_swapped_strides_of_a_store():
    options = {"BLOCK_M": 64, "BLOCK_N": 16}
    faults = run(kernels.store_tile, (1,), zeros(64, 16), 64, 16, 16, 1, SWAP=True, **options)
    reported(faults, "store_tile", "out_ptr", 16)
    assert not run(kernels.store_tile, (1,), zeros(64, 16), 64, 16, 16, 1, SWAP=False, **options)


def test_swapped_strides_that_lead_outside_are_reported_as_that():
    assert {f.kind for f in sums(10, 16, True, block_m=16)} == {"oob-load"}


def test_rows_of_one_program_after_the_other():
    arguments = ones(6, 100), zeros(6), 6, 100
    faults = run(kernels.all_rows, (1,), *arguments, FLAT=True, BLOCK=128)
    fault = reported(faults, "all_rows", "x_ptr", 100)
    assert (fault.program_id, fault.lane, fault.count) == ((0, 0, 0), (100,), 5 * 28)
    assert not run(kernels.all_rows, (1,), *arguments, FLAT=False, BLOCK=128)


@pytest.mark.parametrize("block", [64, 128])
def test_rows_of_one_program_that_blocks_fit_into(block):
    arguments = ones(6, 128), zeros(6), 6, 128
    assert not run(kernels.all_rows, (1,), *arguments, FLAT=True, BLOCK=block)


@pytest.mark.parametrize("heads", [1, 3])
def test_swapped_strides_of_sequences(heads):
    a, b, out = ones(2, 50, heads, 18), ones(2, 50, heads, 18), zeros(2, 32, 32)
    arguments = a, b, out, 32, 18, *a.stride()
    options = {"B": 32, "BLOCK_K": 32}
    faults = run(kernels.chunk_products, (2,), *arguments, SWAP=True, **options)
    if heads == 1:
        reported(faults, "chunk_products", "a_ptr", 18)
    assert not run(kernels.chunk_products, (2,), *arguments, SWAP=False, **options)


# Rows that are crossed on purpose, and those that are not


@BUDGETS
@pytest.mark.parametrize("shape", [(6, 100), (128, 4), (3, 5, 7), (64, 32)])
@pytest.mark.parametrize("block", [16, 32, 128])
def test_flat_copies(shape, block, budget):
    x = ones(*shape)
    grid = (-(-x.numel() // block),)
    assert not run(kernels.copy_flat, grid, x, zeros(*shape), x.numel(), BLOCK=block, budget=budget)


def test_vectors_of_a_row():
    assert not run(kernels.copy_flat, (6,), ones(6, 32), zeros(6, 32), 192, BLOCK=32)


@pytest.mark.parametrize(("m", "n"), [(20, 50), (50, 20), (32, 32)])
def test_transpose(m, n):
    assert not run(kernels.transpose, (4, 4), ones(m, n), zeros(n, m), m, n, BLOCK=16)


@pytest.mark.parametrize("window", [1, 2, 3])
def test_windows_of_several_rows(window):
    arguments = ones(8, 20), zeros(8), 8, 20, 8
    assert not run(kernels.windows_of_rows, (8,), *arguments, WINDOW=window, BLOCK=64)


def test_tiles_of_windows_of_two_rows():
    arguments = ones(10, 16), zeros(10), 10, 16
    assert not run(kernels.tile_of_pairs, (5,), *arguments, BLOCK_R=2, BLOCK=32)


def test_tile_whose_rows_are_parts_of_longer_ones():
    # The kernel's rows are halves of those of the tensor: nothing says where they end.
    arguments = ones(5, 60), zeros(10, 30), 10, 30
    assert not run(kernels.tile_softmax, (5,), *arguments, FLAT=True, BLOCK_R=2, BLOCK=32)


def test_windows_as_rows_of_a_matrix():
    x, w, out = ones(8, 16), ones(32), zeros(8)
    assert not run(kernels.windows_as_a_matrix, (1,), x, w, out, 8, 16, WIDTH=32, BLOCK_M=8)


def test_too_much_that_is_left_out_afterwards():
    assert not run(kernels.too_much_then_where, (6,), ones(6, 20), zeros(6), 6, 20, BLOCK=32)


def test_pixels_of_a_channel_in_order():
    assert not run(kernels.all_pixels, (3,), ones(3, 10, 7), zeros(3), 70, BLOCK=32)


@pytest.mark.parametrize("block", [16, 32])
def test_taps_of_a_filter_begin_before_the_row(block):
    arguments = ones(16, 16), zeros(16, 16), 16, 16
    options = {"TAPS": 5, "BLOCK": block}
    assert not run(kernels.filter_taps, (16,), *arguments, FLAT=False, **options)
    faults = run(kernels.filter_taps, (16,), *arguments, FLAT=True, **options)
    assert {fault.line for fault in faults} == {line("ROW filter_taps")}
    # The first lane after the row, by how far the tap is to the left or right; two whole rows are
    # read in the middle.
    lanes = {18, 17, 15, 14} if block == 32 else {15, 14}
    assert {fault.lane[0] for fault in faults} == lanes
    assert not any(fault.index % 16 for fault in faults)


def test_neighbours_in_order():
    assert not run(kernels.neighbours, (5,), ones(6, 12), zeros(6, 12), 6, 12, BLOCK=16)


def test_transposed_views_with_their_own_strides():
    x = ones(16, 64).t()
    for swap in (False, True):
        strides = x.stride() if not swap else x.stride()[::-1]
        faults = run(
            kernels.column_sums, (1,), x, zeros(16), 64, 16, *strides, SWAP=swap, BLOCK_M=64,
            BLOCK_N=16,
        )  # fmt: skip
        assert not faults


def test_matrix_that_is_passed_by_the_strides_of_its_transpose():
    x = ones(16, 64)
    assert not run(
        kernels.column_sums, (1,), x, zeros(16), 64, 16, x.stride(1), x.stride(0), SWAP=False,
        BLOCK_M=64, BLOCK_N=16,
    )  # fmt: skip


def test_square_matrix_whose_strides_may_be_meant():
    assert not sums(16, 16, True)


def test_pairs_of_rows():
    for block in (32, 64):
        assert not run(kernels.pairs_of_rows, (8,), ones(8, 16), zeros(8), 128, BLOCK=block)


def test_rows_that_are_padded():
    x = ones(6, 32)[:, :20]
    assert not run(kernels.row_sum, (6,), x, zeros(6), 6, 32, FLAT=False, BLOCK=16)
