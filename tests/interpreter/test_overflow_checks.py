"""Kernels compiled for debugging report sums, differences and products that wrap, as upstream's."""

import sys
from functools import partial

import pytest
import torch
from differential import run
from marked_lines import line_of

import tkdebug
import tkdebug.language as tl

line = partial(line_of, sys.modules[__name__])


@tkdebug.jit
def product(out_ptr, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0) + 1
    offset = row * stride  # PRODUCT
    tl.store(out_ptr + tl.arange(0, BLOCK), offset)


@tkdebug.jit
def sums(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    tl.store(out_ptr + offs, x + 1)  # SUM
    tl.store(out_ptr + offs, -x - 1)  # DIFFERENCE


@tkdebug.jit
def sound(x_ptr, out_ptr, seed, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    y = tl.mul(x, x, sanitize_overflow=False) + tl.randint(seed, offs) // 4
    total = tl.sum(x)
    wide = x.to(tl.int64) * x
    tl.store(out_ptr + offs, (y // 4 + total // 4 + wide % 7).to(tl.int32))
    tl.store(out_ptr + offs, (offs + 1) * 3)


@pytest.mark.parametrize("stride", [1 << 29, -(1 << 30)])
def test_a_product_that_wraps(stride):
    arguments = torch.zeros(8, dtype=torch.int32), stride
    assert not run(product, (6,), *arguments, BLOCK=8)
    (fault,) = run(product, (6,), *arguments, BLOCK=8, debug=True)
    assert (fault.kind, fault.line) == ("assert", line("PRODUCT"))
    assert "int32 overflow detected for operation mul" in fault.message
    assert fault.program_id == ((3, 0, 0) if stride > 0 else (2, 0, 0))
    assert not run(product, (6,), *arguments, BLOCK=8, debug=True, sanitize_overflow=False)


@pytest.mark.parametrize(
    ("dtype", "value", "marker", "operation"),
    [
        (torch.int32, 2**31 - 1, "SUM", "int32 overflow detected for operation add"),
        (torch.int16, 2**15 - 1, "SUM", "int16 overflow detected for operation add"),
        (torch.uint8, 255, "SUM", "int8 overflow detected for operation add"),
    ],
)
def test_each_width_wraps_at_its_own_limits(dtype, value, marker, operation):
    x = torch.zeros(8, dtype=dtype)
    x[5] = value
    faults = run(sums, (1,), x, torch.zeros(8, dtype=torch.int64), BLOCK=8, debug=True)
    fault = next(fault for fault in faults if fault.line == line(marker))
    assert (fault.lane, fault.count) == ((5,), 1)
    assert operation in fault.message


def test_what_is_meant_to_wrap_and_what_does_not_is_no_fault():
    x = torch.full((8,), 1 << 30, dtype=torch.int32)
    assert not run(sound, (1,), x, torch.zeros(8, dtype=torch.int32), 7, BLOCK=8, debug=True)
