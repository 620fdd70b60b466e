"""Remainders of negative numbers that lead inside the tensor, and those that are meant."""

import sys
from functools import partial

import pytest
import torch
from differential import run
from marked_lines import line_of, only

import tkdebug
import tkdebug.language as tl

line = partial(line_of, sys.modules[__name__])
N, K, B = 16, 3, 16


@tkdebug.jit
def wrong(x_ptr, out_ptr, n, k, KIND: tl.constexpr, B: tl.constexpr):
    """Reads or writes row 1 of the tensor, whose row 0 is before it."""
    row = tl.program_id(0) + 1
    i = tl.arange(0, B)
    x = x_ptr + row * n
    if KIND == "roll":
        v = tl.load(x + (i - k) % n)  # NEGATIVE roll
    elif KIND == "one offset":
        v = tl.load(x_ptr + (row * n + (i - k) % n))  # NEGATIVE one offset
    elif KIND == "every other":
        v = tl.load(x + ((i - k) % n) * 2)  # NEGATIVE every other
    elif KIND == "tile":
        r = tl.arange(0, 2)
        at = (row + r)[:, None] * n + ((i - k) % n)[None, :]  # NEGATIVE tile
        v = tl.sum(tl.load(x_ptr + at), 0)
    elif KIND == "scalar":
        v = tl.load(x + (tl.program_id(0) - k) % n) + i  # NEGATIVE scalar
    elif KIND == "int64":
        v = tl.load(x + (i - k).to(tl.int64) % n)  # NEGATIVE int64
    elif KIND == "loop":
        at = tl.program_id(0)
        v = tl.zeros([B], tl.float32)
        for _ in range(4):
            at = (at - 1) % n  # NEGATIVE loop
            v += tl.load(x + at)
    elif KIND == "chosen":
        v = tl.load(x + tl.where(i < k, (i - k) % n, i))  # NEGATIVE chosen
    else:
        v = tl.load(x + i)
    if KIND == "store":
        tl.store(out_ptr + row * n + (i - k) % n, v)  # NEGATIVE store
    elif KIND == "atomic":
        tl.atomic_add(out_ptr + row * n + (i - k) % n, v)  # NEGATIVE atomic
    else:
        tl.store(out_ptr + row * n + i, v)


@tkdebug.jit
def meant(x_ptr, out_ptr, n, k, KIND: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0) + 1
    i = tl.arange(0, B)
    x = x_ptr + row * n
    r = (i - k) % n
    if KIND == "added before":
        v = tl.load(x + (i - k + n) % n)
    elif KIND == "added after":
        v = tl.load(x + (r + n) % n)
    elif KIND == "added where negative":
        v = tl.load(x + tl.where(r < 0, r + n, r))
    elif KIND == "halo":
        v = tl.load(x + (r + 4))
    elif KIND == "halo of a pointer":
        v = tl.load(x + 4 + r)
    elif KIND == "masked off":
        v = tl.load(x + r, mask=r >= 0, other=0.0)
    elif KIND == "magnitude":
        v = tl.load(x + tl.abs(r))
    elif KIND == "parity":
        v = tl.load(x + i, mask=(i - k) % 2 == 0, other=0.0)
    elif KIND == "stored":
        v = tl.load(x + i) + r
    else:
        v = tl.load(x + tl.where(i >= k, r, 0))
    tl.store(out_ptr + row * n + i, v)


BUGS = (
    *("roll", "one offset", "every other", "tile", "scalar", "int64", "loop", "chosen"),
    *("store", "atomic"),
)
MEANT = (
    *("added before", "added after", "added where negative", "halo", "halo of a pointer"),
    *("masked off", "magnitude", "parity", "stored", "chosen otherwise"),
)


def launched(kernel, kind):
    x, out = torch.arange(64.0).reshape(4, N), torch.zeros(4, N)
    return run(kernel, (1,), x, out, N, K, KIND=kind, B=B)


@pytest.mark.parametrize("kind", BUGS)
def test_a_negative_remainder_that_leads_into_the_row_before_is_reported(kind):
    fault = only(launched(wrong, kind))
    assert (fault.kind, fault.severity) == ("negative-remainder", "warning")
    assert fault.line == line(f"NEGATIVE {kind}")
    assert 0 <= fault.index < N


@pytest.mark.parametrize("kind", MEANT)
def test_a_remainder_that_is_put_right_or_leads_nothing_is_meant(kind):
    assert not launched(meant, kind)
