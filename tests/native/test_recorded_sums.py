"""Sums that an H200 rounds: what `test_native_dots` saw there, found again without a GPU.

Recorded were, of dots of halves, how many elements were further from the sum that is rounded once
than a tolerance, and the largest of these differences with its place; of dots of fp8, all bits.
"""

from __future__ import annotations

import hashlib

import pytest
import torch
from agreement import tile
from dot_sums import multiply, wgmma_fp8

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
# The start of the SHA-256 of the bytes of the result.
FLOATS8 = [
    (torch.float8_e4m3fn, (64, 64, 64), False, "eeb29d5fcfb8e88d"),
    (torch.float8_e4m3fn, (64, 64, 64), True, "cbdb66bfa88f8a1f"),
    (torch.float8_e4m3fn, (64, 16, 32), False, "f372f83ce10d3391"),
    (torch.float8_e4m3fn, (64, 16, 32), True, "0b426cf23433595f"),
    (torch.float8_e4m3fn, (128, 128, 64), False, "c5c4692e94405e49"),
    (torch.float8_e4m3fn, (128, 128, 64), True, "f4af7df76900f4b8"),
    (torch.float8_e5m2, (64, 64, 64), False, "274258a9724aa24e"),
    (torch.float8_e5m2, (64, 64, 64), True, "390b364089fb8f6d"),
    (torch.float8_e5m2, (64, 16, 32), False, "61c13775f9174c67"),
    (torch.float8_e5m2, (64, 16, 32), True, "8852495b18bb1abf"),
    (torch.float8_e5m2, (128, 128, 64), False, "bc49919642d7a5b2"),
    (torch.float8_e5m2, (128, 128, 64), True, "75a2d7e1f51bcd35"),
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


@pytest.mark.parametrize(("dtype", "shape", "transposed", "digest"), FLOATS8)
def test_model_of_fp8_sums_is_the_gpu(dtype, shape, transposed, digest):
    m, n, k = shape
    a = tile((m, k), torch.float32).to(dtype)
    b = tile((n, k) if transposed else (k, n), torch.float32, seed=1).to(dtype)
    c = tile((m, n), torch.float32, seed=2)
    got = wgmma_fp8(a, b.T if transposed else b, c)
    assert hashlib.sha256(got.numpy().tobytes()).hexdigest().startswith(digest)
