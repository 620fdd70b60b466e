"""wgmma of narrow and wide types whose operands are not contiguous along K."""

from __future__ import annotations

import pytest
import torch
from corpus import Corpus

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def multiply(
    a,
    b,
    c,
    K,
    S: tl.constexpr,
    BLOCK: tl.constexpr,
    A_TURNED: tl.constexpr,
    LIMIT: tl.constexpr,
    OUT: tl.constexpr,
):
    m, k = tl.arange(0, S), tl.arange(0, BLOCK)
    total = tl.zeros((S, S), OUT)
    for first in range(0, K, BLOCK):
        if A_TURNED:
            x = tl.load(a + (first + k)[None, :] * S + m[:, None])
        else:
            x = tl.load(a + m[:, None] * K + first + k[None, :])
        y = tl.load(b + (first + k)[:, None] * S + m[None, :])
        total = tl.dot(x, y, total, max_num_imprecise_acc=LIMIT)
    tl.store(c + m[:, None] * S + m[None, :], total)


@pytest.mark.parametrize(
    ("dtype", "size", "block", "a_turned", "limit"),
    [
        (torch.float8_e4m3fn, 128, 128, False, None),
        (torch.float8_e5m2, 64, 64, True, None),
        (torch.float8_e4m3fn, 64, 64, False, 32),
        (torch.float8_e5m2, 64, 64, False, 64),
        (torch.int8, 128, 64, True, None),
        (torch.int8, 64, 32, False, None),
        (torch.float32, 128, 32, False, None),
        (torch.float32, 64, 16, True, None),
    ],
)
def test_operands_are_turned_for_wgmma(dtype, size, block, a_turned, limit):
    depth = 3 * block
    a = torch.randint(-3, 4, (depth, size) if a_turned else (size, depth))
    b = torch.randint(-3, 4, (depth, size))
    wanted = (a.T if a_turned else a) @ b
    out = torch.int32 if dtype == torch.int8 else torch.float32
    c = torch.zeros((size, size), dtype=out)
    corpus = Corpus(["sm_90a"], check_gpu_ir=True, keep_ptx=True)
    with corpus.collecting():
        multiply[(1,)](
            *(x.to(torch.float32).to(dtype) for x in (a, b)),
            *(c, depth),
            S=size,
            BLOCK=block,
            A_TURNED=a_turned,
            LIMIT=limit,
            OUT=tl.int32 if dtype == torch.int8 else tl.float32,
        )
    assert torch.equal(c, wanted.to(out))
    (row,) = corpus.rows
    assert (row.cause, row.spill_bytes, row.notes) == ("", 0, []), row.detail
    assert row.wgmma
    assert not row.mma
    ptx = corpus.ptx[row.hash, row.target]
    assert "cp.async.cg" in ptx
    assert ("prmt" in ptx) is (dtype.itemsize == 1)
    # What leaves the tensor core in parts is added by each thread.
    parts = 0 if limit is None else block // limit
    assert ptx.count("add.f32") == size * size // (4 * 32) * parts
