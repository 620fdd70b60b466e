"""Dots smaller than an instruction of the tensor cores, in loops as decoding kernels have them."""

from __future__ import annotations

import re

import pytest
import torch
from corpus import Corpus

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def multiply(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr, OUT: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    total = tl.zeros((M, N), OUT)
    for first in range(0, K, BLOCK):
        x = tl.load(a + m[:, None] * K + first + k[None, :])
        y = tl.load(b + (first + k)[:, None] * N + n[None, :])
        total = tl.dot(x, y, total, out_dtype=OUT)
    tl.store(c + m[:, None] * N + n[None, :], total)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("m", "n", "block", "num_warps", "dtype"),
    [
        (1, 64, 64, 4, torch.float16),
        (8, 128, 32, 4, torch.bfloat16),
        (4, 4, 32, 1, torch.float16),
        (64, 1, 32, 4, torch.float16),
        (2, 16, 32, 2, torch.float32),
        (1, 32, 32, 8, torch.int8),
    ],
)
def test_small_dots_run_on_tensor_cores(m, n, block, num_warps, dtype, target):
    depth = 3 * block
    a, b = torch.randint(-3, 4, (m, depth)), torch.randint(-3, 4, (depth, n))
    whole = dtype == torch.int8
    c = torch.zeros((m, n), dtype=torch.int32 if whole else torch.float32)
    corpus = Corpus([target], check_gpu_ir=True, keep_ptx=True)
    with corpus.collecting():
        multiply[(1,)](
            *(a.to(dtype), b.to(dtype), c, depth),
            M=m,
            N=n,
            BLOCK=block,
            OUT=tl.int32 if whole else tl.float32,
            num_warps=num_warps,
        )
    assert torch.equal(c, (a @ b).to(c.dtype))
    (row,) = corpus.rows
    assert (row.cause, row.spill_bytes) == ("", 0), row.detail
    assert "mma.sync.aligned.m16n8k" in corpus.ptx[row.hash, row.target]


@tkdebug.jit
def multiply_in(
    a, b, c, K, S: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr, OUT: tl.constexpr
):
    i, k = tl.arange(0, S), tl.arange(0, BLOCK)
    total = tl.zeros((S, S), OUT)
    for first in range(0, K, BLOCK):
        x = tl.load(a + i[:, None] * K + first + k[None, :])
        y = tl.load(b + (first + k)[:, None] * S + i[None, :])
        total = tl.dot(x, y, total, input_precision=PRECISION, out_dtype=OUT)
    tl.store(c + i[:, None] * S + i[None, :], total)


@pytest.mark.parametrize("size", [16, 64])
@pytest.mark.parametrize(
    ("dtype", "block", "precision", "on_tensor_cores"),
    [
        (torch.float32, 8, "tf32", True),
        (torch.float32, 8, "tf32x3", True),
        (torch.float32, 8, "ieee", False),
        (torch.float32, 8, "bf16x3", False),
        (torch.float64, 4, "ieee", False),
    ],
)
def test_dots_of_the_shortest_k_compile_and_multiply(
    dtype, block, precision, on_tensor_cores, size
):
    a, b = (
        torch.randint(-3, 4, shape).to(dtype) for shape in ((size, 4 * block), (4 * block, size))
    )
    c = torch.zeros((size, size), dtype=dtype)
    targets = ["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a"]
    corpus = Corpus(targets, check_gpu_ir=True, keep_ptx=True)
    with corpus.collecting():
        multiply_in[(1,)](
            *(a, b, c, 4 * block),
            S=size,
            BLOCK=block,
            PRECISION=precision,
            OUT=tl.float64 if dtype == torch.float64 else tl.float32,
        )
    assert torch.equal(c, a @ b)
    for row in corpus.rows:
        assert (row.cause, row.spill_bytes) == ("", 0), row.detail
        mma = re.findall(
            r"mma(?:_async)?\.sync\.aligned\.m\d+n\d+k8", corpus.ptx[row.hash, row.target]
        )
        assert bool(mma) == (on_tensor_cores and row.target != "sm_75")
