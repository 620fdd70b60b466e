"""Assumptions that kernels state for the compiler: reported where they do not hold."""

import sys
from functools import partial

import pytest
import torch
from differential import run
from marked_lines import line_of, only

import tkdebug
import tkdebug.language as tl

line = partial(line_of, sys.modules[__name__])


@tkdebug.jit
def assumes(x_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if tl.program_id(0) < 2:
        tl.assume(n > 8)  # ASSUME
    tl.store(x_ptr + offs, 1)


@tkdebug.jit
def gathers(x_ptr, index_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    index = tl.load(index_ptr + offs)
    index = tl.max_contiguous(index, 4)  # CONTIGUOUS
    index = tl.multiple_of(index, 4)  # MULTIPLE
    tl.store(out_ptr + offs, tl.load(x_ptr + index))


@tkdebug.jit
def rows(x_ptr, out_ptr, M, N, stride, BLOCK: tl.constexpr):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wrapped = tl.max_contiguous(tl.multiple_of(m % M, BLOCK), BLOCK)
    clamped = tl.where(m < M, m, 0)
    clamped = tl.max_contiguous(tl.multiple_of(clamped, BLOCK), BLOCK)
    n = tl.max_contiguous(tl.arange(0, BLOCK), BLOCK)
    places = tl.multiple_of(clamped[:, None] * stride + n[None, :], (1, 4))
    x = tl.load(x_ptr + wrapped) + tl.load(x_ptr + clamped) + tl.sum(places, 1)
    tl.store(out_ptr + m, x, mask=m < M)


@tkdebug.jit
def scalar(x_ptr, n, BLOCK: tl.constexpr):
    n = tl.multiple_of(n, 16)  # SCALAR
    tl.store(x_ptr + n // 16, 1)


@tkdebug.jit
def constant(x_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    held = tl.max_constancy(offs // 4, 4)
    broken = tl.max_constancy(offs // 2, 4)  # CONSTANCY
    tl.store(x_ptr + offs, held + broken)


@tkdebug.jit
def strided(x_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    held = tl.max_contiguous(offs + tl.program_id(0), BLOCK)
    broken = tl.max_contiguous(offs * 2, 2)  # STRIDED
    tl.store(x_ptr + offs, held + broken)


def zeros(count):
    return torch.zeros(count, dtype=torch.int32)


@pytest.mark.parametrize("budget", [None, 64], ids=["whole", "single"])
def test_an_assumption_that_is_false(budget):
    assert not run(assumes, (3,), zeros(24), 9, BLOCK=8, budget=budget)
    fault = only(run(assumes, (3,), zeros(24), 8, BLOCK=8, budget=budget))
    assert (fault.kind, fault.severity, fault.line) == ("assumption", "error", line("ASSUME"))
    assert (fault.program_id, fault.count) == ((0, 0, 0), 2)


def test_hints_on_loaded_indices():
    good = torch.tensor([8, 9, 10, 11, 0, 1, 2, 3])
    assert not run(gathers, (1,), zeros(16), good, zeros(8), BLOCK=8)
    contiguous = torch.tensor([8, 9, 10, 12, 0, 1, 2, 3])
    fault = only(run(gathers, (1,), zeros(16), contiguous, zeros(8), BLOCK=8))
    assert (fault.kind, fault.severity) == ("assumption", "warning")
    assert (fault.line, fault.lane, fault.count) == (line("CONTIGUOUS"), (3,), 1)
    assert fault.message == "tl.max_contiguous 4 does not hold: the value is 12 here"
    multiple = torch.tensor([2, 3, 4, 5, 8, 9, 10, 11])
    fault = only(run(gathers, (1,), zeros(16), multiple, zeros(8), BLOCK=8))
    assert (fault.line, fault.lane, fault.count) == (line("MULTIPLE"), (0,), 1)


def test_rows_that_begin_again_are_as_meant():
    assert not run(rows, (2,), zeros(16), zeros(16), 13, 8, 16, BLOCK=8)


def test_a_hint_on_a_scalar():
    assert not run(scalar, (1,), zeros(4), 48, BLOCK=8)
    fault = only(run(scalar, (2,), zeros(4), 40, BLOCK=8))
    assert (fault.line, fault.count) == (line("SCALAR"), 2)
    assert fault.message == "tl.multiple_of 16 does not hold: the value is 40 here"


def test_constancy():
    fault = only(run(constant, (1,), zeros(8), BLOCK=8))
    assert (fault.line, fault.lane, fault.count) == (line("CONSTANCY"), (2,), 2)


def test_a_stride_is_no_run():
    fault = only(run(strided, (1,), zeros(8), BLOCK=8))
    assert (fault.line, fault.lane, fault.count) == (line("STRIDED"), (1,), 4)
