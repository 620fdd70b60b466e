"""Sums that an H200 rounds: what `test_native_dots` saw there, found again without a GPU.

Recorded were, for each dot, how many elements were further from the sum that is rounded once than
a tolerance, and the largest of these differences with its place.
"""

from __future__ import annotations

import pytest
import torch
from agreement import tile
from test_native_dots import multiply, wgmma_fp8

import tkdebug.language as tl

HALVES = [
    ((64, 64, 64), False, 1, 0.015625, (21, 51)),
    ((64, 64, 64), True, 6, 0.03125, (61, 44)),
    ((64, 16, 32), True, 1, 0.015625, (12, 3)),
    ((128, 128, 64), False, 30, 0.03125, (33, 13)),
    ((128, 128, 64), True, 30, 0.02734375, (4, 30)),
    ((16, 128, 64), False, 5, 0.01953125, (10, 14)),
    ((16, 128, 64), True, 7, 0.02734375, (4, 30)),
    ((16, 16, 32), True, 1, 0.015625, (12, 3)),
    # Nothing was that far off.
    ((16, 16, 32), False, 0, 0.0, (0, 0)),
    ((32, 64, 32), False, 0, 0.0, (0, 0)),
    ((32, 64, 32), True, 0, 0.0, (0, 0)),
    ((64, 16, 32), False, 0, 0.0, (0, 0)),
]
FLOATS8 = [
    (torch.float8_e4m3fn, (64, 64, 64), 2, 0.00390625, (42, 58)),
    (torch.float8_e4m3fn, (128, 128, 64), 3, 0.0078125, (32, 119)),
    (torch.float8_e5m2, (64, 64, 64), 1, 0.00390625, (42, 58)),
    (torch.float8_e5m2, (128, 128, 64), 2, 0.00390625, (42, 58)),
]


def is_as_recorded(got, once, tolerance, count, largest, place):
    difference = (got.double() - once.double()).abs()
    far = difference > tolerance + tolerance * once.double().abs()
    assert int(far.sum()) == count
    if count:
        assert float(difference[far].max()) == float(difference[place]) == largest


@pytest.mark.parametrize(("shape", "transposed", "count", "largest", "place"), HALVES)
def test_interpreted_fp16_sums_are_the_gpus(shape, transposed, count, largest, place):
    m, n, k = shape
    a = tile((m, k), torch.float16)
    b = tile((n, k) if transposed else (k, n), torch.float16, seed=1)
    c, d = tile((m, n), torch.float16, seed=2), torch.zeros((m, n), dtype=torch.float16)
    multiply[(1,)](a, b, c, d, m, n, k, "tf32", tl.float16, transposed)
    once = (a.double() @ (b.T if transposed else b).double() + c.double()).half()
    is_as_recorded(d, once, 1e-2, count, largest, place)


@pytest.mark.parametrize(("dtype", "shape", "count", "largest", "place"), FLOATS8)
def test_model_of_fp8_sums_is_the_gpu(dtype, shape, count, largest, place):
    m, n, k = shape
    a = tile((m, k), torch.float32).to(dtype)
    b = tile((n, k), torch.float32, seed=1).to(dtype).T
    c = tile((m, n), torch.float32, seed=2)
    once = a.double() @ b.double() + c.double()
    is_as_recorded(wgmma_fp8(a, b, c), once, 1e-3, count, largest, place)
