"""Offsets that wrap in int32: reported where an access uses them, inside the tensor or not.

So are remainders of negative numbers, where they lead before the tensor.
"""

from functools import partial

import overflow_kernels as kernels
import pytest
import torch
from differential import run
from marked_lines import line_of, only

BUDGETS = pytest.mark.parametrize("budget", [None, 64], ids=["whole", "single"])
FAR = 1 << 30
line = partial(line_of, kernels)


@BUDGETS
def test_a_row_past_the_end_of_int32_that_wraps_into_the_tensor(budget):
    # Row 65536 of rows of 65536 elements begins at 2**32, which int32 takes for 0.
    x, out = torch.arange(65536.0), torch.zeros(3 * 8)
    faults = run(kernels.rows, (3,), x, out, 65535, 65536, 8, BLOCK=8, budget=budget)
    wrapped = [fault for fault in faults if fault.kind == "offset-overflow"]
    fault = only(wrapped)
    assert (fault.severity, fault.line, fault.tensor) == ("error", line("WRAPS rows"), "x_ptr")
    # -65536, 0 and 65536.
    assert [f.kind for f in faults] == ["offset-overflow", "oob-load"]
    assert fault.program_id == (0, 0, 0)
    assert fault.count == 3 * 8
    assert "`65535 * 65536` does not fit int32 and wraps" in fault.message
    assert f"leads to offset -65536 of `x_ptr` at line {fault.line}" in fault.message
    assert "tl.int64" in fault.hint


def test_nothing_else_is_wrong_with_an_offset_that_wraps_into_the_tensor():
    x, out = torch.arange(65536.0), torch.zeros(8)
    fault = only(run(kernels.rows, (1,), x, out, 65536, 65536, 8, BLOCK=8))
    assert (fault.kind, fault.index) == ("offset-overflow", 0)
    assert not run(kernels.rows, (1,), x, out, 0, 65536, 8, BLOCK=8)


def test_offsets_in_int64_do_not_wrap():
    x, out = torch.arange(32.0), torch.zeros(24)
    assert not run(kernels.rows_in_int64, (3,), x, out, 65535, 65536, 16, BLOCK=8)


@BUDGETS
def test_rows_that_were_loaded(budget):
    x, out = torch.arange(64.0), torch.zeros(4, 8)
    rows = torch.tensor([0, 1 << 29, 2, 1 << 28], dtype=torch.int32)
    fault = only(run(kernels.gathered, (1,), x, rows, out, 16, R=4, C=8, budget=budget))
    assert (fault.kind, fault.line) == ("offset-overflow", line("WRAPS gathered"))
    assert (fault.lane[0], fault.count) == (1, 16)
    assert "`536870912 * 16`" in fault.message
    rows = rows.clamp(max=2)
    assert not run(kernels.gathered, (1,), x, rows, out, 16, R=4, C=8, budget=budget)
    rows = rows.long().clamp(max=2)
    assert not run(kernels.gathered, (1,), x, rows, out, 16, R=4, C=8, budget=budget)


def test_through_a_loop_and_a_device_function():
    x, out = torch.arange(64.0), torch.zeros(1)
    fault = only(run(kernels.carried, (1,), x, out, 4, FAR))
    assert [frame.line for frame in fault.frames] == [line("CALL"), line("WRAPS offset_of")]
    assert fault.count == 3


@BUDGETS
def test_hashes_that_take_a_remainder_or_some_bits_are_meant(budget):
    x, out = torch.arange(64.0), torch.zeros(16)
    assert not run(kernels.hashed, (2,), x, out, 1 << 29 | 12345, 64, BLOCK=8, budget=budget)


def test_what_a_mask_or_a_choice_drops_is_no_fault():
    x, out = torch.arange(16.0), torch.zeros(16)
    assert not run(kernels.masked_off, (1,), x, out, FAR, 1, BLOCK=16)


def test_sums_that_wrap_and_come_back_are_right():
    x, out = torch.arange(16.0), torch.zeros(16)
    assert not run(kernels.there_and_back, (1,), x, out, FAR, BLOCK=16)
    assert torch.equal(out, x)


def test_unsigned_offsets_have_a_bit_more():
    x, out = torch.arange(16.0), torch.zeros(16)
    assert not run(kernels.unsigned, (1,), x, out, FAR, BLOCK=16)
    assert torch.equal(out, x)


@BUDGETS
def test_remainders_by_hand_are_meant(budget):
    x, out = torch.arange(64.0), torch.zeros(16)
    assert not run(kernels.remainders, (2,), x, out, 1 << 29 | 12345, 64, BLOCK=8, budget=budget)


@BUDGETS
def test_differences_of_what_wrapped_alike_are_right(budget):
    x, out = torch.arange(16.0), torch.zeros(16)
    assert not run(kernels.differences, (2,), x, out, FAR, 3, BLOCK=8, budget=budget)
    assert torch.equal(out, x)


def test_a_difference_of_which_one_operand_wrapped():
    x, out = torch.arange(FAR // 1024 + 8.0), torch.zeros(8)
    fault = only(run(kernels.difference_of_one, (1,), x, out, -(1 << 20), 4096, BLOCK=8))
    assert (fault.kind, fault.index) == ("offset-overflow", 1 << 20)
    assert fault.line == line("WRAPS difference")


@pytest.mark.parametrize(
    ("kernel", "place", "sum_"),
    [
        (kernels.next_of, (1 << 31) - 1, "2147483647 + 1"),
        (kernels.before, -(1 << 31), "-2147483648 - 1"),
    ],
)
def test_one_step_beyond_int32(kernel, place, sum_):
    x, out = torch.arange(8.0), torch.zeros(4)
    places = torch.tensor([1, 2, place, 3], dtype=torch.int32)
    faults = run(kernel, (1,), x, places, out, BLOCK=4)
    fault = only([fault for fault in faults if fault.kind == "offset-overflow"])
    assert (fault.line, fault.lane, fault.count) == (line(f"WRAPS {kernel.__name__}"), (2,), 1)
    assert f"`{sum_}`" in fault.message


@pytest.mark.parametrize("by_bits", [False, True])
def test_an_offset_that_wraps_and_is_aligned(by_bits):
    x, out = torch.arange(64.0), torch.zeros(8)
    fault = only(run(kernels.aligned, (1,), x, out, FAR, 4, BY_BITS=by_bits, BLOCK=8))
    assert (fault.kind, fault.line) == ("offset-overflow", line("WRAPS aligned"))


@BUDGETS
def test_a_remainder_of_what_wrapped_that_leads_before_the_tensor(budget):
    x, out = torch.arange(64.0), torch.zeros(16)
    arguments = x, out, 1 << 29 | 12345, 64
    wrapped, fault = run(kernels.hashed_and_negative, (2,), *arguments, BLOCK=8, budget=budget)
    assert (wrapped.kind, fault.kind) == ("offset-overflow", "oob-load")
    assert wrapped.line == line("WRAPS hashed_and_negative")
    # Of 4, 5, 6 and 7 times the factor; 8 times it is 98760, and positive again.
    assert (wrapped.program_id, wrapped.lane, wrapped.count) == ((0, 0, 0), (4,), fault.count)
    assert "`4 * 536883257` does not fit int32 and wraps" in wrapped.message
    assert fault.hint == f"the offset wrapped at line {wrapped.line}: fix that first"


@BUDGETS
def test_a_remainder_of_a_negative_number_that_leads_before_the_tensor(budget):
    x, out = torch.arange(12.0), torch.zeros(16)
    negative, fault = run(kernels.rolled, (2,), x, out, 3, 12, BLOCK=8, budget=budget)
    assert (negative.kind, negative.severity) == ("negative-remainder", "warning")
    assert (negative.line, negative.tensor, negative.index) == (line("NEGATIVE"), "x_ptr", -3)
    assert (negative.lane, negative.count) == ((0,), 3)
    assert negative.message.startswith("`-3 % 12` is negative, as its left operand; ")
    assert (fault.kind, fault.count) == ("oob-load", 3)
    place = f"line {negative.line}"
    assert fault.hint == f"the offset is a negative remainder, made at {place}: fix that first"
    assert not run(kernels.rolled, (2,), x, out, 0, 12, BLOCK=8, budget=budget)


@BUDGETS
def test_negative_remainders_that_come_right_again_or_are_dropped(budget):
    x, out = torch.arange(16.0), torch.zeros(16)
    assert not run(kernels.rolled_right, (2,), x, out, 3, 16, BLOCK=8, budget=budget)


def test_hashes_in_a_loop_whose_sign_is_taken_away():
    x, out = torch.arange(64.0), torch.zeros(8)
    assert not run(kernels.hashed_in_a_loop, (1,), x, out, 1103515245, 64, BLOCK=8)
