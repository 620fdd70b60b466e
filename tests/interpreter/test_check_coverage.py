"""`--check coverage`: inputs that a launch leaves out in part, or adds up twice."""

from functools import partial

import coverage_kernels as kernels
import pytest
import torch
from differential import run
from marked_lines import line_of, only

from tkdebug.interpreter.checks.coverage.rules import times_read
from tkdebug.knobs import scope
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor

line = partial(line_of, kernels)
BUDGETS = pytest.mark.parametrize("budget", [None, 4096, 64], ids=["whole", "batches", "single"])
ones, zeros = torch.ones, torch.zeros
TILES = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16}


@pytest.fixture(autouse=True)
def checked():
    with scope(checks=("coverage",)):
        yield


def reported(faults, marker, tensor, count, index):
    fault = only(faults)
    assert (fault.kind, fault.severity) == ("coverage", "warning")
    assert (fault.line, fault.tensor) == (line(f"GAP {marker}"), tensor)
    assert (fault.count, fault.index) == (count, index), fault
    return fault


# What is left out


@BUDGETS
def test_grid_of_whole_blocks_only(budget):
    arguments = ones(100), zeros(100), 100
    fault = reported(
        run(kernels.scale, (100 // 16,), *arguments, BLOCK=16, budget=budget),
        "scale", "x_ptr", 4, 96,
    )  # fmt: skip
    assert (
        fault.message == "4 of the 100 elements of `x_ptr` are never read, the first at offset 96"
    )
    assert "cdiv" in fault.hint
    assert not run(kernels.scale, (7,), *arguments, BLOCK=16, budget=budget)
    assert not run(kernels.scale, (6,), ones(96), zeros(96), 96, BLOCK=16, budget=budget)


@BUDGETS
def test_sum_whose_grid_leaves_out_the_tail(budget):
    faults = run(kernels.partial_sums, (3,), ones(1000), zeros(3), 1000, BLOCK=256, budget=budget)
    reported(faults, "partial_sums", "x_ptr", 232, 768)
    assert not run(kernels.partial_sums, (4,), ones(1000), zeros(4), 1000, BLOCK=256, budget=budget)


@BUDGETS
@pytest.mark.parametrize(("n", "missed"), [(100, 4), (96, 32)])
def test_loop_that_ends_a_block_too_early(n, missed, budget):
    x, out = ones(5, n), zeros(5)
    faults = run(kernels.row_sums, (5,), x, out, n, n, STOP=32, BLOCK=32, budget=budget)
    fault = reported(faults, "row_sums", "x_ptr", 5 * missed, n - missed)
    assert f"the first at index {n - missed} of dimension 1" in fault.message
    assert "loop" in fault.hint
    assert not run(kernels.row_sums, (5,), x, out, n, n, STOP=0, BLOCK=32, budget=budget)


@BUDGETS
def test_rounds_of_whole_blocks_only(budget):
    x, out = ones(3, 70), zeros(3)
    kernel, grid = kernels.row_sums_in_rounds, (3,)
    faults = run(kernel, grid, x, out, 70, 70, CEIL=False, BLOCK=16, budget=budget)
    reported(faults, "rounds", "x_ptr", 18, 64)
    assert not run(kernel, grid, x, out, 70, 70, CEIL=True, BLOCK=16, budget=budget)


def test_rows_of_a_view():
    x = ones(6, 100)[::2, 20:90]
    faults = run(kernels.row_sums_in_rounds, (3,), x, zeros(3), 70, 200, CEIL=False, BLOCK=16)
    reported(faults, "rounds", "x_ptr", 18, 64)


def matmul(m, n, k, masked, ceil, budget=None):
    a, b, c = ones(m, k), ones(k, n), zeros(m, n)
    sizes = (m, n, k, *a.stride(), *b.stride(), *c.stride())
    grid = (-(-m // 16), -(-n // 16))
    return run(
        kernels.matmul, grid, a, b, c, *sizes, MASKED=masked, CEIL=ceil, **TILES, budget=budget
    )


@BUDGETS
@pytest.mark.parametrize("masked", [True, False])
def test_matmul_that_drops_the_tail_of_k(masked, budget):
    faults = matmul(33, 40, 70, masked, False, budget)
    prefix = "masked " if masked else ""
    assert [(f.tensor, f.count, f.index) for f in faults] == [
        ("a_ptr", 6 * 33, 64), ("b_ptr", 6 * 40, 64 * 40),
    ]  # fmt: skip
    assert [f.line for f in faults] == [line(f"GAP {prefix}a"), line(f"GAP {prefix}b")]
    assert all("loop" in f.hint for f in faults)


@BUDGETS
@pytest.mark.parametrize(("m", "n", "k"), [(33, 40, 70), (32, 32, 64), (16, 100, 16), (5, 5, 5)])
def test_matmul_of_all(m, n, k, budget):
    assert not matmul(m, n, k, True, True, budget)


@BUDGETS
def test_grid_that_is_too_small_is_not_taken_for_a_loop_that_ends_early(budget):
    """The loop forwards the block's offset along the dimension that the grid goes along."""
    a, b, c = ones(50, 40), ones(75, 40), zeros(50, 75)
    found = run(kernels.swapped_grid_matmul, (3, 2), a, b, c, 50, 75, 40, B=32, budget=budget)
    fault = reported(found, "swapped_grid_matmul", "b_ptr", 11 * 40, 64 * 40)
    assert "is the grid, (3, 2, 1), too small?" in fault.hint


def experts(k, ceil, rest, budget):
    x, w, y = ones(7, k), ones(3, k, 20), zeros(7, 20)
    ends = torch.tensor([0, 4, 4, 7], dtype=torch.int32)  # the second has no rows
    return run(
        kernels.expert_matmul, (3, 2), x, w, y, ends, k, 20, ceil, rest, **TILES, budget=budget
    )


@BUDGETS
def test_matmul_of_experts_that_drops_the_tail_of_k(budget):
    fault = reported(experts(40, False, False, budget), "w", "w_ptr", 3 * 8 * 20, 32 * 20)
    assert "the loop ends before the last, ragged block" in fault.hint


@BUDGETS
def test_matmul_of_experts(budget):
    assert not experts(40, True, False, budget)
    assert not experts(48, False, False, budget)
    assert not experts(40, False, True, budget)  # another branch reads the tail


def test_tile_that_is_shorter_than_its_row():
    faults = run(kernels.sum_of_tile, (4,), ones(4, 40), zeros(4), 40, BLOCK=32)
    fault = reported(faults, "short tile", "x_ptr", 4 * 8, 32)
    assert fault.hint.startswith("the tile ends before the last of 40, and nothing moves it along")
    assert not run(kernels.sum_of_tile, (4,), ones(4, 40), zeros(4), 40, BLOCK=64)


@BUDGETS
def test_block_pointers_beyond_the_end(budget):
    m, n, k = 64, 32, 48
    a, b, c = ones(m, k), ones(k, n), zeros(m, n)
    faults = run(
        kernels.matmul_of_blocks, (4, 2), a, b, c, m, n, k, SCALE=16, **TILES, budget=budget
    )
    fault = reported(faults, "block a", "a_ptr", 48 * k, 16 * k)
    assert "a block lies wholly past the end of `a_ptr`" in fault.message
    assert not run(
        kernels.matmul_of_blocks, (4, 2), a, b, c, m, n, k, SCALE=1, **TILES, budget=budget
    )


def test_block_pointers_over_a_grid_that_is_too_small():
    m, n, k = 60, 32, 48
    a, b, c = ones(m, k), ones(k, n), zeros(m, n)
    faults = run(kernels.matmul_of_blocks, (3, 2), a, b, c, m, n, k, SCALE=1, **TILES)
    reported(faults, "block a", "a_ptr", 12 * k, 48 * k)


def descriptors(m, n, k):
    a = TensorDescriptor.from_tensor(ones(m, k), [16, 16])
    b = TensorDescriptor.from_tensor(ones(k, n), [16, 16])
    return a, b, zeros(m, n), m, n, k


@BUDGETS
def test_descriptors_whose_offsets_are_swapped(budget):
    faults = run(
        kernels.matmul_of_descriptors, (6, 2), *descriptors(96, 32, 32), SWAP=True, CEIL=True,
        **TILES, budget=budget,
    )  # fmt: skip
    reported(faults, "swapped descriptor", "a_desc", 64 * 32, 32 * 32)


@BUDGETS
@pytest.mark.parametrize(("m", "n", "k"), [(96, 32, 32), (100, 20, 40), (16, 16, 16)])
def test_descriptors_that_read_all(m, n, k, budget):
    grid = (-(-m // 16), -(-n // 16))
    assert not run(
        kernels.matmul_of_descriptors, grid, *descriptors(m, n, k), SWAP=False, CEIL=True,
        **TILES, budget=budget,
    )  # fmt: skip


def test_descriptors_that_drop_the_tail_of_k():
    faults = run(
        kernels.matmul_of_descriptors, (2, 2), *descriptors(32, 32, 40), SWAP=False, CEIL=False,
        **TILES,
    )  # fmt: skip
    assert [(f.tensor, f.line) for f in faults] == [
        ("a_desc", line("GAP descriptor a")), ("b_desc", line("GAP descriptor b")),
    ]  # fmt: skip


@BUDGETS
def test_parts_that_leave_out_the_rest_of_a_division(budget):
    n = 1003
    faults = run(
        kernels.split_sum, (4,), ones(n), zeros(1), n, n // 4, BOUND=True, BLOCK=64, budget=budget
    )
    fault = reported(faults, "split_sum", "x_ptr", 3, 1000)
    assert "do not add up to 1003" in fault.hint


@BUDGETS
def test_parts_of_which_one_is_left_out(budget):
    faults = run(
        kernels.split_sum, (3,), ones(256), zeros(1), 256, 64, BOUND=True, BLOCK=64, budget=budget
    )
    reported(faults, "split_sum", "x_ptr", 64, 192)


@BUDGETS
def test_parts_that_overlap(budget):
    arguments = ones(1000), zeros(1), 1000, 250
    faults = run(kernels.split_sum, (4,), *arguments, BOUND=False, BLOCK=64, budget=budget)
    fault = reported(faults, "split_sum", "x_ptr", 18, 250)
    assert "18 of the 1000 elements of `x_ptr` are added up twice" in fault.message
    assert not run(kernels.split_sum, (4,), *arguments, BOUND=True, BLOCK=64, budget=budget)


@BUDGETS
def test_split_k_whose_parts_overlap(budget):
    m, n, k = 32, 16, 128
    a, b, c = ones(m, k), ones(k, n), zeros(m, n)
    faults = run(kernels.split_k, (2, 4), a, b, c, m, n, k, 32, EXTRA=1, **TILES, budget=budget)
    assert [(f.line, f.count) for f in faults] == [
        (line("GAP sa"), 48 * m), (line("GAP sb"), 48 * n),
    ]  # fmt: skip
    assert not run(kernels.split_k, (2, 4), a, b, c, m, n, k, 32, EXTRA=0, **TILES, budget=budget)


@BUDGETS
def test_softmax_without_the_last_column(budget):
    arguments = ones(5, 20), zeros(5, 20), 20
    faults = run(kernels.softmax, (5,), *arguments, SHORT=1, BLOCK=32, budget=budget)
    fault = reported(faults, "softmax", "x_ptr", 5, 19)
    assert "compare with n, not n - 1" in fault.hint
    assert not run(kernels.softmax, (5,), *arguments, SHORT=0, BLOCK=32, budget=budget)


# What is right


def test_last_elements_that_are_left_out_on_purpose():
    assert not run(kernels.sum_of_steps, (1,), ones(20), ones(20), zeros(1), 20, BLOCK=32)
    assert not run(kernels.all_but_the_last, (1,), ones(20), zeros(20), 20, BLOCK=32)
    assert not run(kernels.sum_of_all_but_the_last, (1,), ones(20), zeros(1), 20, BLOCK=32)


def test_rows_chosen_by_an_index():
    index = torch.tensor([1, 5, 1], dtype=torch.int32)
    assert not run(kernels.embedding, (3,), index, ones(8, 24), zeros(3, 24), 3, 24, BLOCK=32)


@BUDGETS
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 16])
@pytest.mark.parametrize(("m", "n"), [(64, 64), (50, 50), (64, 90), (16, 40), (100, 30)])
def test_attention(causal, window, m, n, budget):
    q, k, v, out = ones(m, 16), ones(n, 16), ones(n, 16), zeros(m, 16)
    if window and not causal:
        return
    options = {"CAUSAL": causal, "WINDOW": window, "BLOCK": 16, "D": 16}
    assert not run(kernels.attention, (-(-m // 16),), q, k, v, out, m, n, **options, budget=budget)


def test_keys_of_a_cache_that_is_longer():
    q, k, v, out = ones(16, 16), ones(64, 16), ones(64, 16), zeros(16, 16)
    options = {"CAUSAL": False, "WINDOW": 0, "BLOCK": 16, "D": 16}
    assert not run(kernels.attention, (1,), q, k, v, out, 16, 50, **options)


def test_a_tensor_in_parts_by_several_launches():
    data, out = ones(100), zeros(100)
    for start in (0, 64):
        assert not run(kernels.scale_part, (2,), data, out, start, 100, BLOCK=32)


def test_the_beginning_of_a_larger_tensor():
    assert not run(kernels.scale, (4,), ones(100), zeros(100), 64, BLOCK=16)
    assert not run(kernels.partial_sums, (4,), ones(100), zeros(4), 60, BLOCK=16)


def test_pooling_that_drops_the_last_element():
    assert not run(kernels.pool, (2,), ones(33), zeros(16), 33, 16, BLOCK=16)
    assert not run(kernels.pool, (1,), ones(33), zeros(16), 33, 16, BLOCK=16)


@pytest.mark.parametrize("hop", [8, 16, 24])
def test_frames_that_leave_a_rest(hop):
    n = 100
    count = 1 + (n - 16) // hop
    assert not run(
        kernels.frames, (count - (hop == 16),), ones(n), zeros(count), 96, hop, WINDOW=16
    )
    if hop != 16:
        assert not run(kernels.frames, (count,), ones(n), zeros(count), n, hop, WINDOW=16)


@BUDGETS
def test_persistent_programs(budget):
    assert not run(kernels.persistent, (3,), ones(100), zeros(100), 100, BLOCK=16, budget=budget)


@BUDGETS
def test_tail_after_the_loop(budget):
    for n in (100, 96, 10):
        assert not run(kernels.main_and_tail, (1,), ones(n), zeros(1), n, BLOCK=16, budget=budget)


@BUDGETS
def test_sequences_of_several_lengths(budget):
    ends = torch.tensor([0, 10, 10, 50], dtype=torch.int32)
    assert not run(kernels.varlen_sum, (3,), ones(64), ends, zeros(3), 64, BLOCK=16, budget=budget)


def test_recurrence_that_does_not_need_the_last_chunk():
    assert not run(kernels.states_before_chunks, (1,), ones(70), zeros(80), 70, BLOCK=16)


@BUDGETS
def test_halo_of_a_filter_whose_gradient_is_summed(budget):
    arguments = ones(66), ones(64), zeros(3), 66
    assert not run(kernels.gradient_of_filter, (4,), *arguments, TAPS=3, BLOCK=16, budget=budget)


def test_first_half_of_each_row():
    assert not run(kernels.gate, (3,), ones(3, 40), zeros(3, 20), 40, 20, BLOCK=32)


def test_what_all_programs_read_beside_their_parts():
    assert not run(kernels.bias_sum, (4,), ones(60), ones(16), zeros(1), 60, BLOCK=16)


def test_patches_that_leave_a_border():
    assert not run(kernels.patches, (4,), ones(35, 37), zeros(4), 35, 37, PATCH=16)


@pytest.mark.parametrize("n", [128, 120, 24])
def test_block_pointers_of_a_part(n):
    grid = (-(-n // 16),)
    assert not run(kernels.copy_first_half, grid, ones(n), zeros(n), n, BLOCK=16)


def test_block_that_is_fetched_ahead_of_the_last_round():
    desc = TensorDescriptor.from_tensor(ones(100), [16])
    assert not run(kernels.prefetched, (1,), desc, zeros(1), 100, BLOCK=16)


def test_tensor_that_the_kernel_writes():
    data = ones(100)
    assert not run(kernels.scale, (6,), data, data, 100, BLOCK=16)


@pytest.mark.parametrize("n", [40, 36, 48])
def test_chunks_that_some_rounds_need(n):
    assert not run(kernels.states_before_pairs, (1,), torch.ones(n), zeros(8), n, BLOCK=16)


def test_reads_of_each_index_are_not_counted_along_huge_dimensions():
    """The counts would take many times the memory of the tensor."""
    assert times_read([], [(1 << 50, 4), (1, 1 << 50)]) is None
    assert times_read([], [(1 << 20, 4), (1, 1 << 20)]) is not None
