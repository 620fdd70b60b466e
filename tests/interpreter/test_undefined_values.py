"""Integer divisions by zero and shifts past the width: reported where the value is used."""

from functools import partial

import pytest
import torch
import undefined_kernels as kernels
from differential import run
from marked_lines import line_of, only

from tkdebug.knobs import scope

line = partial(line_of, kernels)
BUDGETS = pytest.mark.parametrize("budget", [None, 64], ids=["whole", "single"])


def integers(*values):
    return torch.tensor(values, dtype=torch.int32)


def zeros(count):
    return torch.zeros(count, dtype=torch.int32)


@BUDGETS
def test_a_stored_quotient_is_reported_and_masked_ones_are_not(budget):
    x = torch.arange(28, dtype=torch.int32)
    d = torch.ones(28, dtype=torch.int32)
    assert not run(kernels.quotients, (4,), x, d, zeros(28), 28, BLOCK=8, budget=budget)
    d[19] = d[26] = 0
    fault = only(run(kernels.quotients, (4,), x, d, zeros(28), 28, BLOCK=8, budget=budget))
    assert (fault.kind, fault.severity) == ("division-by-zero", "error")
    assert fault.line == line("BAD quotients")
    assert (fault.program_id, fault.lane) == ((2, 0, 0), (3,))
    assert (fault.tensor, fault.index, fault.count) == ("out_ptr", 19, 2)
    stored_at = line("BAD quotients") + 1
    assert fault.message == (
        "integer division by zero, `19 // 0`; the result is stored to offset 19 of "
        f"`out_ptr` at line {stored_at}"
    )


def test_what_a_choice_a_zero_or_a_mask_drops_is_no_fault():
    x, d = torch.arange(8, dtype=torch.int32), integers(1, 2, 0, 3, 0, 1, 1, 0)
    assert not run(kernels.chosen, (1,), x, d, zeros(16), BLOCK=8)


def test_of_two_programs_the_second_divides_by_zero():
    d = integers(1, 1, 1, 0)
    fault = only(run(kernels.quotients, (2,), d, d, zeros(4), 4, BLOCK=2))
    assert (fault.line, fault.program_id) == (line("BAD quotients"), (1, 0, 0))
    assert (fault.lane, fault.count) == ((1,), 1)
    assert "`0 // 0`" in fault.message


@BUDGETS
def test_what_all_programs_compute_and_some_store(budget):
    d = integers(1, 0)
    fault = only(run(kernels.in_some_programs, (4,), d, zeros(8), BLOCK=2, budget=budget))
    assert (fault.line, fault.count) == (line("BAD in_some_programs"), 2)
    assert (fault.program_id, fault.lane) == ((2, 0, 0), (1,))


def test_as_what_ends_a_while_loop():
    fault = only(run(kernels.counted, (1,), zeros(1), zeros(1), BLOCK=1))
    assert fault.line == line("BAD counted")


def test_true_or_what_is_undefined_is_true():
    x, d, out = torch.arange(4, dtype=torch.int32), integers(1, 2, 0, 2), zeros(4)
    assert not run(kernels.either, (1,), x, d, out, BLOCK=4)
    assert out.tolist() == [1, 0, 1, 0]


def test_bits_that_are_set_do_not_make_the_others_defined():
    x, d = torch.arange(4, dtype=torch.int32), integers(1, 2, 0, 2)
    fault = only(run(kernels.either_bits, (1,), x, d, zeros(4), BLOCK=4))
    assert (fault.line, fault.lane, fault.count) == (line("BAD either_bits"), (2,), 1)


@BUDGETS
def test_a_branch_that_is_not_taken_divides_nothing(budget):
    out = zeros(4)
    assert not run(kernels.branches, (4,), integers(0, 5, 0, 7), out, BLOCK=1, budget=budget)
    assert out.tolist() == [5, 20, 0, 14]


def test_through_a_loop():
    fault = only(run(kernels.carried, (1,), integers(1, 0, 2), zeros(1), 3, BLOCK=1))
    assert (fault.line, fault.index) == (line("BAD carried"), 0)
    assert "`9 // 0`" in fault.message


@BUDGETS
def test_through_a_loop_that_programs_leave_at_different_times(budget):
    d = integers(1, 2, 3, 4, 5, 0)
    fault = only(run(kernels.while_it_lasts, (3,), d, zeros(3), BLOCK=1, budget=budget))
    assert (fault.line, fault.index) == (line("BAD while_it_lasts"), 1)
    assert (fault.program_id, fault.count) == ((1, 0, 0), 1)


def test_as_an_address():
    x = zeros(8)
    fault = only(run(kernels.addresses, (1,), x, zeros(8), 0, BLOCK=8))
    assert fault.line == line("BAD addresses")
    assert "is the address accessed" in fault.message


def test_in_a_condition():
    fault = only(run(kernels.decides, (3,), zeros(1), 0, BLOCK=1))
    assert (fault.line, fault.count) == (line("BAD decides"), 3)
    assert "decides a branch" in fault.message


def test_in_a_mask():
    fault = only(run(kernels.masks, (1,), zeros(8), zeros(8), 0, BLOCK=8))
    assert fault.line == line("BAD masks")
    assert "masks the access" in fault.message


def test_through_changes_of_shape():
    fault = only(run(kernels.moved, (1,), integers(1, 2, 0, 3), zeros(8), M=4, N=2))
    assert (fault.line, fault.lane, fault.index) == (line("BAD moved"), (2,), 2)
    assert fault.count == 1


def test_a_flip_takes_it_to_the_other_end():
    x, d = torch.arange(8, dtype=torch.int32), integers(0, 1, 1, 1, 1, 1, 1, 1)
    assert not run(kernels.flipped, (1,), x, d, zeros(8), 4, BLOCK=8)
    fault = only(run(kernels.flipped, (1,), x, d, zeros(8), 8, BLOCK=8))
    assert (fault.line, fault.lane, fault.index) == (line("BAD flipped"), (0,), 7)


def test_through_reductions_and_scans():
    d = torch.ones(4, 4, dtype=torch.int32)
    d[2, 1] = 0
    fault = only(run(kernels.reduced, (1,), d, zeros(8), M=4, N=4))
    assert (fault.line, fault.lane, fault.index) == (line("BAD reduced"), (2, 1), 2)
    # The sum of row 2, and the running sums from column 1 on.
    assert fault.count == 1 + 3


def test_a_product_with_zeros_drops_it():
    d = torch.ones(16, 16, dtype=torch.int32)
    d[3, 15] = 0
    b = torch.ones(16, 16)
    assert not run(kernels.multiplied, (1,), d, b, torch.zeros(16, 16), N=16)
    d[3, 4] = 0
    fault = only(run(kernels.multiplied, (1,), d, b, torch.zeros(16, 16), N=16))
    assert (fault.lane, fault.index, fault.count) == ((3, 4), 3 * 16, 16)
    b[4] = 0
    assert not run(kernels.multiplied, (1,), d, b, torch.zeros(16, 16), N=16)


def test_shifts_past_the_width_are_warned_of():
    fault = only(run(kernels.shifted, (1,), integers(0, 31, 5, 32), zeros(4), 4, BLOCK=8))
    assert (fault.kind, fault.severity) == ("shift-range", "warning")
    assert (fault.line, fault.lane) == (line("BAD shifted"), (3,))
    assert "`1 << 32` shifts 32 bits by 32 (legal: 0 to 31)" in fault.message


def test_each_line_is_reported_with_its_own_elements():
    d, e = integers(1, 0, 1, 1), integers(1, 1, 1, 0)
    faults = run(kernels.two_of_them, (1,), d, e, zeros(4), BLOCK=4)
    assert [(f.line, f.lane) for f in faults] == [
        (line("BAD first"), (1,)),
        (line("BAD second"), (3,)),
    ]


def test_inside_a_device_function():
    fault = only(run(kernels.calls, (1,), integers(1, 0, 1, 1), zeros(4), BLOCK=4))
    assert [frame.line for frame in fault.frames] == [line("CALL"), line("BAD divided")]


def test_a_loop_that_guards_its_divisions():
    x, y, out = integers(12, 7, 0, 9), integers(8, 0, 5, 6), zeros(4)
    assert not run(kernels.lcm, (1,), x, y, out, BLOCK=4)
    assert out.tolist() == [4, 7, 5, 3]


def test_a_load_without_other_is_reported_when_asked_for():
    arguments = torch.ones(5), torch.zeros(8), 5
    assert not run(kernels.softmax_without_other, (1,), *arguments, BLOCK=8)
    with scope(checks=("undefined-value",)):
        fault = only(run(kernels.softmax_without_other, (1,), *arguments, BLOCK=8))
    assert (fault.kind, fault.severity) == ("undefined-value", "warning")
    assert (fault.line, fault.lane) == (line("BAD softmax_without_other"), (5,))
    assert (fault.tensor, fault.index, fault.count) == ("out_ptr", 0, 5 + 1)


@BUDGETS
def test_loads_without_other_whose_rest_is_dropped(budget):
    index = torch.tensor([3, -1, 0, 7, 9, 1, 1, 2, 4, 4])
    arguments = torch.arange(10.0), index, torch.zeros(10), 10
    with scope(checks=("undefined-value",)):
        assert not run(kernels.sound_without_other, (2,), *arguments, BLOCK=8, budget=budget)


def test_products_of_eight_bit_floats():
    x = torch.ones(32, 32).to(torch.float8_e5m2)
    with scope(checks=("undefined-value",)):
        fault = only(run(kernels.fp8_without_other, (1,), x, torch.zeros(32, 32), 30, N=32))
    # Only the second product meets other numbers than zeros there.
    assert (fault.line, fault.count) == (line("BAD fp8_without_other"), 32 * 32)


@BUDGETS
@pytest.mark.parametrize("valid", [0, 8])
def test_a_product_of_loads_that_are_masked_off_in_some_programs_or_all(budget, valid):
    arguments = torch.ones(32, 32), torch.zeros(32, 32), valid
    with scope(checks=("undefined-value",)):
        faults = run(kernels.wholly_masked_product, (8,), *arguments, N=32, budget=budget)
    # Where both operands are masked, the zero of the one is no more defined than the other.
    assert {fault.line for fault in faults} == {
        line("BAD wholly_masked_product"),
        line("BAD wholly_masked_product") + 1,
    }
