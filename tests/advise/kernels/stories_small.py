"""Slow kernels of the kinds in `stories.py` that a test's few programs and rounds did not show."""

import torch
import triton
import triton.language as tl

DEVICE = "cuda"


# A sparse matrix by rows times a dense one, an entry a round.
@triton.jit
def csr_times_dense(indptr, indices, values, b, out, n, BN: tl.constexpr):
    row = tl.program_id(0)
    c = tl.program_id(1) * BN + tl.arange(0, BN)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    acc = tl.zeros((BN,), tl.float32)
    for j in range(begin, end):
        col = tl.load(indices + j)
        v = tl.load(values + j)
        acc += v * tl.load(b + col * n + c, mask=c < n, other=0.0)  # <- dependent-loads
    tl.store(out + row * n + c, acc, mask=c < n)


# A dot product of rows, reduced in each round.
@triton.jit
def gemv_rows(a, x, out, k, BM: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), tl.float32)
    for first in range(0, k, BK):
        rk = first + tl.arange(0, BK)
        w = tl.load(a + rm[:, None] * k + rk[None, :]).to(tl.float32)
        v = tl.load(x + rk).to(tl.float32)
        acc += tl.sum(w * v[None, :], axis=1)  # <- reduction-in-loop
    tl.store(out + rm, acc)


# Decoding with one program a head.
@triton.jit
def decode_whole(q, k, v, out, tokens, scale, B: tl.constexpr, D: tl.constexpr):  # <- small-grid
    h = tl.program_id(0)
    d = tl.arange(0, D)
    x = tl.load(q + h * D + d).to(tl.float32)
    m, total = -float("inf"), 0.0
    acc = tl.zeros((D,), tl.float32)
    for first in range(0, tokens, B):
        t = first + tl.arange(0, B)
        keys = tl.load(k + (h * tokens + t[:, None]) * D + d[None, :]).to(tl.float32)
        s = tl.sum(keys * x[None, :], axis=1) * scale
        new = tl.maximum(m, tl.max(s, 0))
        p = tl.exp(s - new)
        alpha = tl.exp(m - new)
        values = tl.load(v + (h * tokens + t[:, None]) * D + d[None, :]).to(tl.float32)
        acc = acc * alpha + tl.sum(p[:, None] * values, axis=0)
        total = total * alpha + tl.sum(p, 0)
        m = new
    tl.store(out + h * D + d, acc / total)


# An embedding's gradient: popular tokens meet.
@triton.jit
def embedding_grad(dy, index, dw, D: tl.constexpr):
    t, d = tl.program_id(0), tl.arange(0, D)
    row = tl.load(index + t)
    tl.atomic_add(dw + row * D + d, tl.load(dy + t * D + d))  # <- atomic-contention


# A norm of everything by one atomic a program and element.
@triton.jit
def sum_of_squares(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.atomic_add(out, tl.sum(v * v))  # <- atomic-contention


# One row of 32 a program, of four warps.
@triton.jit
def tiny_rows(x, w, out, N: tl.constexpr):  # <- small-tiles
    row = tl.program_id(0)
    c = tl.arange(0, N)
    v = tl.load(x + row * N + c)
    v = v * tl.rsqrt(tl.sum(v * v) / N + 1e-6)
    tl.store(out + row * N + c, v * tl.load(w + c))


# Heads of 64, a token and a head each.
@triton.jit
def rope_by_head(x, cos, sin, out, heads, HALF: tl.constexpr):  # <- small-tiles
    t, h = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, HALF)
    c, s = tl.load(cos + t * HALF + d), tl.load(sin + t * HALF + d)
    at = (t * heads + h) * 2 * HALF
    a, b = tl.load(x + at + d), tl.load(x + at + HALF + d)
    tl.store(out + at + d, a * c - b * s)
    tl.store(out + at + HALF + d, b * c + a * s)


# The delta rule, a token at a time: each needs the state that the one before left.
@triton.jit
def delta_tokens(k, v, beta, out, tokens, D: tl.constexpr):
    head, d = tl.program_id(0), tl.arange(0, D)
    state = tl.zeros((D, D), tl.float32)
    for t in range(tokens):
        key = tl.load(k + (head * tokens + t) * D + d)
        value = tl.load(v + (head * tokens + t) * D + d)
        wrong = value - tl.sum(state * key[None, :], 1)
        step = (tl.load(beta + head * tokens + t) * wrong)[:, None]
        state += step * key[None, :]  # <- serial-loop
    tl.store(out + head * D * D + d[:, None] * D + d[None, :], state)


# A causal mask is added to scores of all blocks of keys.
@triton.jit
def causal_by_adding(q, k, out, n, BQ: tl.constexpr, BK: tl.constexpr, D: tl.constexpr):
    rows, d = tl.program_id(0) * BQ + tl.arange(0, BQ), tl.arange(0, D)
    x = tl.load(q + rows[:, None] * D + d[None, :])
    top = tl.full((BQ,), -float("inf"), tl.float32)
    for first in range(0, n, BK):
        keys = first + tl.arange(0, BK)
        y = tl.load(k + keys[None, :] * D + d[:, None])
        score = tl.dot(x, y) * 0.125
        score += tl.where(rows[:, None] >= keys[None, :], 0.0, -1e9)  # <- masked-off
        top = tl.maximum(top, tl.max(score, 1))
    tl.store(out + rows, top)


# Lists that are linked by indices, walked by a thread each.
@triton.jit
def walk_lists(following, value, out, hops, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at, total = i, tl.zeros((BLOCK,), tl.float32)
    for _ in range(hops):
        total += tl.load(value + at)
        at = tl.load(following + at)  # <- dependent-loads
    tl.store(out + i, total)


# Tensors by their addresses, which a table has.
@triton.jit
def add_all(addresses, out, tensors, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for t in range(tensors):
        at = tl.load(addresses + t).to(tl.pointer_type(tl.float32))
        total += tl.load(at + i)  # <- dependent-loads
    tl.store(out + i, total)


# A convolution by its taps: a column and a row of products in the rounds of two loops.
@triton.jit
def conv_by_taps(
    x, w, out, length, channels, cols, K: tl.constexpr, BL: tl.constexpr, BC: tl.constexpr
):
    t = tl.program_id(0) * BL + tl.arange(0, BL)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    acc = tl.zeros((BL, BC), tl.float32)
    for i in range(channels):
        for k in range(K):
            a = tl.load(x + i * (length + K) + t + k)
            acc += a[:, None] * tl.load(w + (i * K + k) * cols + c)[None, :]  # <- no-tensor-cores
    tl.store(out + t[:, None] * cols + c[None, :], acc)


# A step of a decoder: 16 rows times a matrix, whose long sums a few programs make.
@triton.jit
def decoder_step(x, w, out, n, k, M: tl.constexpr, N: tl.constexpr):  # <- small-grid
    K: tl.constexpr = 128
    m, c, d = tl.arange(0, M), tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, K)
    acc = tl.zeros((M, N), tl.float32)
    for first in range(0, k, K):
        a = tl.load(x + m[:, None] * k + (first + d)[None, :])
        acc = tl.dot(a, tl.load(w + (first + d)[:, None] * n + c[None, :]), acc)
    tl.store(out + m[:, None] * n + c[None, :], acc.to(tl.float16))


# Weights of a byte that are cast before their product.
@triton.jit
def weights_of_a_byte(x, w, scale, out, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, c = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    d = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, BK):
        a = tl.load(x + m[:, None] * k + (first + d)[None, :])  # <- not-pipelined
        b = tl.load(w + (first + d)[:, None] * n + c[None, :])
        acc = tl.dot(a, b.to(tl.float16), acc)
    acc *= tl.load(scale + c)[None, :]
    tl.store(out + m[:, None] * n + c[None, :], acc.to(tl.float16))


# Attention of which one block of one warpgroup fits on a multiprocessor.
@triton.jit
def lone_warpgroup(q, k, v, o, n, M: tl.constexpr, N: tl.constexpr):
    D: tl.constexpr = 256
    r, c, d = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    base = tl.program_id(1) * n * D
    x = tl.load(q + base + r[:, None] * D + d[None, :])
    top, total = tl.full((M,), -float("inf"), tl.float32), tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    for first in range(0, n, N):
        y = tl.load(k + base + (first + c)[None, :] * D + d[:, None])  # <- low-occupancy-shared
        s = tl.dot(x, y) * 0.09
        new = tl.maximum(top, tl.max(s, 1))
        p, e = tl.exp2(s - new[:, None]), tl.exp2(top - new)
        z = tl.load(v + base + (first + c)[:, None] * D + d[None, :])
        acc = tl.dot(p.to(tl.float16), z, acc * e[:, None])
        total, top = total * e + tl.sum(p, 1), new
    tl.store(o + base + r[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16))


def _ones(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype, device=DEVICE)


def _halves(*shape):
    return _ones(*shape, dtype=torch.float16)


def _csr(rows, per, cols):
    indptr = torch.arange(0, (rows + 1) * per, per, dtype=torch.int32, device=DEVICE)
    indices = torch.randint(0, cols, (rows * per,), device=DEVICE).to(torch.int32)
    return indptr, indices, _ones(rows * per)


def csr_dense(form, size):
    rows, n = (8192, 256) if size > 1024 else (64, 64)
    indptr, indices, values = _csr(rows, 64 if size > 1024 else 16, rows)
    b, out = _ones(rows, n), _ones(rows, n)
    bn = 128 if size > 1024 else 64
    return lambda: csr_times_dense[(rows, n // bn)](indptr, indices, values, b, out, n, BN=bn)


def gemv_row(form, size):
    m, k = (8192, 8192) if size > 1024 else (128, 512)
    a, x, out = _halves(m, k), _halves(k), _ones(m)
    return lambda: gemv_rows[(m // 4,)](a, x, out, k, BM=4, BK=128, num_warps=4)


def decodes(form, size):
    heads, tokens = (32, 16384) if size > 1024 else (4, 512)
    q, out = _halves(heads, 128), _ones(heads, 128)
    k, v = _halves(heads, tokens, 128), _halves(heads, tokens, 128)
    return lambda: decode_whole[(heads,)](q, k, v, out, tokens, 0.1, B=64, D=128)


def embedding_grads(form, size):
    tokens = 65536 if size > 1024 else 512
    index = torch.zeros(tokens, dtype=torch.int64, device=DEVICE)
    index[::4] = torch.randint(0, 1000, (tokens // 4,), device=DEVICE)
    dy, dw = _ones(tokens, 128), torch.zeros(1000, 128, device=DEVICE)
    return lambda: embedding_grad[(tokens,)](dy, index, dw, D=128, num_warps=4)


def squares(form, size):
    n = 1 << 25 if size > 1024 else 1 << 16
    x, out = _ones(n), torch.zeros(1, device=DEVICE)
    return lambda: sum_of_squares[(n // 256,)](x, out, n, BLOCK=256)


def tinies(form, size):
    rows = 1 << 18 if size > 1024 else 256
    x, w, out = _ones(rows, 32), _ones(32), _ones(rows, 32)
    return lambda: tiny_rows[(rows,)](x, w, out, N=32)


def ropes(form, size):
    tokens, heads = (8192, 32) if size > 1024 else (64, 4)
    x, out = _halves(tokens, heads, 64), _halves(tokens, heads, 64)
    cos, sin = _ones(tokens, 32), _ones(tokens, 32)
    return lambda: rope_by_head[(tokens, heads)](x, cos, sin, out, heads, HALF=32)


def deltas(form, size):
    heads, tokens = (32, 1024) if size > 1024 else (2, 32)
    k, v, out = _ones(heads, tokens, 64), _ones(heads, tokens, 64), _ones(heads, 64, 64)
    beta = _ones(heads, tokens)
    return lambda: delta_tokens[(heads,)](k, v, beta, out, tokens, D=64)


def causal_sums(form, size):
    n = 8192 if size > 1024 else 256
    q, k, out = _halves(n, 64), _halves(n, 64), _ones(n)
    return lambda: causal_by_adding[(n // 64,)](q, k, out, n, BQ=64, BK=64, D=64)


def lists(form, size):
    n, hops = (1 << 18, 64) if size > 1024 else (1024, 16)
    following = torch.randperm(n, device=DEVICE).to(torch.int32)
    value, out = _ones(n), _ones(n)
    return lambda: walk_lists[(n // 256,)](following, value, out, hops, BLOCK=256)


def addressed(form, size):
    tensors, n = (64, 1 << 20) if size > 1024 else (128, 1 << 16)
    kept = [_ones(n) for _ in range(tensors)]
    table = torch.tensor([one.data_ptr() for one in kept], device=DEVICE)
    out = torch.empty_like(kept[0])
    return lambda: add_all[(n // 512,)](table, out, len(kept), BLOCK=512)


def taps(form, size):
    length, channels, cols = (16384, 64, 128) if size > 1024 else (256, 16, 64)
    x, w, out = _ones(channels, length + 3), _ones(channels, 3, cols), _ones(length, cols)
    grid = length // 128, cols // 64
    return lambda: conv_by_taps[grid](x, w, out, length, channels, cols, K=3, BL=128, BC=64)


def steps(form, size):
    n, k = 1024, 16384 if size > 1024 else 8192
    x, w, out = _halves(16, k), _halves(k, n), _halves(16, n)
    return lambda: decoder_step[(n // 64,)](x, w, out, n, k, M=16, N=64, num_warps=4, num_stages=3)


def byte_weights(form, size):
    n = 2048 if size > 1024 else 512
    x, out, scale = _halves(n, n), _halves(n, n), _ones(n)
    w = _ones(n, n, dtype=torch.int8)
    return lambda: weights_of_a_byte[(n // 64, n // 64)](
        x, w, scale, out, n, n, BM=64, BN=64, BK=64, num_warps=4, num_stages=1
    )


def warpgroups(form, size):
    n, heads = (1024, 24) if size > 1024 else (256, 4)
    q, k, v, o = (_halves(heads, n, 256) for _ in "qkvo")
    return lambda: lone_warpgroup[(n // 64, heads)](
        q, k, v, o, n, M=64, N=64, num_warps=4, num_stages=3
    )


CASES = {
    "steps": steps,
    "byte_weights": byte_weights,
    "warpgroups": warpgroups,
    "taps": taps,
    "deltas": deltas,
    "causal_sums": causal_sums,
    "lists": lists,
    "addressed": addressed,
    "csr_dense": csr_dense,
    "gemv_row": gemv_row,
    "decodes": decodes,
    "embedding_grads": embedding_grads,
    "squares": squares,
    "tinies": tinies,
    "ropes": ropes,
}
