"""The bad elements of an access: in the tensor, in the tile, in the grid."""

import pytest
import torch
from differential import run
from marked_lines import only

import tkdebug
import tkdebug.language as tl

BUDGETS = pytest.mark.parametrize("budget", [None, 4096, 64], ids=["whole", "batches", "single"])


@tkdebug.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs), mask=offs < n)


@tkdebug.jit
def sum_of_rows(x_ptr, out_ptr, rows, columns, R: tl.constexpr, C: tl.constexpr):
    at = tl.arange(0, C)
    inside = at < columns
    total = tl.zeros((C,), tl.float32)
    for first in range(0, rows, R):
        row = first + tl.arange(0, R)
        x = tl.load(x_ptr + row[:, None] * columns + at[None, :], mask=inside[None, :], other=0.0)
        total += tl.sum(x, axis=0)
    tl.store(out_ptr + at, total, mask=inside)


@tkdebug.jit
def rounds_of_programs(x_ptr, out_ptr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    for i in range(pid, pid + 2):
        tl.store(out_ptr + i, tl.load(x_ptr + 2 * i))


@tkdebug.jit
def scattered(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at * (at % 2) * 100))


@BUDGETS
def test_bad_elements_of_a_row_are_known_by_lane_and_by_program(budget):
    extent = only(
        run(copy, (4,), torch.zeros(100), torch.zeros(100), 100, 32, budget=budget)
    ).extent
    assert (extent.shape, extent.strides, extent.element_type) == ((100,), (1,), "float32")
    assert (extent.low, extent.high) == (100, 127)
    assert (extent.tile, extent.tile_start, extent.tile_steps) == ((32,), 96, (1,))
    assert (extent.boxes, extent.is_exact, extent.bad_elems) == ((((4, 32),),), True, 28)
    assert (extent.programs, extent.bad_programs) == (((3, 1, 28),), 1)
    assert (extent.mask, extent.rounds) == (None, ())


@BUDGETS
def test_programs_of_a_larger_grid_are_runs(budget):
    extent = only(
        run(copy, (7,), torch.zeros(100), torch.zeros(100), 100, 32, budget=budget)
    ).extent
    assert (extent.low, extent.high) == (100, 223)
    assert extent.programs == ((3, 1, 28), (4, 3, 32))
    assert extent.bad_programs == 4


def test_bad_rows_have_the_round_of_the_loop_and_the_mask_that_let_them_pass():
    x = torch.zeros(9, 5)
    fault = only(run(sum_of_rows, (1,), x, torch.zeros(5), 9, 5, R=4, C=8))
    extent = fault.extent
    assert extent.boxes == (((1, 4), (0, 5)),)
    assert extent.tile_steps == (5, 1)
    (loop,) = extent.rounds
    assert (loop.name, loop.value, loop.number) == ("first", 8, 2)
    assert extent.mask == "inside[None, :]"
    assert extent.mask_axes == (1,)


def test_allocations_are_those_of_the_whole_tensor():
    whole = torch.zeros(4, 100)
    extent = only(run(copy, (4,), whole[1], torch.zeros(100), 100, 32)).extent
    assert (extent.first_elem, extent.allocation_elems) == (100, 400)


@BUDGETS
def test_rounds_are_those_of_the_first_offender_where_programs_differ(budget):
    x, out = torch.zeros(8), torch.zeros(8)
    extent = only(run(rounds_of_programs, (4,), x, out, 1, budget=budget)).extent
    assert [(one.name, one.value, one.number) for one in extent.rounds] == [("i", 4, 1)]
    assert (extent.tile, extent.boxes, extent.bad_elems) == ((), ((),), 1)


def test_many_boxes_are_one_that_holds_them():
    extent = only(run(scattered, (1,), torch.zeros(2), torch.zeros(64), 64)).extent
    assert extent.boxes == (((1, 64),),)
    assert not extent.is_exact
    assert extent.bad_elems == 32
