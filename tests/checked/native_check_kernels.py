"""Kernels whose accesses are inserted: masked, pipelined, by block pointers, atomic, scalar."""

from __future__ import annotations

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def add(x, y, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@tkdebug.jit
def unmasked(x, out, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + at, tl.load(x + at))


@tkdebug.jit
def matmul(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    rows, columns, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    at = a + (tl.program_id(0) * M + rows[:, None]) * K + depth[None, :]
    bt = b + depth[:, None] * N + columns[None, :]
    total = tl.zeros((M, N), dtype=tl.float32)
    for _ in range(0, tl.cdiv(K, BK)):
        total = tl.dot(tl.load(at), tl.load(bt), total)
        at += BK
        bt += BK * N
    out = c + (tl.program_id(0) * M + rows[:, None]) * N + columns[None, :]
    tl.store(out, total.to(c.dtype.element_ty))


@tkdebug.jit
def block_sum(x, out, N, M, BM: tl.constexpr, BN: tl.constexpr):
    block = tl.make_block_ptr(x, (N, M), (M, 1), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
    total = tl.zeros((BM,), tl.float32)
    for _ in range(0, tl.cdiv(M, BN)):
        total += tl.sum(tl.load(block, boundary_check=(0,)), 1)
        block = tl.advance(block, (0, BN))
    tl.store(out + tl.program_id(0) * BM + tl.arange(0, BM), total)


@tkdebug.jit
def repeated(x, index, out, n, B: tl.constexpr):
    at = tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    for k in range(0, n):
        total += tl.load(x + at, volatile=True) + tl.load(x + tl.load(index + k * B + at))
    tl.store(out + at, total)


@tkdebug.jit
def histogram(x, counts, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(counts + tl.load(x + at, mask=at < n, other=0), 1, mask=at < n)


@tkdebug.jit
def asserting(x, out, n, limit, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.assume(n > 4)
    values = tl.load(x + at, mask=at < n, other=0)
    tl.device_assert(values < limit, "too large", mask=at < n)
    tl.store(out + at, values, mask=at < n)


@tkdebug.jit
def described(x, out, M, N, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [B, B])
    target = tl.make_tensor_descriptor(out, [M, N], [N, 1], [B, B])
    at = [tl.program_id(0) * B, tl.program_id(1) * B]
    target.store(at, source.load(at) + 1)


@tkdebug.jit
def neighbours(x, out, n):
    i = tl.program_id(0)
    tl.store(out + i, tl.load(x + i) + tl.load(x + i + 1))


@tkdebug.jit
def walking_back(x, out, n, B: tl.constexpr):
    """Program 1 is masked off; its addresses are past the end in the first round."""
    lanes = tl.program_id(0) * B + tl.arange(0, B)
    total, pointers = tl.zeros((B,), tl.float32), x + lanes
    for _ in range(3):
        total += tl.load(pointers, mask=(lanes >= 8) & (lanes < n))
        pointers += -5
    tl.store(out + lanes, total)
