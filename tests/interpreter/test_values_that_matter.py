"""NaNs, fresh memory and undefined elements: ten ways in which they matter, ten in which not."""

import inspect
from functools import partial

import pytest
import torch
import value_kernels as kernels
from differential import run
from marked_lines import line_of

from tkdebug.compat.around_torch.unwritten_memory import mark_empties
from tkdebug.knobs import scope

line = partial(line_of, kernels)
N, BLOCK = 6, 8


def cases(kernel, right):
    """The cases of a kernel by what its source says of them."""
    names = [
        row.split('"')[1] for row in inspect.getsource(kernel.fn).splitlines() if "CASE ==" in row
    ]
    found = [name for name in names if name.startswith("right: ") == right]
    assert len(found) >= (5 if kernel is kernels.without_other else 10)
    return pytest.mark.parametrize("case", found)


def nan_faults(case):
    x = torch.arange(1.0, N + 1).repeat(2, 1)
    with scope(checks=("nan",)):
        return run(kernels.nan_bugs, (2,), x, torch.zeros(2, N), N, CASE=case, BLOCK=BLOCK)


@cases(kernels.nan_bugs, False)
def test_nan_that_is_made_is_reported_at_its_line(case):
    assert {(fault.kind, fault.line) for fault in nan_faults(case)} == {
        ("nan", line(f"BAD {case}"))
    }


@cases(kernels.nan_bugs, True)
def test_nan_of_which_nothing_comes_or_that_is_meant(case):
    assert not nan_faults(case)


def test_nan_of_an_eight_bit_float_that_is_loaded():
    x = torch.tensor([1.0, torch.nan, 3.0, 4.0, 5.0, 6.0]).repeat(2, 1).to(torch.float8_e5m2)
    with scope(checks=("nan",)):
        out = torch.zeros(2, N)
        assert not run(kernels.widened, (2,), x, out, N, BLOCK=BLOCK)
    assert out.isnan().sum() == 2


def fresh_faults(case):
    with scope(checks=("uninitialised-read",)):
        undo = mark_empties()
        try:
            fresh, x, out = torch.empty(2 * N), torch.arange(1.0, N + 1), torch.zeros(2, N)
            return run(kernels.fresh_reads, (2,), x, fresh, out, N, CASE=case, BLOCK=BLOCK)
        finally:
            undo()


@cases(kernels.fresh_reads, False)
def test_read_of_fresh_memory_is_reported_at_its_line(case):
    reported = {(fault.kind, fault.line) for fault in fresh_faults(case)}
    assert reported == {("uninitialised-read", line(f"BAD {case}"))}


@cases(kernels.fresh_reads, True)
def test_fresh_memory_that_is_not_read_or_written_first(case):
    assert not fresh_faults(case)


def undefined_faults(case):
    with scope(checks=("undefined-value",)):
        x, out = torch.arange(1.0, N + 1), torch.zeros(N)
        return run(kernels.without_other, (1,), x, out, N, CASE=case, BLOCK=BLOCK)


@cases(kernels.without_other, False)
def test_element_without_a_value_is_reported_at_its_load(case):
    reported = {(fault.kind, fault.line) for fault in undefined_faults(case)}
    assert reported == {("undefined-value", line("BAD load"))}


@cases(kernels.without_other, True)
def test_element_without_a_value_that_is_dropped(case):
    assert not undefined_faults(case)
