"""sort, topk, bitonic_merge, gather, flip, histogram and swizzle2d against torch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tkdebug
import tkdebug.language as tl
from tkdebug.errors import CompileError
from tkdebug.knobs import scope
from tkdebug.records.hook_chain import HOOKS, Hook

DTYPES = (
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)


def values(shape, dtype):
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    info = torch.iinfo(dtype)
    low, high = max(info.min, -(2**62)), min(info.max, 2**62)
    numbers = torch.randint(low, high, shape, dtype=torch.int64)
    if dtype in (torch.uint32, torch.uint64):
        numbers = numbers * 2 + 1  # reach the upper half, where signed order differs
    return numbers.to(dtype)


def ordered(x, descending):
    """x sorted along the last axis, unsigned types by value."""
    numbers = x.tolist()
    rows = [sorted(row, reverse=descending) for row in numbers]
    return torch.tensor(rows, dtype=x.dtype)


@tkdebug.jit
def sort_kernel(X, Z, M: tl.constexpr, N: tl.constexpr, DESCENDING: tl.constexpr):
    place = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(Z + place, tl.sort(tl.load(X + place), descending=DESCENDING))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_sort_orders_the_last_axis(dtype, descending):
    x = values((4, 32), dtype)
    z = torch.empty_like(x)
    sort_kernel[(1,)](x, z, 4, 32, descending)
    assert z.tolist() == ordered(x, descending).tolist()


@tkdebug.jit
def topk_kernel(X, Z, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, DESCENDING: tl.constexpr):
    rows = tl.arange(0, M)[:, None]
    x = tl.load(X + rows * N + tl.arange(0, N)[None, :])
    found = tl.topk(x, K, descending=DESCENDING)
    tl.store(Z + rows * K + tl.arange(0, K)[None, :], found)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int32], ids=str)
@pytest.mark.parametrize("k", [1, 4, 16])
@pytest.mark.parametrize("descending", [False, True])
def test_topk_gives_the_first_in_order(dtype, k, descending):
    x = values((4, 16), dtype)
    z = torch.empty((4, k), dtype=dtype)
    topk_kernel[(1,)](x, z, 4, 16, k, descending)
    assert torch.equal(z, x.topk(k, largest=descending).values)


@tkdebug.jit
def merge_kernel(X, Z, N: tl.constexpr, DESCENDING: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(Z + i, tl.bitonic_merge(tl.load(X + i), descending=DESCENDING))


@pytest.mark.parametrize("descending", [False, True])
def test_bitonic_merge_sorts_a_bitonic_sequence(descending):
    x = torch.randn(64)
    bitonic = torch.cat([x[:20].sort().values, x[20:].sort(descending=True).values])
    z = torch.empty_like(x)
    merge_kernel[(1,)](bitonic, z, 64, descending)
    assert torch.equal(z, x.sort(descending=descending).values)


def test_sorting_another_axis_is_an_error():
    @tkdebug.jit
    def kernel(X):
        x = tl.load(X + tl.arange(0, 4)[:, None] * 4 + tl.arange(0, 4)[None, :])
        tl.store(X + tl.arange(0, 4)[:, None] * 4 + tl.arange(0, 4)[None, :], tl.sort(x, dim=0))

    with pytest.raises(tkdebug.errors.CompileError, match="only the last axis can be sorted"):
        kernel[(1,)](torch.zeros(16))


@tkdebug.jit
def gather_kernel(
    X, INDEX, Z, M: tl.constexpr, N: tl.constexpr, P: tl.constexpr, AXIS: tl.constexpr
):
    x = tl.load(X + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    rows: tl.constexpr = P if AXIS == 0 else M
    columns: tl.constexpr = N if AXIS == 0 else P
    place = tl.arange(0, rows)[:, None] * columns + tl.arange(0, columns)[None, :]
    tl.store(Z + place, tl.gather(x, tl.load(INDEX + place), AXIS))


@settings(max_examples=20, deadline=None)
@given(
    m=st.sampled_from([1, 4, 16]),
    n=st.sampled_from([2, 8]),
    p=st.sampled_from([1, 8, 32]),
    axis=st.sampled_from([0, 1]),
)
def test_gather_takes_along_an_axis(m, n, p, axis):
    x = torch.randn(m, n)
    index = torch.randint(0, (m, n)[axis], (p, n) if axis == 0 else (m, p), dtype=torch.int32)
    z = torch.empty(index.shape)
    with tkdebug.mode("interpret"):
        gather_kernel[(1,)](x, index, z, m, n, p, axis)
    assert torch.equal(z, x.gather(axis, index.long()))


def test_gather_outside_the_axis_is_a_fault():
    faults = []
    hook = HOOKS.add(Hook(fault=faults.append))
    try:
        x, z = torch.randn(4, 8), torch.empty(4, 8)
        index = torch.full((4, 8), 3, dtype=torch.int32)
        index[2, 5] = 9
        gather_kernel[(2,)](x, index, z, 4, 8, 8, 1)
    finally:
        HOOKS.remove(hook)
    (fault,) = faults
    assert "index 9 along axis 1, which has 8 elements" in fault.message
    assert fault.lane == (2, 5)
    assert fault.count == 2


@tkdebug.jit
def flip_kernel(X, Z, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    place = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(Z + place, tl.flip(tl.load(X + place), AXIS))


@pytest.mark.parametrize("axis", [0, 1, -1, -2, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
def test_flip_reverses_an_axis(axis, dtype):
    x = values((4, 8), dtype)
    z = torch.empty_like(x)
    flip_kernel[(1,)](x, z, 4, 8, axis)
    assert torch.equal(z, x.flip(1 if axis is None else axis))


@tkdebug.jit
def histogram_kernel(X, Z, n, N: tl.constexpr, BINS: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(X + i, mask=i < n)
    counts = tl.histogram(x, BINS, mask=i < n)
    tl.store(Z + tl.program_id(0) * BINS + tl.arange(0, BINS), counts)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8], ids=str)
def test_histogram_counts_what_the_mask_allows(dtype):
    x = torch.randint(0, 12, (100,)).to(dtype)
    z = torch.empty((4, 8), dtype=torch.int32)
    with scope(triton_version="3.8"):
        histogram_kernel[(4,)](x, z, 100, 32, 8)
    for program in range(4):
        part = x[program * 32 : (program + 1) * 32].long()
        # Values from 8 on are in no bin.
        assert torch.equal(z[program], part[part < 8].bincount(minlength=8).int())


def test_histogram_takes_32_bits_from_3_9_on():
    x, z = torch.zeros(100, dtype=torch.int16), torch.empty((4, 8), dtype=torch.int32)
    with pytest.raises(CompileError, match=r"32-bit integers, got int16; cast with .to\(tl.int32"):
        histogram_kernel[(4,)](x, z, 100, 32, 8)


def test_swizzle2d_groups_rows():
    @tkdebug.jit
    def kernel(Z, n_i, n_j, SIZE: tl.constexpr):
        for i in tl.range(0, n_i):
            for j in tl.range(0, n_j):
                new_i, new_j = tl.swizzle2d(i, j, n_i, n_j, SIZE)
                tl.store(Z + new_i * n_j + new_j, i * n_j + j)

    z = torch.zeros((4, 4), dtype=torch.int32)
    kernel[(1,)](z, 4, 4, 2)
    assert z.tolist() == [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]]
