"""Integers of 8 and 16 bits that wrap before they are made wider, and those that may."""

import sys
from functools import partial

import pytest
import torch
from differential import run
from marked_lines import line_of, only

import tkdebug
import tkdebug.language as tl
from tkdebug.knobs import scope

line = partial(line_of, sys.modules[__name__])
N = 16


@pytest.fixture(autouse=True)
def narrowings():
    with scope(checks=("narrowing",)):
        yield


@tkdebug.jit
def wrong(a_ptr, b_ptr, out_ptr, n, KIND: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(a_ptr + i, mask=i < n, other=0)
    b = tl.load(b_ptr + i, mask=i < n, other=0)
    if KIND == "sum":
        v = (a + b).to(tl.int32)  # WRAPS sum
    elif KIND == "product":
        v = (a * b).to(tl.float32)  # WRAPS product
    elif KIND == "by a number":
        v = (a * 4).to(tl.float32)  # WRAPS by a number
    elif KIND == "zero point":
        v = (a.to(tl.uint8) - b.to(tl.uint8)).to(tl.float32)  # WRAPS zero point
    elif KIND == "unsigned sum":
        v = (a.to(tl.uint8) * 3).to(tl.int32)  # WRAPS unsigned sum
    elif KIND == "int16":
        v = (a.to(tl.int16) * 400).to(tl.int32)  # WRAPS int16
    elif KIND == "square":
        v = tl.sum(a * a, 0)  # WRAPS square
    elif KIND == "two steps":
        v = (a * b + 1).to(tl.int32)  # WRAPS two steps
    elif KIND == "loop":
        total = a
        for _ in range(3):
            total = total + a  # WRAPS loop
        v = total.to(tl.int32)
    else:
        big = tl.where(a > 0, a, b) + 100  # WRAPS chosen
        v = tl.expand_dims(big, 0).to(tl.int32).reshape((B,))
    tl.store(out_ptr + i, v, mask=i < n)


@tkdebug.jit
def meant(a_ptr, b_ptr, out_ptr, n, KIND: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(a_ptr + i, mask=i < n, other=0)
    b = tl.load(b_ptr + i, mask=i < n, other=0)
    if KIND == "widened first":
        v = (a.to(tl.int32) * b).to(tl.float32)
    elif KIND == "stored as it is":
        v = a + b
    elif KIND == "comes back":
        v = (a + b - b).to(tl.int32)
    elif KIND == "bits":
        v = ((a * b) & 127).to(tl.int32)
    elif KIND == "hash":
        h = (a ^ (a >> 3)) * 31
        v = h.to(tl.int32)
    elif KIND == "compared":
        v = ((a + b) > a).to(tl.int32)
    elif KIND == "other lanes":
        v = tl.where(a < 60, (a + a).to(tl.int32), 0)
    elif KIND == "fits":
        v = (a - 1).to(tl.int32)
    elif KIND == "unsigned that fits":
        v = (a.to(tl.uint8) * 2).to(tl.int32)
    else:
        v = tl.sum(a, 0)
    tl.store(out_ptr + i, v, mask=i < n)


BUGS = (
    *("sum", "product", "by a number", "zero point", "unsigned sum", "int16", "square"),
    *("two steps", "loop", "chosen"),
)
MEANT = (
    *("widened first", "stored as it is", "comes back", "bits", "hash", "compared", "other lanes"),
    *("fits", "unsigned that fits", "sum of a tile"),
)


def launched(kernel, kind):
    a = torch.full((N,), 90, dtype=torch.int8)
    a[0] = 5
    b = torch.full((N,), 100, dtype=torch.int8)
    out = torch.zeros(N, dtype=torch.int8 if kind == "stored as it is" else torch.float32)
    return run(kernel, (1,), a, b, out, N - 2, KIND=kind, B=N)


@pytest.mark.parametrize("kind", BUGS)
def test_a_narrow_integer_that_wraps_and_is_made_wider_is_reported(kind):
    fault = only(launched(wrong, kind))
    assert (fault.kind, fault.severity) == ("narrowing", "warning")
    assert fault.line == line(f"WRAPS {kind}")
    assert "and wraps before it is made wider" in fault.message
    assert "tl.int32" in fault.hint


def test_the_message_has_the_numbers_and_the_type():
    fault = only(launched(wrong, "zero point"))
    assert "`5 - 100` does not fit uint8 (0 to 255)" in fault.message
    fault = only(launched(wrong, "sum"))
    assert "`90 + 100` does not fit int8 (-128 to 127)" in fault.message


@pytest.mark.parametrize("kind", MEANT)
def test_a_narrow_integer_that_fits_or_stays_narrow_is_meant(kind):
    assert not launched(meant, kind)
