"""Dots on FMA units compile without spills, and their operands arrive by asynchronous copies."""

from __future__ import annotations

import pytest
import torch
from corpus import Corpus

import tkdebug
import tkdebug.language as tl

DTYPES = {torch.float32: tl.float32, torch.float64: tl.float64}


@tkdebug.jit
def multiply_add(a, b, c, K, S: tl.constexpr, BLOCK: tl.constexpr, TRANSPOSED: tl.constexpr):
    m, k = tl.arange(0, S), tl.arange(0, BLOCK)
    total = tl.load(c + m[:, None] * S + m[None, :])
    for first in range(0, K, BLOCK):
        x = tl.load(a + m[:, None] * K + first + k[None, :])
        if TRANSPOSED:
            y = tl.load(b + m[:, None] * K + first + k[None, :]).T
        else:
            y = tl.load(b + (first + k)[:, None] * S + m[None, :])
        total = tl.dot(x, y, total, input_precision="ieee", out_dtype=total.dtype)
    tl.store(c + m[:, None] * S + m[None, :], total)


@pytest.mark.parametrize(
    ("dtype", "size", "block", "num_warps", "transposed"),
    [
        (torch.float32, 32, 32, 4, False),
        (torch.float32, 64, 32, 4, True),
        (torch.float32, 64, 64, 4, False),
        (torch.float32, 128, 32, 8, False),
        (torch.float64, 64, 64, 4, False),
        (torch.float64, 64, 32, 4, True),
    ],
)
def test_dot_in_a_loop_neither_spills_nor_waits_for_memory(
    dtype, size, block, num_warps, transposed
):
    depth = 4 * block
    a = torch.randint(-3, 4, (size, depth)).to(dtype)
    b = torch.randint(-3, 4, (size, depth) if transposed else (depth, size)).to(dtype)
    c = torch.randint(-3, 4, (size, size)).to(dtype)
    wanted = c + a @ (b.T if transposed else b)
    corpus = Corpus(["sm_80"], check_gpu_ir=True, keep_ptx=True)
    with corpus.collecting():
        multiply_add[(1,)](
            a, b, c, depth, S=size, BLOCK=block, TRANSPOSED=transposed, num_warps=num_warps
        )
    assert torch.equal(c, wanted)
    (row,) = corpus.rows
    assert (row.cause, row.spill_bytes, row.local_accesses) == ("", 0, 0), row.detail
    ptx = corpus.ptx[row.hash, row.target]
    assert "cp.async.cg" in ptx
    assert "ld.shared.v4" in ptx or dtype == torch.float64
