"""Gather, histogram, flip, sort, topk: native against interpreted."""

from __future__ import annotations

import pytest
import torch
from agreement import FLOATS, INTEGERS, expect_agreement, tile

import tkdebug
import tkdebug.language as tl

pytestmark = pytest.mark.gpu


@tkdebug.jit
def gather_rows(x, i, y, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, AXIS: tl.constexpr):
    source = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    rows: tl.constexpr = M if AXIS == 1 else K
    columns: tl.constexpr = K if AXIS == 1 else N
    place = tl.arange(0, rows)[:, None] * columns + tl.arange(0, columns)[None, :]
    tl.store(y + place, tl.gather(source, tl.load(i + place), AXIS))


@pytest.mark.parametrize("num_warps", [1, 4, 8])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.float32, torch.int64])
@pytest.mark.parametrize("count", [4, 64])
def test_gather(dtype, axis, count, num_warps):
    shape = (32, count) if axis else (count, 64)
    index = torch.randint(0, 64 if axis else 32, shape, dtype=torch.int32)
    out = torch.zeros(shape, dtype=dtype)
    constants = {"M": 32, "N": 64, "K": count, "AXIS": axis}
    inputs = [tile((32, 64), dtype), index]
    expect_agreement(gather_rows, inputs, [out], num_warps, **constants)


@tkdebug.jit
def count_values(x, y, N: tl.constexpr, BINS: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))
    tl.store(y + tl.arange(0, BINS), tl.histogram(value, BINS, mask=value != 3))


@pytest.mark.parametrize("num_warps", [1, 4])
@pytest.mark.parametrize("bins", [2, 64, 512])
@pytest.mark.parametrize("size", [16, 2048])
def test_histogram(size, bins, num_warps):
    out = torch.zeros(bins, dtype=torch.int32)
    x = tile((size,), torch.int32)
    expect_agreement(count_values, [x], [out], num_warps, N=size, BINS=bins)


@tkdebug.jit
def rearrange(x, y, M: tl.constexpr, N: tl.constexpr, OP: tl.constexpr):
    place = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    value = tl.load(x + place)
    if OP == "flip0":
        value = tl.flip(value, 0)
    elif OP == "flip1":
        value = tl.flip(value, 1)
    elif OP == "sort":
        value = tl.sort(value)
    else:
        value = tl.sort(value, descending=True)
    tl.store(y + place, value)


@pytest.mark.parametrize("num_warps", [1, 4, 8])
@pytest.mark.parametrize("shape", [(1, 512), (16, 16), (128, 8), (8, 256)])
@pytest.mark.parametrize("op", ["flip0", "flip1", "sort", "descending"])
def test_flip_and_sort(op, shape, num_warps):
    if op == "flip0" and shape[0] == 1:
        return
    x = tile(shape, torch.float32)
    constants = {"M": shape[0], "N": shape[1], "OP": op}
    expect_agreement(rearrange, [x], [x], num_warps, **constants)


@pytest.mark.parametrize("dtype", [torch.uint8, *INTEGERS, *FLOATS])
@pytest.mark.parametrize("op", ["flip1", "sort", "descending"])
def test_flip_and_sort_of_every_dtype(op, dtype):
    x = tile((8, 64), dtype)
    if dtype.is_floating_point:
        x[2, 5], x[3, 7] = float("nan"), float("inf")
    expect_agreement(rearrange, [x], [x], 4, M=8, N=64, OP=op)


@tkdebug.jit
def first_in_order(
    x, y, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, DESCENDING: tl.constexpr
):
    place = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    found = tl.topk(tl.load(x + place), K, descending=DESCENDING)
    tl.store(y + tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :], found)


@pytest.mark.parametrize("num_warps", [1, 4])
@pytest.mark.parametrize("k", [1, 8, 64])
@pytest.mark.parametrize("dtype", [torch.int32, torch.float16])
@pytest.mark.parametrize("descending", [False, True])
def test_topk(dtype, k, num_warps, descending):
    out = torch.zeros((8, k), dtype=dtype)
    x = tile((8, 64), dtype)
    expect_agreement(first_in_order, [x], [out], num_warps, M=8, N=64, K=k, DESCENDING=descending)
