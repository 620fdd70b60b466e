"""Kernels with one faulty line each, `# WRONG`, whose results are silently wrong."""

import tkdebug as triton
import tkdebug.language as tl


@triton.jit
def softmax_over_columns(x_ptr, out_ptr, R: tl.constexpr, C: tl.constexpr):
    rows, columns = tl.arange(0, R), tl.arange(0, C)
    at = rows[:, None] * C + columns[None, :]
    x = tl.load(x_ptr + at)
    e = tl.exp(x - tl.max(x, axis=1)[:, None])
    total = tl.sum(e, axis=0)  # WRONG
    tl.store(out_ptr + at, e / total[None, :])


@triton.jit
def unrescaled(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    largest = -float("inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + start + tl.arange(0, BLOCK))
        new = tl.maximum(largest, tl.max(x, axis=0))
        total = total + tl.sum(tl.exp(x - new), axis=0)  # WRONG
        largest = new
    tl.store(out_ptr, total)


@triton.jit
def overwritten(a_ptr, b_ptr, c_ptr, K, N: tl.constexpr):
    i = tl.arange(0, N)
    acc = tl.zeros((N, N), tl.float32)
    for k in range(0, K, N):
        a = tl.load(a_ptr + i[:, None] * K + k + i[None, :])
        b = tl.load(b_ptr + (k + i[:, None]) * N + i[None, :])
        acc = tl.dot(a, b)  # WRONG
    tl.store(c_ptr + i[:, None] * N + i[None, :], acc)


@triton.jit
def wrong_stride(a_ptr, out_ptr, stride_m, stride_n, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(a_ptr + i[:, None] * stride_n + i[None, :] * stride_m)  # WRONG
    tl.store(out_ptr + i[:, None] * N + i[None, :], x * 2)


@triton.jit
def masked_by_one(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i[:, None] * N + i[None, :])
    seen = tl.where(i[:, None] > i[None, :], x, 0.0)  # WRONG
    tl.store(out_ptr + i, tl.sum(seen, axis=1))


@triton.jit
def wrong_scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    mean = tl.sum(x, axis=0) / BLOCK  # WRONG
    centred = x - mean
    tl.store(out_ptr + i, centred, mask=i < n)


@triton.jit
def short_mask(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(out_ptr + i, x, mask=i < n - 1)  # WRONG


@triton.jit
def logarithms(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    y = tl.log(x - 1)  # WRONG
    z = y * 2 + x
    tl.store(out_ptr + i, tl.sum(z, axis=0))


@triton.jit
def handed_on(x_ptr, flag_ptr, out_ptr):
    i = tl.program_id(0)
    tl.atomic_add(flag_ptr + i, i)  # handed
    while tl.atomic_add(flag_ptr + i, 0) < 0:
        pass
    before = tl.load(flag_ptr + 0)
    tl.store(out_ptr + i, before + tl.load(x_ptr + i))


@triton.jit
def added(out_ptr):
    tl.atomic_add(out_ptr, tl.program_id(0) + 1.0)


@triton.jit
def unbound(x_ptr, out_ptr):
    i = tl.arange(0, 16)
    x = tl.load(x_ptr + i)
    y = tl.sum(x, axis=0) - tl.cumsum(x) + x
    tl.store(out_ptr + i, y * 2)
