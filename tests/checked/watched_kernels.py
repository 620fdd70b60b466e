"""Kernels whose values are watched."""

from __future__ import annotations

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def matmul(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    cols = tl.arange(0, N)
    acc = tl.zeros((M, N), tl.float32)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * K + ks[None, :], mask=ks[None, :] < K, other=0.0)
        y = tl.load(b + ks[:, None] * N + cols[None, :], mask=ks[:, None] < K, other=0.0)
        acc += tl.dot(x, y)
    tl.store(c + rows[:, None] * N + cols[None, :], acc)


@tkdebug.jit
def twice(v):
    doubled = v * 2
    return doubled


@tkdebug.jit
def elementwise(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    y = twice(x)
    if tl.program_id(0) % 2 == 1:
        y = y + 1
    else:
        y = y - 1
    tl.store(out_ptr + at, y, mask=at < n)


@tkdebug.jit
def loops(out_ptr, n):
    total = 0
    for i in range(n):
        for j in tl.static_range(2):
            part = i * 10 + j
            total += part
    while total > 5:
        total = total // 2
    first, second = total, n
    tl.store(out_ptr, first + second)


@tkdebug.jit
def branches(out_ptr, n):
    for i in range(n):
        if i > 1:
            late = i * 2
            tl.store(out_ptr + i, late)
        tl.store(out_ptr, i)


@tkdebug.jit
def waiting(flag_ptr, out_ptr):
    flag = tl.load(flag_ptr)
    while flag == 0:
        flag = tl.load(flag_ptr, volatile=True)
        seen = flag + 1
        tl.store(out_ptr, seen)
    done = flag * 2
    tl.store(out_ptr, done)
