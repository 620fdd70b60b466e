"""Infs that a launch stores by right, and a later launch makes NaNs of."""

import sys
from functools import partial

import pytest
import torch
from marked_lines import line_of, only

import tkdebug
import tkdebug.language as tl
from tkdebug.instrument import add_hook
from tkdebug.interpreter.checks.inf_reports import HELD_INFS
from tkdebug.knobs import scope

line = partial(line_of, sys.modules[__name__])


@pytest.fixture(autouse=True)
def reported():
    faults = []
    with scope(checks=("inf",)), add_hook(fault=faults.append):
        yield faults


@tkdebug.jit
def exponentials(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out_ptr + offs, tl.exp(tl.load(x_ptr + offs, mask=mask)), mask=mask)  # BORN


@tkdebug.jit
def doubled(x_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(x_ptr + offs, 2 * tl.load(x_ptr + offs, mask=mask), mask=mask)


@tkdebug.jit
def shares(e_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    offs = tl.program_id(0) * n + cols
    e = tl.load(e_ptr + offs, mask=cols < n, other=0.0)
    tl.store(out_ptr + offs, e / tl.sum(e, 0), mask=cols < n)  # READ


@tkdebug.jit
def clamped(e_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    e = tl.load(e_ptr + offs, mask=offs < n, other=0.0)
    tl.store(out_ptr + offs, tl.minimum(e, 5.0) - tl.minimum(e, 1.0), mask=offs < n)


@tkdebug.jit
def differences(e_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    y = tl.load(y_ptr + offs)
    tl.store(out_ptr + offs, (y - y) + tl.minimum(tl.load(e_ptr + offs), 0.0))


def scores(budget=None):
    """Exponentials of 4 rows of 6 numbers, of which that of row 2, column 3 is Inf."""
    x = torch.zeros(4, 6)
    x[2, 3] = 100.0
    e = torch.zeros(4, 6)
    with scope(**({} if budget is None else {"memory_budget_bytes": budget})):
        exponentials.interpret[(3,)](x, e, 24, BLOCK=8)
    return e


@pytest.mark.parametrize("budget", [None, 64])
def test_exponentials_that_another_kernel_divides_by_their_sum(reported, budget):
    e, out = scores(budget), torch.zeros(4, 6)
    assert not reported
    shares.interpret[(4,)](e, out, 6, BLOCK=8)
    fault = only(reported)
    assert (fault.kind, fault.severity, fault.kernel) == ("inf", "error", "exponentials")
    assert (fault.line, fault.program_id, fault.lane) == (line("BORN"), (1, 0, 0), (7,))
    assert (fault.tensor, fault.index, fault.count) == ("out_ptr", 15, 1)
    assert "an Inf is made here, of exp(100), and stored at line" in fault.message
    reader = f"shares makes a NaN of it, and stores that at line {line('READ')}"
    assert fault.message.endswith(reader)
    shares.interpret[(4,)](e, out, 6, BLOCK=8)
    assert len(reported) == 1


def test_exponentials_that_a_third_kernel_passes_on(reported):
    e, out = scores(), torch.zeros(4, 6)
    doubled.interpret[(3,)](e, 24, BLOCK=8)
    assert not reported
    shares.interpret[(4,)](e, out, 6, BLOCK=8)
    assert (only(reported).kernel, only(reported).line) == ("exponentials", line("BORN"))


def test_infs_that_a_later_launch_drops_are_right(reported):
    e, out = scores(), torch.zeros(24)
    clamped.interpret[(1,)](e, out, 24, BLOCK=32)
    assert not reported
    assert out.isfinite().all()


def test_nans_that_are_of_something_else_are_not_told_of_them(reported):
    e, y, out = scores().flatten()[:16], torch.zeros(16), torch.zeros(16)
    y[15] = y[3] = torch.inf
    differences.interpret[(1,)](e, y, out, BLOCK=16)
    assert out.isnan().sum() == 2
    assert not reported


def test_what_torch_has_changed_since_is_not_told(reported):
    e, out = scores(), torch.zeros(4, 6)
    e[2, 3] = torch.inf
    shares.interpret[(4,)](e, out, 6, BLOCK=8)
    assert out.isnan().any()
    assert not reported


def test_what_a_launch_has_overwritten_since_is_not_told(reported):
    e, out = scores(), torch.zeros(4, 6)
    x = torch.zeros(4, 6)
    exponentials.interpret[(3,)](x, e, 24, BLOCK=8)
    e_again = e.numpy()  # not through torch, which counts changes
    e_again[2, 3] = float("inf")
    shares.interpret[(4,)](e, out, 6, BLOCK=8)
    assert out.isnan().any()
    assert not reported


def test_tensors_that_are_gone_are_forgotten():
    for _ in range(200):
        scores()
    assert len(HELD_INFS) < 100
