"""Checks that run only when asked for: races between programs, unwritten memory, NaNs."""

import sys
from functools import partial

import checked_kernels as kernels
import pytest
import torch
from differential import run
from marked_lines import line_of, only

from tkdebug.compat.around_torch.unwritten_memory import mark_empties
from tkdebug.instrument import add_hook
from tkdebug.interpreter.checks.unwritten.patterns import MARKS
from tkdebug.knobs import scope

line = partial(line_of, kernels)
BUDGETS = pytest.mark.parametrize("budget", [None, 4096, 64], ids=["whole", "batches", "single"])


@pytest.fixture
def checked():
    with scope(checks=("race", "uninitialised-read")):
        yield


@pytest.fixture
def marked(checked):
    stop = mark_empties()
    yield
    stop()


def integers(*shape):
    return torch.zeros(*shape, dtype=torch.int32)


def test_nothing_is_checked_unless_asked_for():
    assert not run(kernels.all_store_here, (4,), integers(8), BLOCK=8)


@BUDGETS
def test_programs_that_store_to_the_same_place(checked, budget):
    fault = only(run(kernels.all_store_here, (4,), integers(8), BLOCK=8, budget=budget))
    assert (fault.kind, fault.severity) == ("race", "error")
    assert (fault.line, fault.tensor) == (line("RACE all_store_here"), "out_ptr")
    assert fault.count == 24
    assert "store writes offset 0 of `out_ptr`, which program" in fault.message
    assert "atomics" in fault.hint


def test_race_between_two_programs_names_both(checked):
    fault = only(run(kernels.all_store_here, (2,), integers(8), BLOCK=8))
    assert (fault.program_id, fault.lane, fault.index) == ((0, 0, 0), (0,), 0)
    assert "which program (1, 0, 0) writes here too" in fault.message


@BUDGETS
def test_storing_the_same_value_is_no_race(checked, budget):
    assert not run(kernels.all_store_the_same, (4,), integers(8), BLOCK=8, budget=budget)


@BUDGETS
def test_store_to_what_another_program_reads(checked, budget):
    x = torch.arange(1, 65, dtype=torch.int32)
    (fault,) = run(kernels.shift_in_place, (4,), x, 64, BLOCK=16, budget=budget)
    read, wrote = line("READ shift_in_place"), line("RACE shift_in_place")
    assert fault.kind == "race"
    assert fault.line == wrote
    assert fault.index in (16, 32, 48)
    assert f"reads at line {read}," in fault.message
    assert "two launches" in fault.hint


@BUDGETS
@pytest.mark.parametrize(
    ("kind", "atomic"),
    [
        ("add", "tl.atomic_add"),
        ("add in a loop", "tl.atomic_add"),
        ("subtract", "tl.atomic_add"),
        ("max", "tl.atomic_max"),
        ("double", None),
        ("from it", None),
        ("multiply", None),
    ],
)
def test_the_hint_of_a_load_and_a_store_that_one_atomic_replaces(checked, kind, atomic, budget):
    x, h = torch.arange(8.0, 40.0), torch.ones(8)
    faults = run(kernels.accumulate, (4,), x, h, KIND=kind, BLOCK=8, budget=budget)
    fault = next(fault for fault in faults if fault.kind == "race")
    if atomic is None:
        assert "two launches" in fault.hint
    else:
        assert fault.hint.endswith(f"use {atomic} in place of both")


def test_load_of_what_another_program_writes(checked):
    x, scratch = torch.arange(1, 65, dtype=torch.int32), integers(64)
    fault = only(run(kernels.mirror_through_memory, (2,), x, scratch, 64, BLOCK=32))
    assert fault.line == line("RACE mirror_through_memory")
    assert (fault.tensor, fault.program_id, fault.index) == ("scratch_ptr", (0, 0, 0), 63)
    wrote = line("WRITE mirror_through_memory")
    assert f"which program (1, 0, 0) writes at line {wrote}," in fault.message


@BUDGETS
def test_programs_in_place_on_their_own_elements_do_not_race(checked, budget):
    x = torch.arange(1, 101, dtype=torch.int32)
    assert not run(kernels.scale_in_place, (4,), x, 100, BLOCK=16, budget=budget)
    assert torch.equal(x, 2 * torch.arange(1, 101, dtype=torch.int32))


def test_elements_of_one_tile_that_store_to_the_same_place(checked):
    index = torch.tensor([0, 3, 2, 3], dtype=torch.int32)
    fault = only(run(kernels.scatter, (1,), integers(4), index, BLOCK=4))
    assert (fault.line, fault.lane, fault.index) == (line("RACE scatter"), (1,), 3)
    assert "another element of the same tile" in fault.message
    assert "mask" in fault.hint


@BUDGETS
def test_plain_store_beside_atomics(checked, budget):
    fault = only(run(kernels.clear_and_add, (4,), integers(1), BLOCK=4, budget=budget))
    assert fault.tensor == "out_ptr"
    assert {line("WRITE clear_and_add"), line("RACE clear_and_add")} >= {fault.line}
    assert not run(kernels.add_atomically, (4,), integers(1), budget=budget)


def test_atomic_on_what_other_programs_have_read(checked):
    fault = only(run(kernels.load_then_add, (4,), integers(1), integers(4)))
    assert (fault.kind, fault.line) == ("race", line("RACE load_then_add"))
    assert "reads at line" in fault.message
    assert not run(kernels.load_then_add, (1,), integers(1), integers(4))


def test_sum_without_atomics(checked):
    fault = only(run(kernels.add_plainly, (4,), integers(1)))
    assert fault.line == line("RACE add_plainly")


def test_a_flag_that_nobody_waits_for_orders_nothing(checked):
    fault = only(run(kernels.add_after_a_flag, (4,), integers(1), integers(1)))
    assert (fault.kind, fault.line) == ("race", line("RACE add_after_a_flag"))


def test_races_in_a_large_tensor_take_memory_where_it_is_touched(checked):
    resource = pytest.importorskip("resource")
    place = (1 << 26) - 1
    out, faults = torch.empty(place + 1, dtype=torch.int8), []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with add_hook(fault=faults.append):
        kernels.store_at.interpret[(2,)](out, place)
    fault = only(faults)
    assert (fault.kind, fault.index) == ("race", place)
    unit_bytes = 1 if sys.platform == "darwin" else 1024
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * unit_bytes < 1 << 29


def test_race_between_two_arguments_that_are_one_tensor(checked):
    x = torch.arange(64, dtype=torch.int32)
    (fault,) = run(kernels.copy_shifted, (4,), x, x, 64, BLOCK=16)
    assert (fault.line, fault.tensor) == (line("RACE copy_shifted"), "to_ptr")
    read = line("READ copy_shifted")
    assert f"reads at line {read} as offset {fault.index} of `from_ptr`, in no" in fault.message
    assert "`to_ptr` and `from_ptr` are the same memory" in fault.hint
    assert "of grid (4, 1, 1)" in fault.hint
    assert "two launches" not in fault.hint


def test_race_between_two_arguments_that_overlap(checked):
    x = torch.arange(96, dtype=torch.int32)
    (fault,) = run(kernels.copy_shifted, (4,), x[:64], x[32:], 64, BLOCK=16)
    assert f"as offset {fault.index + 32} of `from_ptr`" in fault.message
    assert "`to_ptr` and `from_ptr` overlap in memory" in fault.hint


def test_two_arguments_of_one_allocation_that_do_not_overlap(checked):
    x = torch.arange(128, dtype=torch.int32)
    assert not run(kernels.copy_shifted, (4,), x[:64], x[64:], 64, BLOCK=16)


@BUDGETS
def test_the_last_program_to_arrive_reads_what_the_others_stored(checked, budget):
    args = integers(4), integers(1), integers(1)
    assert not run(kernels.last_one_sums, (4,), *args, P=4, budget=budget)


def test_accesses_of_several_sizes(checked):
    assert not run(kernels.bytes_and_words, (5,), torch.zeros(8, dtype=torch.int8), WORDS=False)
    fault = only(run(kernels.bytes_and_words, (5,), torch.zeros(8, dtype=torch.int8), WORDS=True))
    assert (fault.line, fault.count) == (line("RACE bytes_and_words"), 1)


def test_races_through_pointers_chosen_at_run_time(checked):
    a, b = integers(2), integers(2)
    faults = run(kernels.through_addresses, (4,), a, b, integers(1))
    assert only(faults).line == line("RACE through_addresses")


@pytest.mark.parametrize("dtype", MARKS)
@BUDGETS
def test_read_of_what_nothing_has_written(marked, dtype, budget):
    x, out = torch.empty(64, dtype=dtype), torch.zeros(64, dtype=dtype)
    assert not run(kernels.write_some, (4,), x, 50, BLOCK=16, budget=budget)
    assert not run(kernels.double, (4,), x, out, 50, BLOCK=16, budget=budget)
    fault = only(run(kernels.double, (4,), x, out, 60, BLOCK=16, budget=budget))
    assert (fault.kind, fault.line) == ("uninitialised-read", line("UNWRITTEN"))
    assert (fault.tensor, fault.program_id, fault.lane) == ("x_ptr", (3, 0, 0), (2,))
    assert (fault.index, fault.count) == (50, 10)
    assert "torch.zeros" in fault.hint


def test_atomic_on_what_nothing_has_written(marked):
    fault = only(run(kernels.count_up, (1,), torch.empty(4, dtype=torch.int32), EXCHANGE=False))
    assert (fault.kind, fault.line) == ("uninitialised-read", line("UNWRITTEN count_up"))
    assert not run(kernels.count_up, (1,), torch.empty(4, dtype=torch.int32), EXCHANGE=True)


def test_lock_that_nothing_has_written(marked):
    fault = only(run(kernels.take_lock, (1,), torch.empty(1, dtype=torch.int32)))
    assert (fault.kind, fault.line) == ("uninitialised-read", line("UNWRITTEN take_lock"))


def test_a_load_of_which_nothing_comes_reads_nothing(marked):
    out = torch.empty(8)
    assert not run(kernels.filled, (1,), torch.empty(8), out, 1.5, uses=False, BLOCK=8)
    assert out.tolist() == [1.5] * 8
    fault = only(run(kernels.filled, (1,), torch.empty(8), torch.zeros(8), 1.5, uses=True, BLOCK=8))
    assert (fault.kind, fault.count) == ("uninitialised-read", 8)


def test_what_torch_wrote_and_copied(marked):
    written = torch.empty(16).fill_(3.0)
    assert not run(kernels.double, (1,), written, torch.zeros(16), 16, BLOCK=16)
    copied = torch.empty_like(written).clone()
    assert only(run(kernels.double, (1,), copied, torch.zeros(16), 16, BLOCK=16)).count == 16
    computed = torch.empty(16) + 1
    assert not run(kernels.double, (1,), computed, torch.zeros(16), 16, BLOCK=16)


def test_unmarked_again_afterwards():
    functions = torch.empty, torch.empty_like, torch.Tensor.new_empty
    mark_empties()()
    assert (torch.empty, torch.empty_like, torch.Tensor.new_empty) == functions


@pytest.fixture
def nans():
    with scope(checks=("nan",)):
        yield


@BUDGETS
def test_stored_nan_names_the_line_that_made_it(nans, budget):
    x = torch.rand(4, 10)
    x[2] = -torch.inf
    fault = only(run(kernels.softmax, (4,), x, torch.zeros(4, 10), 10, BLOCK=16, budget=budget))
    assert (fault.kind, fault.line) == ("nan", line("BORN softmax"))
    assert (fault.program_id, fault.lane) == ((2, 0, 0), (0,))
    assert (fault.tensor, fault.index, fault.count) == ("out_ptr", 20, 10)
    stored = line("STORED softmax")
    assert fault.message == (
        f"a NaN is made here, of -inf - -inf, and stored at line {stored} to offset 20 of `out_ptr`"
    )


@BUDGETS
def test_added_nan_names_the_line_that_made_it(nans, budget):
    x = torch.rand(4, 10)
    assert not run(kernels.add_shares, (4,), x, torch.zeros(10), 10, BLOCK=16, budget=budget)
    x[2] = 0
    fault = only(run(kernels.add_shares, (4,), x, torch.zeros(10), 10, BLOCK=16, budget=budget))
    assert (fault.kind, fault.line) == ("nan", line("BORN add_shares"))
    assert (fault.program_id, fault.tensor, fault.count) == ((2, 0, 0), "out_ptr", 10)
    added = line("ADDED add_shares")
    assert f"of 0 / 0, and added at line {added} to offset 0 of `out_ptr`" in fault.message


def test_nan_that_an_atomic_masks_off_is_no_fault(nans):
    x = torch.zeros(2, 4)
    assert not run(kernels.add_shares, (2,), x, torch.zeros(4), 0, BLOCK=4)


def test_nan_beyond_a_mask_that_is_stored(nans):
    fault = only(run(kernels.fill_without_mask, (1,), torch.zeros(8), torch.zeros(8), 6, BLOCK=8))
    assert (fault.line, fault.lane) == (line("BORN fill_without_mask"), (6,))
    assert "inf - inf" in fault.message
    whole = (torch.zeros(8), torch.zeros(8), 8)
    assert not run(kernels.fill_without_mask, (1,), *whole, BLOCK=8)


@BUDGETS
def test_nan_that_some_programs_make_of_one_value(nans, budget):
    x = torch.tensor([torch.inf])
    fault = only(run(kernels.in_some_programs, (4,), x, torch.zeros(4), budget=budget))
    assert (fault.line, fault.program_id) == (line("BORN in_some_programs"), (2, 0, 0))


def test_nan_that_is_dropped_or_loaded_is_no_fault(nans):
    x = torch.tensor([1.0, -1.0, 0.0, 2.0])
    assert not run(kernels.guarded, (1,), x, torch.zeros(4), BLOCK=4)
    x[:] = torch.nan
    assert not run(kernels.double, (1,), x, torch.zeros(4), 4, BLOCK=4)


@BUDGETS
def test_nan_that_the_kernel_writes_down_is_no_fault(nans, budget):
    out = torch.zeros(4, 8)
    assert not run(kernels.filled_with_nan, (4,), torch.ones(4, 6), out, 6, BLOCK=8, budget=budget)
    assert out.isnan().sum() == 4 * 2


def test_nan_of_a_function_of_the_input_is_a_warning(nans):
    x = torch.tensor([4.0, -1.0], dtype=torch.float16)
    given = only(run(kernels.roots, (1,), x, torch.zeros(2), shift=False, BLOCK=2))
    assert (given.kind, given.severity, given.count) == ("nan", "warning", 1)
    computed = only(run(kernels.roots, (1,), x, torch.zeros(2), shift=True, BLOCK=2))
    assert (computed.severity, computed.count) == ("error", 1)


@BUDGETS
def test_nan_through_loops_and_branches(nans, budget):
    x = torch.rand(4, 16)
    x[2, 5] = -4.0
    fault = only(run(kernels.sum_of_roots, (2,), x, torch.zeros(2, 16), 3, BLOCK=16, budget=budget))
    assert (fault.line, fault.program_id, fault.lane) == (
        line("BORN sum_of_roots"),
        (0, 0, 0),
        (5,),
    )
    assert "of sqrt(-4)" in fault.message
    assert fault.count == 2


def test_nan_in_a_while_loop(nans):
    fault = only(run(kernels.halving, (3,), torch.ones(3), torch.zeros(3)))
    assert (fault.line, fault.count) == (line("BORN halving"), 3)
    assert "of 0 / 0" in fault.message


def test_nans_that_change_places_in_a_loop_keep_their_lines(nans):
    fault = only(run(kernels.swapping, (1,), torch.full((1,), -1.0), torch.zeros(2), 2))
    assert (fault.line, fault.count) == (line("BORN swapping"), 1)
