"""Slow kernels as applications have them, with more around the cause; 4096 is a real size.

Sources: as of `published.py`. Each was written before advice was asked.
"""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

DEVICE = "cuda"


# A sparse matrix by rows, times a vector.
@triton.jit
def sparse_rows(begin, column, value, x, y, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    first, last = tl.load(begin + row), tl.load(begin + row + 1)
    acc = tl.zeros((BLOCK,), tl.float32)
    for e in range(first, last, BLOCK):
        i = e + tl.arange(0, BLOCK)
        c = tl.load(column + i, mask=i < last, other=0)
        a = tl.load(value + i, mask=i < last, other=0.0)
        acc += a * tl.load(x + c, mask=i < last, other=0.0)  # <- dependent-loads|gather
    tl.store(y + row, tl.sum(acc, 0))


def sparse(form, size):
    rows, each, n = 8 * size, 256, 1 << 22
    column = torch.randint(0, n, (rows * each,), dtype=torch.int32, device=DEVICE)
    value, x, y = _ones(rows * each), _ones(n), _ones(rows)
    begin = torch.arange(0, rows * each + 1, each, dtype=torch.int32, device=DEVICE)
    return lambda: sparse_rows[(rows,)](begin, column, value, x, y, BLOCK=128)


# A group's channels lie side by side for each place, which is a part of a sector.
@triton.jit
def group_norm_last(x, w, y, places, C, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    n, g = tl.program_id(0), tl.program_id(1)
    c = g * GROUP + tl.arange(0, GROUP)
    base = n * places * C
    total = tl.zeros((BLOCK, GROUP), tl.float32)
    square = tl.zeros((BLOCK, GROUP), tl.float32)
    for first in range(0, places, BLOCK):
        p = first + tl.arange(0, BLOCK)
        at = base + p[:, None] * C + c[None, :]
        v = tl.load(x + at, mask=p[:, None] < places, other=0.0).to(tl.float32)  # <- uncoalesced
        total += v
        square += v * v
    mean = tl.sum(total) / (places * GROUP)
    rstd = tl.rsqrt(tl.sum(square) / (places * GROUP) - mean * mean + 1e-5)
    scale = tl.load(w + c)
    for first in range(0, places, BLOCK):
        p = first + tl.arange(0, BLOCK)
        at = base + p[:, None] * C + c[None, :]
        v = tl.load(x + at, mask=p[:, None] < places, other=0.0).to(tl.float32)  # <- uncoalesced
        v = (v - mean) * rstd * scale[None, :]
        tl.store(y + at, v.to(tl.float16), mask=p[:, None] < places)  # <- uncoalesced


def groups_last(form, size):
    n, places, channels, group = size // 128, 4096, 256, 4
    x, y, w = _halves(n, places, channels), _halves(n, places, channels), _ones(channels)
    return lambda: group_norm_last[(n, channels // group)](
        x, w, y, places, channels, GROUP=group, BLOCK=256
    )


# Statistics of channels, a channel a program.
@triton.jit
def channel_stats(x, mean, var, N, C, HW, BLOCK: tl.constexpr):  # <- small-grid
    c = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    square = tl.zeros((BLOCK,), tl.float32)
    for n in range(N):
        for first in range(0, HW, BLOCK):
            p = first + tl.arange(0, BLOCK)
            v = tl.load(x + (n * C + c) * HW + p, mask=p < HW, other=0.0).to(tl.float32)
            total += v
            square += v * v
    m = tl.sum(total, 0) / (N * HW)
    tl.store(mean + c, m)
    tl.store(var + c, tl.sum(square, 0) / (N * HW) - m * m)


def channel_statistics(form, size):
    n, c, hw = size // 16, 32, 56 * 56
    x, mean, var = _halves(n, c, hw), _ones(c), _ones(c)
    return lambda: channel_stats[(c,)](x, mean, var, n, c, hw, BLOCK=1024, num_warps=8)


# Each row adds its gradient of the weights to that of all rows.
@triton.jit
def norm_backward(dy, x, w, rstd, dx, dw, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    inside = c < cols
    g = tl.load(dy + row * cols + c, mask=inside, other=0.0).to(tl.float32)
    v = tl.load(x + row * cols + c, mask=inside, other=0.0).to(tl.float32)
    r = tl.load(rstd + row)
    h, wg = v * r, g * tl.load(w + c, mask=inside, other=0.0)
    k = tl.sum(h * wg, 0) / cols
    tl.store(dx + row * cols + c, ((wg - h * k) * r).to(tl.float16), mask=inside)
    tl.atomic_add(dw + c, g * h, mask=inside)  # <- atomic-contention


def norms_backward(form, size):
    rows, cols = 2 * size, 2048
    dy, x, dx = _halves(rows, cols), _halves(rows, cols), _halves(rows, cols)
    w, rstd, dw = _ones(cols), _ones(rows), torch.zeros(cols, device=DEVICE)
    return lambda: norm_backward[(rows,)](dy, x, w, rstd, dx, dw, cols, BLOCK=2048, num_warps=8)


# The gradient of an embedding, where most tokens are the padding.
@triton.jit
def embedding_backward(dy, ids, grad, dim, BLOCK: tl.constexpr):
    token, c = tl.program_id(0), tl.arange(0, BLOCK)
    row = tl.load(ids + token).to(tl.int64)
    g = tl.load(dy + token.to(tl.int64) * dim + c, mask=c < dim, other=0.0)
    tl.atomic_add(grad + row * dim + c, g, mask=c < dim)  # <- atomic-contention


def embeddings_backward(form, size):
    tokens, dim = 8 * size, 256
    ids = torch.randint(0, 32000, (tokens,), device=DEVICE)
    ids[torch.rand(tokens, device=DEVICE) < 0.7] = 0
    dy, grad = _ones(tokens, dim), torch.zeros(32000, dim, device=DEVICE)
    return lambda: embedding_backward[(tokens,)](dy, ids, grad, dim, BLOCK=256)


# A running sum, number by number.
@triton.jit
def cumulative(x, y, n):  # <- small-tiles
    row = tl.program_id(0)
    total = 0.0
    for i in range(n):
        total += tl.load(x + row * n + i)  # <- serial-loop
        tl.store(y + row * n + i, total)


def cumulatives(form, size):
    rows, n = size // 2, size // 8
    x, y = _ones(rows, n), _ones(rows, n)
    return lambda: cumulative[(rows,)](x, y, n)


# Linear attention with decay, a token at a time.
@triton.jit
def token_by_token(r, k, v, w, u, y, T, D: tl.constexpr):
    head, d = tl.program_id(0), tl.arange(0, D)
    state = tl.zeros((D, D), tl.float32)
    bonus = tl.load(u + d)
    for t in range(T):
        at = (head * T + t) * D + d
        keys, values = tl.load(k + at).to(tl.float32), tl.load(v + at).to(tl.float32)
        outer = keys[:, None] * values[None, :]
        q = tl.load(r + at).to(tl.float32)
        o = tl.sum((state + bonus[:, None] * outer) * q[:, None], 0)
        tl.store(y + at, o)
        decay = tl.exp(-tl.exp(tl.load(w + at).to(tl.float32)))
        state = state * decay[:, None] + outer  # <- serial-loop


def wkv(form, size):
    heads, T = 256, size // 4
    r, k, v, w = (_halves(heads, T, 64) for _ in "rkvw")
    u, y = _ones(64), _ones(heads, T, 64)
    return lambda: token_by_token[(heads,)](r, k, v, w, u, y, T, D=64)


# A loss with the logarithm of the gamma function.
@triton.jit
def poisson_loss(rate, count, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    x, k = tl.load(rate + i, mask=inside, other=1.0), tl.load(count + i, mask=inside, other=0.0)
    loss = x - k * tl.log(x) + libdevice.lgamma(k + 1.0)  # <- slow-function
    tl.store(out + i, loss, mask=inside)


def poisson(form, size):
    n = 2048 * size
    rate, count, out = _ones(n), 3 * _ones(n), _ones(n)
    return lambda: poisson_loss[(triton.cdiv(n, 1024),)](rate, count, out, n, BLOCK=1024)


# A cache that has eight numbers of each token side by side.
@triton.jit
def cache_keys(key, cache, slots, heads, D: tl.constexpr, BS: tl.constexpr, X: tl.constexpr):
    token, h = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, D)
    slot = tl.load(slots + token)
    block, place = slot // BS, slot % BS
    at = ((block * heads + h) * (D // X) + d // X) * BS * X + place * X + d % X
    tl.store(cache + at, tl.load(key + (token * heads + h) * D + d))  # <- uncoalesced


def cached(form, size):
    tokens, heads = 4 * size, 8
    key, cache = _halves(tokens, heads, 128), _halves(tokens // 16, heads, 16, 16, 8)
    slots = torch.randperm(tokens, device=DEVICE).to(torch.int32)
    return lambda: cache_keys[(tokens, heads)](
        key, cache, slots, heads, D=128, BS=16, X=8, num_warps=4
    )


# A batch of sequences, each padded to the longest.
@triton.jit
def padded_attention(q, k, v, lens, o, longest, scale,
                     M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):  # fmt: skip
    start, b = tl.program_id(0), tl.program_id(1)
    n = tl.load(lens + b)
    r, c, d = start * M + tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    base = b * longest * D
    x = tl.load(
        q + base + r[:, None] * D + d[None, :], mask=r[:, None] < n, other=0.0
    )  # <- masked-off
    top, total = tl.full((M,), -1e30, tl.float32), tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    for first in range(0, longest, N):
        inside = first + c < n
        y = tl.load(
            k + base + (first + c)[None, :] * D + d[:, None], mask=inside[None, :], other=0.0
        )  # <- masked-off
        s = tl.where(inside[None, :], tl.dot(x, y) * scale, -1e30)  # <- masked-off
        new = tl.maximum(top, tl.max(s, 1))
        p, e = tl.exp2(s - new[:, None]), tl.exp2(top - new)
        z = tl.load(
            v + base + (first + c)[:, None] * D + d[None, :], mask=inside[:, None], other=0.0
        )  # <- masked-off
        acc = tl.dot(p.to(tl.float16), z, acc * e[:, None])
        total, top = total * e + tl.sum(p, 1), new
    tl.store(
        o + base + r[:, None] * D + d[None, :],
        (acc / total[:, None]).to(tl.float16),
        mask=r[:, None] < n,
    )  # <- masked-off


def padded(form, size):
    seqs, longest = 32, size // 2
    q, k, v, o = (_halves(seqs, longest, 64) for _ in "qkvo")
    lens = torch.full((seqs,), longest // 4, dtype=torch.int32, device=DEVICE)
    return lambda: padded_attention[(longest // 128, seqs)](
        q, k, v, lens, o, longest, 0.18, M=128, N=64, D=64, num_warps=8, num_stages=3
    )


# A softmax of long rows in three passes, too many rows at a time for the cache.
@triton.jit
def softmax_passes(x, y, V, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    for first in range(0, V, BLOCK):
        v = tl.load(x + row * V + first + c, mask=first + c < V, other=-float("inf"))
        top = tl.maximum(top, v)
    m = tl.max(top, 0)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, V, BLOCK):
        v = tl.load(
            x + row * V + first + c, mask=first + c < V, other=-float("inf")
        )  # <- redundant-load
        total += tl.exp(v - m)
    z = tl.sum(total, 0)
    for first in range(0, V, BLOCK):
        v = tl.load(
            x + row * V + first + c, mask=first + c < V, other=-float("inf")
        )  # <- redundant-load
        tl.store(y + row * V + first + c, tl.exp(v - m) / z, mask=first + c < V)


def softmaxes_by_passes(form, size):
    rows, vocabulary = size // 4, 64000
    x, y = _ones(rows, vocabulary), _ones(rows, vocabulary)
    return lambda: softmax_passes[(rows,)](x, y, vocabulary, BLOCK=2048, num_warps=8)


# Two warps, which warpgroup instructions do not take.
@triton.jit
def two_warps(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, BK):
        x = tl.load(a + rm[:, None] * k + (first + rk)[None, :])
        y = tl.load(b + (first + rk)[:, None] * n + rn[None, :])
        acc = tl.dot(x, y, acc)  # <- no-wgmma|small-product-tiles
    tl.store(c + rm[:, None] * n + rn[None, :], acc.to(tl.float16))


def product_of_two_warps(form, size):
    n = size // 2
    a, b, c = _halves(n, n), _halves(n, n), _halves(n, n)
    return lambda: two_warps[(n // 64, n // 128)](
        a, b, c, n, n, BM=64, BN=128, BK=32, num_warps=2, num_stages=3
    )


# A loop that no pass looks at.
@triton.jit
def product_by_while(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    first = 0
    while first < k:
        x = tl.load(a + rm[:, None] * k + (first + rk)[None, :])  # <- not-pipelined
        y = tl.load(b + (first + rk)[:, None] * n + rn[None, :])  # <- not-pipelined
        acc = tl.dot(x, y, acc)
        first += BK
    tl.store(c + rm[:, None] * n + rn[None, :], acc.to(tl.float16))


def products_by_while(form, size):
    n = size // 2
    a, b, c = _halves(n, n), _halves(n, n), _halves(n, n)
    return lambda: product_by_while[(n // 128, n // 128)](
        a, b, c, n, n, BM=128, BN=128, BK=64, num_warps=8
    )


# A tile whose sums do not fit registers.
@triton.jit
def wide_product(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)  # <- spill
    acc = tl.zeros((BM, BN), tl.float32)  # <- spill
    for first in range(0, k, BK):  # <- spill
        x = tl.load(a + rm[:, None] * k + (first + rk)[None, :])  # <- spill
        y = tl.load(b + (first + rk)[:, None] * n + rn[None, :])  # <- spill
        acc = tl.dot(x, y, acc)  # <- spill
    tl.store(c + rm[:, None] * n + rn[None, :], acc.to(tl.float16))  # <- spill


def wide_products(form, size):
    n = size
    a, b, c = _halves(n, n // 2), _halves(n // 2, n), _halves(n, n)
    return lambda: wide_product[(n // 256, n // 256)](
        a, b, c, n, n // 2, BM=256, BN=256, BK=32, num_warps=8, num_stages=3
    )


# Attention of heads of 256 by one warpgroup.
@triton.jit
def wide_heads(q, k, v, o, n, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    start, bh = tl.program_id(0), tl.program_id(1)
    r, c, d = start * M + tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    base = bh * n * D
    x = tl.load(q + base + r[:, None] * D + d[None, :])
    top, total = tl.full((M,), -float("inf"), tl.float32), tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    for first in range(0, n, N):
        y = tl.load(k + base + (first + c)[None, :] * D + d[:, None])  # <- spill
        s = tl.dot(x, y) * scale  # <- spill
        new = tl.maximum(top, tl.max(s, 1))  # <- spill
        p, e = tl.exp2(s - new[:, None]), tl.exp2(top - new)  # <- spill
        z = tl.load(v + base + (first + c)[:, None] * D + d[None, :])  # <- spill
        acc = acc * e[:, None] + tl.dot(p.to(tl.float16), z)  # <- spill
        total, top = total * e + tl.sum(p, 1), new  # <- spill
    tl.store(
        o + base + r[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16)
    )  # <- spill


def attention_of_wide_heads(form, size):
    n, heads = size // 2, 16
    q, k, v, o = (_halves(heads, n, 256) for _ in "qkvo")
    return lambda: wide_heads[(n // 128, heads)](
        q, k, v, o, n, 0.09, M=128, N=64, D=256, num_warps=4, num_stages=2
    )


# 144 tiles for 132 multiprocessors.
@triton.jit
def a_wave_and_some(
    a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # <- wave-quantisation
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, BK):
        x = tl.load(a + rm[:, None] * k + (first + rk)[None, :])
        y = tl.load(b + (first + rk)[:, None] * n + rn[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rm[:, None] * n + rn[None, :], acc.to(tl.float16))


def waves(form, size):
    n, k = 12 * 128, size
    a, b, c = _halves(n, k), _halves(k, n), _halves(n, n)
    return lambda: a_wave_and_some[(12, 12)](
        a, b, c, n, k, BM=128, BN=128, BK=64, num_warps=8, num_stages=4
    )


# Decoding one sequence: a program for each of a few heads walks the whole cache.
@triton.jit
def decode_heads(
    q, k, v, o, n, scale, G: tl.constexpr, N: tl.constexpr, D: tl.constexpr
):  # <- small-grid
    h = tl.program_id(0)
    g, c, d = tl.arange(0, G), tl.arange(0, N), tl.arange(0, D)
    x = tl.load(q + (h * G + g[:, None]) * D + d[None, :])
    top, total = tl.full((G,), -float("inf"), tl.float32), tl.zeros((G,), tl.float32)
    acc = tl.zeros((G, D), tl.float32)
    for first in range(0, n, N):
        y = tl.load(k + (h * n + first + c)[None, :] * D + d[:, None])
        s = tl.dot(x, y) * scale
        new = tl.maximum(top, tl.max(s, 1))
        p, e = tl.exp2(s - new[:, None]), tl.exp2(top - new)
        z = tl.load(v + (h * n + first + c)[:, None] * D + d[None, :])
        acc = tl.dot(p.to(tl.float16), z, acc * e[:, None])
        total, top = total * e + tl.sum(p, 1), new
    tl.store(o + (h * G + g[:, None]) * D + d[None, :], acc / total[:, None])


def decoding(form, size):
    heads, n = 8, 8 * size
    q, o = _halves(heads, 16, 128), _ones(heads, 16, 128)
    k, v = _halves(heads, n, 128), _halves(heads, n, 128)
    return lambda: decode_heads[(heads,)](q, k, v, o, n, 0.09, G=16, N=64, D=128, num_stages=3)


# A tile that is long across the rows and short along them.
@triton.jit
def short_runs(x, out, rows, cols, BR: tl.constexpr, BC: tl.constexpr):
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    acc = tl.zeros((BC,), tl.float32)
    for first in range(0, rows, BR):
        r = first + tl.arange(0, BR)
        v = tl.load(
            x + r[:, None] * cols + c[None, :], mask=r[:, None] < rows, other=0.0
        )  # <- uncoalesced
        acc += tl.sum(v.to(tl.float32), 0)
    tl.store(out + c, acc / rows)


def runs_of_four(form, size):
    x, out = _halves(2 * size, 4096), _ones(4096)
    return lambda: short_runs[(4096 // 4,)](x, out, 2 * size, 4096, BR=512, BC=4)


# A product of fp16 that is cast up, and exact.
@triton.jit
def exact_after_cast(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, BK):
        x = tl.load(a + rm[:, None] * k + (first + rk)[None, :]).to(tl.float32)
        y = tl.load(b + (first + rk)[:, None] * n + rn[None, :]).to(tl.float32)
        acc += tl.dot(x * 0.5, y, allow_tf32=False)  # <- upcast-operands|no-tensor-cores
    tl.store(c + rm[:, None] * n + rn[None, :], acc.to(tl.float16))


def exact_products(form, size):
    n = size // 4
    a, b, c = _halves(n, n), _halves(n, n), _halves(n, n)
    return lambda: exact_after_cast[(n // 64, n // 64)](a, b, c, n, n, BM=64, BN=64, BK=32)


# The scores' decay is computed for each block of keys, from a slope that is loaded there.
@triton.jit
def decayed_scores(q, k, slopes, out, tokens, heads, B: tl.constexpr, D: tl.constexpr):
    h = tl.program_id(1)
    r = tl.program_id(0) * B + tl.arange(0, B)
    d, c = tl.arange(0, D), tl.arange(0, B)
    x = tl.load(q + (h * tokens + r[:, None]) * D + d[None, :])
    for first in range(0, tokens, B):
        y = tl.load(k + (h * tokens + first + c)[None, :] * D + d[:, None])
        slope = tl.load(slopes + h)
        near = tl.exp(-slope * tl.log(1.0 + tl.abs(r[:, None] - c[None, :])))  # <- repeated-work
        s = tl.dot(x, y) * tl.sqrt(near)  # <- repeated-work
        tl.store(out + (h * tokens + r[:, None]) * tokens + (first + c)[None, :], s.to(tl.float16))


def decayed(form, size):
    heads, tokens = 8, size // 2
    q, k = _halves(heads, tokens, 64), _halves(heads, tokens, 64)
    slopes, out = _ones(heads), _halves(heads, tokens, tokens)
    return lambda: decayed_scores[(tokens // 64, heads)](
        q, k, slopes, out, tokens, heads, B=64, D=64
    )


# Indices of a batch of images in 64 bits, for each byte.
@triton.jit
def flip_images(x, y, height, width, sn, sh, BLOCK: tl.constexpr):
    n, r = tl.program_id(1).to(tl.int64), tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK).to(tl.int64)
    inside = (c < width) & (r < height)
    source = n * sn + (height - 1 - r) * sh + (width - 1 - c)  # <- int64-arithmetic|narrow-access
    v = tl.load(x + source, mask=inside, other=0)  # <- int64-arithmetic|narrow-access
    tl.store(y + n * sn + r * sh + c, 255 - v, mask=inside)  # <- int64-arithmetic|narrow-access


def flipped(form, size):
    n, side = size // 64, 1024
    x = torch.ones((n, side, side), dtype=torch.uint8, device=DEVICE)
    y = torch.empty_like(x)
    return lambda: flip_images[(side, n)](x, y, side, side, side * side, side, BLOCK=1024)


def _ones(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype, device=DEVICE)


def _halves(*shape):
    return _ones(*shape, dtype=torch.float16)


CASES = {
    "sparse": sparse,
    "groups_last": groups_last,
    "channel_statistics": channel_statistics,
    "norms_backward": norms_backward,
    "embeddings_backward": embeddings_backward,
    "cumulatives": cumulatives,
    "wkv": wkv,
    "poisson": poisson,
    "cached": cached,
    "padded": padded,
    "softmaxes_by_passes": softmaxes_by_passes,
    "product_of_two_warps": product_of_two_warps,
    "products_by_while": products_by_while,
    "wide_products": wide_products,
    "attention_of_wide_heads": attention_of_wide_heads,
    "waves": waves,
    "decoding": decoding,
    "runs_of_four": runs_of_four,
    "exact_products": exact_products,
    "decayed": decayed,
    "flipped": flipped,
}
