"""Further slow kernels of the kinds in `stories.py`, written in other ways."""

import torch
import triton
import triton.language as tl

DEVICE = "cuda"


# Rows of each segment, whose begin is loaded when it is needed.
@triton.jit
def segment_sums(x, starts, out, segments, D: tl.constexpr, L: tl.constexpr):
    d, t = tl.arange(0, D), tl.arange(0, L)
    acc = tl.zeros((L, D), tl.float32)
    for i in range(segments):
        start = tl.load(starts + tl.program_id(0) * segments + i)
        acc += tl.load(x + (start + t[:, None]) * D + d[None, :])  # <- dependent-loads
    tl.store(out + tl.program_id(0) * D + d, tl.sum(acc, axis=0))


# Linear attention, a step at a time, with its state in registers.
@triton.jit
def delta_rule(q, k, v, out, steps, D: tl.constexpr):
    head = tl.program_id(0)
    i, j = tl.arange(0, D), tl.arange(0, D)
    state = tl.zeros((D, D), tl.float32)
    for t in range(steps):
        at = (head * steps + t) * D
        keys, values = tl.load(k + at + i), tl.load(v + at + j)
        state = state * 0.9 + keys[:, None] * values[None, :]  # <- serial-loop
        tl.store(out + at + j, tl.sum(state * tl.load(q + at + i)[:, None], axis=0))


# A recurrent cell.
@triton.jit
def cell(x, u, out, steps, cols, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    w, h = tl.load(u + c), tl.zeros((BLOCK,), tl.float32)
    for t in range(steps):
        z = tl.load(x + t * cols + c) + w * h
        h = 2 * tl.sigmoid(2 * z) - 1  # <- serial-loop
        tl.store(out + t * cols + c, h)


# Weights are scaled again for each block of rows.
@triton.jit
def matmul_quantised(a, w, scale, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr,
                     BK: tl.constexpr):  # fmt: skip
    rn, rk = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    for first in range(0, m, BM):
        rm = first + tl.arange(0, BM)
        acc = tl.zeros((BM, BN), tl.float32)
        for begin in range(0, k, BK):
            x = tl.load(a + rm[:, None] * k + (begin + rk)[None, :])
            codes = tl.load(w + (begin + rk)[:, None] * n + rn[None, :]).to(tl.float32)
            s = tl.load(scale + (begin + rk) // 32)
            y = tl.exp2(tl.log2(tl.abs(codes) + 1) * s[:, None])  # <- repeated-work
            acc = tl.dot(x, y.to(tl.float16), acc)
        tl.store(c + rm[:, None] * n + rn[None, :], acc.to(tl.float16))


# The denominator of a softmax is computed again for each part of the row.
@triton.jit
def softmax_by_parts(x, out, cols, BLOCK: tl.constexpr, PART: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    for first in range(0, cols, PART):
        e = tl.exp(tl.load(x + row * cols + c))  # <- repeated-work
        p = first + tl.arange(0, PART)
        part = tl.exp(tl.load(x + row * cols + p)) / tl.sum(e)
        tl.store(out + row * cols + p, part)


# Rows and columns of 64-bit indices.
@triton.jit
def unravel(x, out, cols, stride, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row, col = i // cols, i % cols  # <- integer-division
    tl.store(out + i, tl.load(x + row * stride + col))


# Attention in fp32.
@triton.jit
def attention_in_float(q, k, v, out, tokens, B: tl.constexpr, D: tl.constexpr):
    base = tl.program_id(1) * tokens * D
    rq, d = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    x = tl.load(q + base + rq[:, None] * D + d[None, :]).to(tl.float32)
    total = tl.zeros((B,), tl.float32)
    acc = tl.zeros((B, D), tl.float32)
    for first in range(0, tokens, B):
        rk = first + tl.arange(0, B)
        keys = tl.load(k + base + rk[None, :] * D + d[:, None]).to(tl.float32)
        p = tl.exp(tl.dot(x, keys) * 0.125)  # <- upcast-operands
        total += tl.sum(p, axis=1)
        values = tl.load(v + base + rk[:, None] * D + d[None, :]).to(tl.float32)
        acc += tl.dot(p, values)
    tl.store(out + base + rq[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16))


# A product of fp16 in fp32, and not by tf32 either.
@triton.jit
def exact_product(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, BK):
        rk = first + tl.arange(0, BK)
        x = tl.load(a + rm[:, None] * k + rk[None, :]).to(tl.float32)
        y = tl.load(b + rk[:, None] * n + rn[None, :]).to(tl.float32)
        acc += tl.dot(x, y, input_precision="ieee")  # <- no-tensor-cores
    tl.store(c + rm[:, None] * n + rn[None, :], acc.to(tl.float16))


# A product by broadcasting of operands that were cast.
@triton.jit
def tile_product(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, BK):
        rk = first + tl.arange(0, BK)
        x = tl.load(a + rm[:, None] * k + rk[None, :]).to(tl.float32)
        y = tl.load(b + rk[:, None] * n + rn[None, :]).to(tl.float32)
        z = x[:, :, None] * y[None, :, :]
        acc += tl.sum(tl.where(z > -1e9, z, 0.0), axis=1)  # <- no-tensor-cores
    tl.store(c + rm[:, None] * n + rn[None, :], acc)


# Complex numbers side by side, of which the real parts are read.
@triton.jit
def real_parts(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + 2 * i, mask=i < n), mask=i < n)  # <- uncoalesced


# Rows of 16 Ki numbers by two warps.
@triton.jit
def wide_softmax(x, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c, mask=c < cols, other=-float("inf"))
    e = tl.exp(v - tl.max(v))  # <- spill
    tl.store(out + row * cols + c, e / tl.sum(e), mask=c < cols)


# Attention within a window that goes over all keys.
@triton.jit
def windowed(q, k, out, tokens, WINDOW: tl.constexpr, B: tl.constexpr, D: tl.constexpr):
    base = tl.program_id(1) * tokens * D
    rq, d = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    x = tl.load(q + base + rq[:, None] * D + d[None, :])
    best = tl.full((B,), -float("inf"), tl.float32)
    for first in range(0, tokens, B):
        rk = first + tl.arange(0, B)
        s = tl.dot(x, tl.load(k + base + rk[None, :] * D + d[:, None]))
        near = tl.abs(rq[:, None] - rk[None, :]) < WINDOW
        s = tl.where(near, s, -float("inf"))  # <- masked-off
        best = tl.maximum(best, tl.max(s, axis=1))
    tl.store(out + tl.program_id(1) * tokens + rq, best)


# A counter of all programs.
@triton.jit
def count_positive(x, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_positive = (tl.load(x + i) > 0).to(tl.int32)
    tl.atomic_add(count + tl.zeros((BLOCK,), tl.int32), is_positive)  # <- atomic-contention


# Rows of an odd length of bytes.
@triton.jit
def unpack(x, out, cols, stride, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + c, mask=c < cols, other=0)  # <- narrow-access
    tl.store(out + row * BLOCK + c, v)


def _ones(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype, device=DEVICE)


def _halves(*shape):
    return _ones(*shape, dtype=torch.float16)


def segments(form, size):
    x = _ones(8 * size, 128)
    starts = torch.randint(0, 8 * size - 32, (264 * 64,), device=DEVICE).to(torch.int32)
    out = _ones(264, 128)
    return lambda: segment_sums[(264,)](x, starts, out, 64, D=128, L=32)


def deltas(form, size):
    heads, steps = max(16, size // 32), max(128, size // 8)
    q, k, v, out = (_ones(heads, steps, 64) for _ in range(4))
    return lambda: delta_rule[(heads,)](q, k, v, out, steps, D=64)


def cells(form, size):
    steps, cols = max(256, size // 4), 4 * size
    x, u, out = _ones(steps, cols), _ones(cols), _ones(steps, cols)
    return lambda: cell[(cols // 128,)](x, u, out, steps, cols, BLOCK=128)


def quantised(form, size):
    m, n, k = max(256, size // 4), 4 * size, max(256, size // 8)
    a, c = _halves(m, k), _halves(m, n)
    w, scale = _ones(k, n, dtype=torch.int8), _ones(k // 32)
    return lambda: matmul_quantised[(n // 64,)](
        a, w, scale, c, m, n, k, BM=64, BN=64, BK=64, num_warps=4
    )


def parts(form, size):
    rows = max(132, size // 4)
    x, out = _ones(rows, 4096), _ones(rows, 4096)
    return lambda: softmax_by_parts[(rows,)](x, out, 4096, BLOCK=4096, PART=256, num_warps=8)


def unravelled(form, size):
    n = size * size
    x, out = _halves(n), _halves(n)
    return lambda: unravel[(n // 1024,)](x, out, size + 7, size - 1, BLOCK=1024)


def attentions(form, size):
    tokens = max(256, size // 4)
    q, k, v, out = (_halves(16, tokens, 64) for _ in range(4))
    return lambda: attention_in_float[(tokens // 64, 16)](q, k, v, out, tokens, B=64, D=64)


def _product(kernel, tile, most=4096, **options):
    def case(form, size):
        n = max(256, min(most, size // 4))
        bm, bn, bk = tile
        a, b, c = _halves(n, n), _halves(n, n), _ones(n, n)
        return lambda: kernel[(n // bm, n // bn)](a, b, c, n, n, BM=bm, BN=bn, BK=bk, **options)

    return case


def reals(form, size):
    n = size * size
    x, out = _ones(2 * n), _ones(n)
    return lambda: real_parts[(n // 1024,)](x, out, n, BLOCK=1024)


def wide_rows(form, size):
    rows = max(264, size // 4)
    x, out = _ones(rows, 14000), _ones(rows, 14000)
    return lambda: wide_softmax[(rows,)](x, out, 14000, BLOCK=16384, num_warps=2)


def windows(form, size):
    tokens = max(512, size // 4)
    q, k, out = _halves(16, tokens, 64), _halves(16, tokens, 64), _ones(16, tokens)
    return lambda: windowed[(tokens // 64, 16)](q, k, out, tokens, WINDOW=64, B=64, D=64)


def counted(form, size):
    x, count = _ones(size * size), torch.zeros(1, dtype=torch.int32, device=DEVICE)
    return lambda: count_positive[(size * size // 1024,)](x, count, BLOCK=1024)


def unpacked(form, size):
    x, out = _ones(size, 4099, dtype=torch.int8), _ones(size, 4096, dtype=torch.int8)
    return lambda: unpack[(size,)](x, out, 4090, 4099, BLOCK=4096)


CASES = {
    "segments": segments,
    "deltas": deltas,
    "cells": cells,
    "quantised": quantised,
    "softmax_by_parts": parts,
    "unravelled": unravelled,
    "attention_in_float": attentions,
    "exact_product": _product(exact_product, (64, 64, 32)),
    "tile_product": _product(tile_product, (32, 32, 16), 512),
    "real_parts": reals,
    "wide_softmax": wide_rows,
    "windowed": windows,
    "count_positive": counted,
    "unpacked": unpacked,
}

if __name__ == "__main__":
    for case in CASES.values():
        case("planted", 256)()
