"""Reductions and scans: native against interpreted, over dtypes, shapes, axes and warps."""

from __future__ import annotations

import pytest
import torch
from agreement import FLOATS, INTEGERS, expect_agreement, tile

import tkdebug
import tkdebug.language as tl

pytestmark = pytest.mark.gpu

SHAPES = [(1, 128), (32, 32), (128, 16), (4, 1024), (64, 2)]


@tkdebug.jit
def reduce_rows(x, y, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, OP: tl.constexpr):
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    value = tl.load(x + rows[:, None] * N + columns[None, :])
    if OP == "sum":
        found = tl.sum(value, AXIS)
    elif OP == "max":
        found = tl.max(value, AXIS)
    elif OP == "min":
        found = tl.min(value, AXIS)
    elif OP == "argmax":
        found = tl.argmax(value, AXIS)
    elif OP == "argmin":
        found = tl.argmin(value, AXIS)
    else:
        found = tl.xor_sum(value, AXIS)
    place = columns if AXIS == 0 else rows
    tl.store(y + place, found)


@tkdebug.jit
def reduce_all(x, y, N: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))
    tl.store(y, tl.sum(value))
    tl.store(y + 1, tl.max(value))
    tl.store(y + 2, tl.min(value))


def result_dtype(dtype, op):
    if op.startswith("arg"):
        return torch.int32
    return torch.int32 if dtype in (torch.int8, torch.int16) else dtype


@pytest.mark.parametrize("num_warps", [1, 4, 8])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("op", ["sum", "max", "min", "argmax", "argmin", "xor"])
def test_rows_of_int32(op, shape, axis, num_warps):
    out = torch.zeros(shape[1 - axis], dtype=torch.int32)
    constants = {"M": shape[0], "N": shape[1], "AXIS": axis, "OP": op}
    expect_agreement(reduce_rows, [tile(shape, torch.int32)], [out], num_warps, **constants)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("op", ["sum", "max", "argmax"])
def test_rows_of_every_dtype(op, axis, dtype):
    x = tile((64, 64), dtype)
    if op == "sum" and dtype in HALVES:
        # Small whole numbers: exact in any order.
        x = x.round() % 3 - 1
    out = torch.zeros(64, dtype=result_dtype(dtype, op))
    constants = {"M": 64, "N": 64, "AXIS": axis, "OP": op}
    expect_agreement(reduce_rows, [x], [out], 4, **constants)


# Sums of halves round at each addition, and the order of additions is that of the layout. An
# element goes through at most 16: 8 in a thread's registers, 5 between lanes, 3 between warps;
# each is off by at most 2**-11 or 2**-8 of the sum of numbers that are all positive.
HALVES = {torch.float16: 16 * 2.0**-11, torch.bfloat16: 16 * 2.0**-8}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("axis", [0, 1])
def test_sums_of_halves_round_at_each_addition(axis, dtype):
    x = tile((64, 64), dtype).abs()
    out = torch.zeros(64, dtype=dtype)
    constants = {"M": 64, "N": 64, "AXIS": axis, "OP": "sum"}
    expect_agreement(reduce_rows, [x], [out], 4, relative=HALVES[dtype], **constants)


@pytest.mark.parametrize("num_warps", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("size", [2, 32, 128, 8192])
@pytest.mark.parametrize("dtype", [torch.int32, torch.float32, torch.float64])
def test_whole_tiles(dtype, size, num_warps):
    out = torch.zeros(3, dtype=dtype)
    expect_agreement(reduce_all, [tile((size,), dtype)], [out], num_warps, N=size)


@tkdebug.jit
def joined(p, q, u, v):
    return p * u, q * u + v


@tkdebug.jit
def affine_rows(
    x, z, y, w, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, REV: tl.constexpr
):
    place = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    factors, terms = tl.associative_scan(
        (tl.load(x + place), tl.load(z + place)), AXIS, joined, reverse=REV
    )
    tl.store(y + place, factors)
    tl.store(w + place, terms)


@tkdebug.jit
def sum_rows(x, y, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, REV: tl.constexpr):
    place = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(y + place, tl.cumsum(tl.load(x + place), AXIS, reverse=REV))


@pytest.mark.parametrize("num_warps", [1, 4, 8])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_scan_keeps_order(shape, axis, reverse, num_warps):
    inputs = [tile(shape, torch.int32), tile(shape, torch.int32, seed=1)]
    outputs = [torch.zeros_like(x) for x in inputs]
    constants = {"M": shape[0], "N": shape[1], "AXIS": axis, "REV": reverse}
    expect_agreement(affine_rows, inputs, outputs, num_warps, **constants)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, *FLOATS])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_cumsum_of_every_dtype(dtype, axis, reverse):
    x = tile((32, 128), dtype)
    if dtype == torch.bfloat16:
        # Its sums are rounded to bf16: only such that are exact do not depend on their order.
        x = x.sign()
    out = torch.zeros(x.shape, dtype=torch.float32 if dtype == torch.bfloat16 else dtype)
    constants = {"M": 32, "N": 128, "AXIS": axis, "REV": reverse}
    expect_agreement(sum_rows, [x], [out], 4, **constants)
