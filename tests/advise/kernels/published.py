"""Slow kernels like those of public issues and lectures, one cause each; 4096 is a real size.

Sources: issues and pull requests of Triton, PyTorch, vLLM, SGLang, Liger, FLA and Mamba; GPU MODE
lectures; Nsight Compute's guide to kernel profiling. Each was written before advice was asked.
A mark names the causes that are right there.
"""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

DEVICE = "cuda"


# Decoding over a paged cache: the page's number comes from a table, round by round.
@triton.jit
def paged_decode(q_ptr, k_ptr, v_ptr, tables, lens, o_ptr, max_pages, scale,
                 H: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr):  # fmt: skip
    b, h = tl.program_id(0), tl.program_id(1)
    d, t = tl.arange(0, D), tl.arange(0, PAGE)
    q = tl.load(q_ptr + (b * H + h) * D + d).to(tl.float32) * scale
    n = tl.load(lens + b)
    m, total = -float("inf"), 0.0
    acc = tl.zeros((D,), tl.float32)
    for i in range(0, tl.cdiv(n, PAGE)):
        page = tl.load(tables + b * max_pages + i).to(tl.int64)
        inside = i * PAGE + t < n
        at = ((page * PAGE + t[:, None]) * H + h) * D + d[None, :]
        k = tl.load(k_ptr + at, mask=inside[:, None], other=0.0)  # <- dependent-loads
        s = tl.where(inside, tl.sum(k.to(tl.float32) * q[None, :], 1), -float("inf"))
        new = tl.maximum(m, tl.max(s, 0))
        p, r = tl.exp(s - new), tl.exp(m - new)
        v = tl.load(v_ptr + at, mask=inside[:, None], other=0.0)  # <- dependent-loads
        acc = acc * r + tl.sum(p[:, None] * v.to(tl.float32), 0)
        total, m = total * r + tl.sum(p, 0), new
    tl.store(o_ptr + (b * H + h) * D + d, acc / total)


def paged(form, size):
    seqs, heads, count = 16, 16, size // 16
    pages = seqs * count
    k, v = _halves(pages, 16, heads, 64), _halves(pages, 16, heads, 64)
    q, o = _halves(seqs, heads, 64), _ones(seqs, heads, 64)
    tables = torch.randperm(pages, device=DEVICE).to(torch.int32)
    lens = torch.full((seqs,), size, dtype=torch.int32, device=DEVICE)
    return lambda: paged_decode[(seqs, heads)](
        q, k, v, tables, lens, o, count, 0.125, H=heads, D=64, PAGE=16
    )


# A bag of embeddings: an index is loaded, then its row, one after the other.
@triton.jit
def embedding_bag(table, indices, offsets, out, dim, BLOCK: tl.constexpr):
    bag = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    first, last = tl.load(offsets + bag), tl.load(offsets + bag + 1)
    acc = tl.zeros((BLOCK,), tl.float32)
    for i in range(first, last):
        row = tl.load(indices + i)
        acc += tl.load(table + row * dim + c, mask=c < dim, other=0.0)  # <- dependent-loads
    tl.store(out + bag * dim + c, acc / (last - first), mask=c < dim)


def bags(form, size):
    count, rows, dim, each = size // 4, 16 * size, 128, 64
    table, out = _ones(rows, dim), _ones(count, dim)
    indices = torch.randint(0, rows, (count * each,), dtype=torch.int32, device=DEVICE)
    offsets = torch.arange(0, count * each + 1, each, dtype=torch.int32, device=DEVICE)
    return lambda: embedding_bag[(count,)](table, indices, offsets, out, dim, BLOCK=128)


# Heads of a list that is linked by indices.
@triton.jit
def find_roots(parent, out, n, HOPS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    at = i
    for _ in range(HOPS):
        at = tl.load(parent + at, mask=inside, other=0)  # <- dependent-loads|gather
    tl.store(out + i, at, mask=inside)


def roots(form, size):
    n = 64 * size
    parent = torch.randperm(n, device=DEVICE).to(torch.int32)
    out = torch.empty_like(parent)
    return lambda: find_roots[(triton.cdiv(n, 256),)](parent, out, n, HOPS=16, BLOCK=256)


# Angles of all positions are computed for each head.
@triton.jit
def rotary_heads(x, freq, out, heads, T: tl.constexpr, D: tl.constexpr):
    pos = tl.program_id(0) * T + tl.arange(0, T)
    d = tl.arange(0, D)
    for h in range(heads):
        inv = tl.load(freq + d)
        angle = pos[:, None].to(tl.float32) * inv[None, :]
        c, s = tl.cos(angle), tl.sin(angle)  # <- repeated-work
        at = (pos[:, None] * heads + h) * (2 * D) + d[None, :]
        a = tl.load(x + at).to(tl.float32)
        b = tl.load(x + at + D).to(tl.float32)
        tl.store(out + at, (a * c - b * s).to(tl.bfloat16))
        tl.store(out + at + D, (b * c + a * s).to(tl.bfloat16))


def rotary(form, size):
    x = _ones(2 * size, 32, 128, dtype=torch.bfloat16)
    freq, out = _ones(64), torch.empty_like(x)
    return lambda: rotary_heads[(2 * size // 8,)](x, freq, out, 32, T=8, D=64)


# Weights are read for each row again, wider than the rows.
@triton.jit
def weighted_rows(x, w, g, b, out, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    for i in range(ROWS):
        row = tl.program_id(0) * ROWS + i
        v = tl.load(x + row * cols + c).to(tl.float32)
        a = tl.load(w + c)  # <- redundant-load
        s = tl.load(g + c)  # <- redundant-load
        t = tl.load(b + c)  # <- redundant-load
        tl.store(out + row * cols + c, ((v * a + t) * s).to(tl.int8))


def weighted(form, size):
    x, out = _ones(4 * size, 2048, dtype=torch.int8), _ones(4 * size, 2048, dtype=torch.int8)
    w, g, b = _ones(2048), _ones(2048), _ones(2048)
    return lambda: weighted_rows[(4 * size // 16,)](
        x, w, g, b, out, 4 * size, 2048, ROWS=16, BLOCK=2048
    )


# A depthwise filter whose taps are addressed in 64 bits.
@triton.jit
def depthwise(x, w, out, height, width, sh, sw, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    plane, row = tl.program_id(1).to(tl.int64), tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK).to(tl.int64)
    acc = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(TAPS):
        for j in tl.static_range(TAPS):
            r = row + i - TAPS // 2
            c = col + j - TAPS // 2
            inside = (r >= 0) & (r < height) & (c >= 0) & (c < width)  # <- int64-arithmetic
            v = tl.load(
                x + plane * sh * height + r * sh + c * sw, mask=inside, other=0.0
            )  # <- int64-arithmetic
            acc += v * tl.load(w + plane * TAPS * TAPS + i * TAPS + j)
    tl.store(out + plane * sh * height + row * sh + col * sw, acc, mask=col < width)


def filtered(form, size):
    side, planes = 512, max(1, size // 64)
    x, out, w = _ones(planes, side, side), _ones(planes, side, side), _ones(planes, 25)
    return lambda: depthwise[(side, planes)](x, w, out, side, side, side, 1, TAPS=5, BLOCK=512)


# Attention whose operands are all cast to fp32.
@triton.jit
def attention_fp32(q, k, v, o, n, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    start, bh = tl.program_id(0), tl.program_id(1)
    r, c, d = start * M + tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    base = bh * n * D
    x = tl.load(q + base + r[:, None] * D + d[None, :]).to(tl.float32) * scale
    top = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    for first in range(0, n, N):
        y = tl.load(k + base + (first + c)[None, :] * D + d[:, None]).to(tl.float32)
        s = tl.dot(x, y)  # <- upcast-operands
        new = tl.maximum(top, tl.max(s, 1))
        p, e = tl.exp(s - new[:, None]), tl.exp(top - new)
        z = tl.load(v + base + (first + c)[:, None] * D + d[None, :]).to(tl.float32)
        acc = tl.dot(p, z, acc * e[:, None])
        total, top = total * e + tl.sum(p, 1), new
    tl.store(o + base + r[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16))


def attention_in_fp32(form, size):
    n, heads = size // 2, 8
    q, k, v, o = (_halves(heads, n, 64) for _ in "qkvo")
    return lambda: attention_fp32[(n // 64, heads)](q, k, v, o, n, 0.125, M=64, N=64, D=64)


# Gradient of weights in fp32, since torch's is so.
@triton.jit
def weight_grad_fp32(dy, x, dw, tokens, n, k, BN: tl.constexpr, BK: tl.constexpr, BT: tl.constexpr):
    rn, rk = tl.program_id(0) * BN + tl.arange(0, BN), tl.program_id(1) * BK + tl.arange(0, BK)
    acc = tl.zeros((BN, BK), tl.float32)
    for first in range(0, tokens, BT):
        t = first + tl.arange(0, BT)
        a = tl.load(dy + t[None, :] * n + rn[:, None], mask=t[None, :] < tokens, other=0.0)
        b = tl.load(x + t[:, None] * k + rk[None, :], mask=t[:, None] < tokens, other=0.0)
        acc += tl.dot(a.to(tl.float32), b.to(tl.float32))  # <- upcast-operands
    tl.store(dw + rn[:, None] * k + rk[None, :], acc)


def weight_grads(form, size):
    n, k, tokens = size // 2, size // 2, size // 2
    dy = _ones(tokens, n, dtype=torch.bfloat16)
    x, dw = _ones(tokens, k, dtype=torch.bfloat16), _ones(n, k)
    return lambda: weight_grad_fp32[(n // 128, k // 128)](
        dy, x, dw, tokens, n, k, BN=128, BK=128, BT=32, num_warps=8
    )


# A gated recurrence, a token at a time.
@triton.jit
def gated_scan(x, gate, out, T, C, BLOCK: tl.constexpr):
    b, c = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    h = tl.zeros((BLOCK,), tl.float32)
    for t in range(0, T):
        at = (b * T + t) * C + c
        f = tl.sigmoid(tl.load(gate + at, mask=c < C, other=0.0).to(tl.float32))
        v = tl.load(x + at, mask=c < C, other=0.0).to(tl.float32)
        h = f * h + (1 - f) * v  # <- serial-loop
        tl.store(out + at, h.to(tl.bfloat16), mask=c < C)


def gated(form, size):
    batch, steps, channels = 8, size // 2, 1024
    x = _ones(batch, steps, channels, dtype=torch.bfloat16)
    gate, out = x.clone(), torch.empty_like(x)
    return lambda: gated_scan[(channels // 128, batch)](x, gate, out, steps, channels, BLOCK=128)


# A selective scan: the state of each channel is updated token by token.
@triton.jit
def selective_scan(u, delta, a, b, c, y, L, D, N: tl.constexpr, BLOCK: tl.constexpr):
    batch, d = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    n = tl.arange(0, N)
    rate = tl.load(a + d[:, None] * N + n[None, :])
    state = tl.zeros((BLOCK, N), tl.float32)
    for t in range(L):
        at = (batch * L + t) * D + d
        dt, v = tl.load(delta + at), tl.load(u + at)
        bt, ct = tl.load(b + (batch * L + t) * N + n), tl.load(c + (batch * L + t) * N + n)
        state = (
            tl.exp(dt[:, None] * rate) * state + (dt * v)[:, None] * bt[None, :]
        )  # <- serial-loop
        tl.store(y + at, tl.sum(state * ct[None, :], 1))


def selective(form, size):
    batch, L, D, N = 4, size // 4, 1024, 16
    u, delta, y = (_ones(batch, L, D) for _ in "udy")
    a, b, c = -_ones(D, N), _ones(batch, L, N), _ones(batch, L, N)
    return lambda: selective_scan[(batch, D // 64)](u, delta, a, b, c, y, L, D, N=N, BLOCK=64)


# A small product by a sum of broadcast tiles.
@triton.jit
def low_rank(x, down, out, tokens, dim, R: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr):
    t, r = tl.program_id(0) * BT + tl.arange(0, BT), tl.arange(0, R)
    acc = tl.zeros((BT, R), tl.float32)
    for first in range(0, dim, BK):
        k = first + tl.arange(0, BK)
        a = tl.load(x + t[:, None] * dim + k[None, :], mask=k[None, :] < dim, other=0.0)
        w = tl.load(down + r[:, None] * dim + k[None, :], mask=k[None, :] < dim, other=0.0)
        acc += tl.sum(
            a[:, None, :].to(tl.float32) * w[None, :, :].to(tl.float32), 2
        )  # <- no-tensor-cores
    tl.store(out + t[:, None] * R + r[None, :], acc)


def low_ranks(form, size):
    tokens, dim = 2 * size, 2048
    x, down, out = _halves(tokens, dim), _halves(32, dim), _ones(tokens, 32)
    return lambda: low_rank[(tokens // 16,)](x, down, out, tokens, dim, R=32, BT=16, BK=32)


# The mean and extremes of columns, a column a program.
@triton.jit
def column_stats(x, mean, peak, rows, cols, BLOCK: tl.constexpr):
    col = tl.program_id(0)
    total, top = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for first in range(0, rows, BLOCK):
        r = first + tl.arange(0, BLOCK)
        v = tl.load(x + r * cols + col, mask=r < rows, other=0.0)  # <- uncoalesced
        total += v
        top = tl.maximum(top, tl.abs(v))
    tl.store(mean + col, tl.sum(total) / rows)
    tl.store(peak + col, tl.max(top))


def column_statistics(form, size):
    x, mean, peak = _ones(size, 2048), _ones(2048), _ones(2048)
    return lambda: column_stats[(2048,)](x, mean, peak, size, 2048, BLOCK=1024)


# Planes to interleaved channels by flat indices: loads run along, stores do not.
@triton.jit
def to_channels_last(x, out, C, HW, BLOCK: tl.constexpr):
    n, c = tl.program_id(2), tl.program_id(1)
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = p < HW
    v = tl.load(x + (n * C + c) * HW + p, mask=inside)
    tl.store(out + (n * HW + p) * C + c, v, mask=inside)  # <- uncoalesced


def channels_last(form, size):
    n, c, hw = max(1, size // 512), 64, 128 * 128
    x, out = _halves(n, c, hw), _halves(n, c, hw)
    return lambda: to_channels_last[(hw // 1024, c, n)](x, out, c, hw, BLOCK=1024)


# Keys of all heads are read along the wrong axis: the tile's last axis has the large stride.
@triton.jit
def norms_of_keys(k, out, T, sd, st, D: tl.constexpr, BT: tl.constexpr):
    h = tl.program_id(1)
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    acc = tl.zeros((BT,), tl.float32)
    for d in range(0, D):
        v = tl.load(k + h * T * D + t * st + d * sd, mask=t < T, other=0.0).to(
            tl.float32
        )  # <- uncoalesced
        acc += v * v
    tl.store(out + h * T + t, tl.sqrt(acc), mask=t < T)


def key_norms(form, size):
    heads, tokens = 32, size
    k, out = _halves(heads, tokens, 128), _ones(heads, tokens)
    return lambda: norms_of_keys[(tokens // 256, heads)](k, out, tokens, 1, 128, D=128, BT=256)


# Bytes of rows whose length is odd.
@triton.jit
def dequantise_rows(codes, scale, out, cols, stride, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(codes + row * stride + c, mask=c < cols, other=0)  # <- narrow-access
    s = tl.load(scale + row)
    tl.store(out + row * cols + c, (v.to(tl.float32) * s).to(tl.float8e4nv), mask=c < cols)


def dequantised(form, size):
    rows, cols = 2 * size, 8192
    codes = torch.ones((rows, 8197), dtype=torch.int8, device=DEVICE)
    scale, out = _ones(rows), torch.empty((rows, cols), dtype=torch.float8_e4m3fn, device=DEVICE)
    return lambda: dequantise_rows[(rows, cols // 4096)](codes, scale, out, cols, 8197, BLOCK=4096)


# A cross entropy over a vocabulary that is one tile of a few warps.
@triton.jit
def cross_entropy_whole(x, target, loss, grad, V, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * V + c, mask=c < V, other=-float("inf")).to(tl.float32)  # <- spill
    top = tl.max(v, 0)  # <- spill
    e = tl.exp(v - top)  # <- spill
    total = tl.sum(e, 0)  # <- spill
    y = tl.load(target + row)
    picked = tl.sum(tl.where(c == y, v, 0.0), 0)  # <- spill
    tl.store(loss + row, top + tl.log(total) - picked)
    g = e / total - tl.where(c == y, 1.0, 0.0)  # <- spill
    tl.store(grad + row * V + c, g.to(tl.bfloat16), mask=c < V)  # <- spill


def cross_entropies(form, size):
    rows, vocabulary = size // 4, 50257
    x = _ones(rows, vocabulary, dtype=torch.bfloat16)
    grad, loss = torch.empty_like(x), _ones(rows)
    target = torch.zeros(rows, dtype=torch.int64, device=DEVICE)
    return lambda: cross_entropy_whole[(rows,)](
        x, target, loss, grad, vocabulary, BLOCK=65536, num_warps=8
    )


# A product with a long sum and few tiles.
@triton.jit
def tall_product(
    a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # <- small-grid
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, BK):
        x = tl.load(a + rm[:, None] * k + (first + rk)[None, :])
        y = tl.load(b + (first + rk)[:, None] * n + rn[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rm[:, None] * n + rn[None, :], acc.to(tl.float16))


def tall_products(form, size):
    m, n, k = 256, 256, 8 * size
    a, b, c = _halves(m, k), _halves(k, n), _halves(m, n)
    return lambda: tall_product[(m // 128, n // 128)](
        a, b, c, m, n, k, BM=128, BN=128, BK=64, num_warps=8, num_stages=3
    )


# A few tiles more than there are multiprocessors, each long.
@triton.jit
def iterate_map(x, out, steps, BLOCK: tl.constexpr):  # <- wave-quantisation
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    for _ in range(steps):
        v = v * 1.25 - v * v * v * 0.1 + 0.01
        v = v * 0.75 + v * v * 0.05
    tl.store(out + i, v)


def iterated(form, size):
    n = 140 * 2048
    x, out = _ones(n), _ones(n)
    return lambda: iterate_map[(140,)](x, out, 2 * size, BLOCK=2048, num_warps=16)


# Every program adds its part of a loss to one number.
@triton.jit
def mse_loss(a, b, loss, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.load(a + i, mask=i < n, other=0.0) - tl.load(b + i, mask=i < n, other=0.0)
    tl.atomic_add(loss, tl.sum(d * d) / n)  # <- atomic-contention


def losses(form, size):
    n = size * size
    a, b, loss = _ones(n), _ones(n), torch.zeros(1, device=DEVICE)
    return lambda: mse_loss[(triton.cdiv(n, 256),)](a, b, loss, n, BLOCK=256)


# Tokens of a few experts are counted one by one.
@triton.jit
def count_experts(ids, counts, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    e = tl.load(ids + i, mask=i < n, other=0)
    tl.atomic_add(counts + e, 1, mask=i < n)  # <- atomic-contention


def experts(form, size):
    n = 64 * size
    ids = torch.randint(0, 8, (n,), dtype=torch.int32, device=DEVICE)
    counts = torch.zeros(8, dtype=torch.int32, device=DEVICE)
    return lambda: count_experts[(triton.cdiv(n, 1024),)](ids, counts, n, BLOCK=1024)


# A gated product whose loads wait, since num_stages is 1.
@triton.jit
def gated_product(x, wg, wu, out, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    g, u = tl.zeros((BM, BN), tl.float32), tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, BK):
        a = tl.load(x + rm[:, None] * k + (first + rk)[None, :])  # <- not-pipelined
        b = tl.load(wg + (first + rk)[:, None] * n + rn[None, :])  # <- not-pipelined
        c = tl.load(wu + (first + rk)[:, None] * n + rn[None, :])  # <- not-pipelined
        g, u = tl.dot(a, b, g), tl.dot(a, c, u)
    tl.store(out + rm[:, None] * n + rn[None, :], (g * tl.sigmoid(g) * u).to(tl.float16))


def gated_products(form, size):
    m, n, k = size // 2, size, size // 4
    x, wg, wu, out = _halves(m, k), _halves(k, n), _halves(k, n), _halves(m, n)
    return lambda: gated_product[(m // 64, n // 64)](
        x, wg, wu, out, n, k, BM=64, BN=64, BK=32, num_stages=1
    )


# One long row a multiprocessor, in rounds that wait.
@triton.jit
def largest_of_row(x, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    for first in range(0, cols, BLOCK):
        c = first + tl.arange(0, BLOCK)
        v = tl.load(x + row * cols + c, mask=c < cols, other=-float("inf"))  # <- not-pipelined
        top = tl.maximum(top, v.to(tl.float32))
    tl.store(out + row, tl.max(top))


def largest_of_rows(form, size):
    rows, cols = 264, 32 * size
    x, out = _halves(rows, cols), _ones(rows)
    return lambda: largest_of_row[(rows,)](x, out, cols, BLOCK=512, num_warps=2)


# Rows of 128 for sixteen warps.
@triton.jit
def head_norm(x, w, out, D: tl.constexpr):  # <- small-tiles
    row, d = tl.program_id(0), tl.arange(0, D)
    v = tl.load(x + row * D + d).to(tl.float32)
    r = tl.rsqrt(tl.sum(v * v, 0) / D + 1e-6)
    tl.store(out + row * D + d, (v * r * tl.load(w + d)).to(tl.bfloat16))


def head_norms(form, size):
    rows = 32 * size
    x, w = _ones(rows, 128, dtype=torch.bfloat16), _ones(128)
    out = torch.empty_like(x)
    return lambda: head_norm[(rows,)](x, w, out, D=128, num_warps=16)


# A sinusoidal embedding by pow, sine and cosine of large numbers.
@triton.jit
def sinusoids(out, dim, D: tl.constexpr, ROWS: tl.constexpr):
    pos = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, D)
    rate = libdevice.pow(
        10000.0 + pos[:, None] * 0.0, -(d // 2 * 2)[None, :] / dim
    )  # <- slow-function
    angle = pos[:, None] * rate
    y = tl.where(
        d[None, :] % 2 == 0, libdevice.sin(angle), libdevice.cos(angle)
    )  # <- slow-function
    tl.store(out + pos[:, None] * D + d[None, :], y)


def positions(form, size):
    out = _ones(8 * size, 512)
    return lambda: sinusoids[(8 * size // 4,)](out, 512.0, D=512, ROWS=4)


# Tiles of 32 by 32 for a large product.
@triton.jit
def small_tiled(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, BK):
        x = tl.load(a + rm[:, None] * k + (first + rk)[None, :])
        y = tl.load(b + (first + rk)[:, None] * n + rn[None, :])
        acc += tl.dot(x, y)  # <- small-product-tiles|no-wgmma
    tl.store(c + rm[:, None] * n + rn[None, :], acc.to(tl.bfloat16))


def small_tiled_product(form, size):
    n = size // 2
    a, b, c = (_ones(n, n, dtype=torch.bfloat16) for _ in "abc")
    return lambda: small_tiled[(n // 32, n // 32)](a, b, c, n, n, BM=32, BN=32, BK=64)


# Rows of 200 in blocks of 2048.
@triton.jit
def softmax_of_short_rows(x, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c, mask=c < cols, other=-float("inf"))  # <- masked-off
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * cols + c, e / tl.sum(e, 0), mask=c < cols)  # <- masked-off


def short_softmaxes(form, size):
    x, out = _ones(8 * size, 200), _ones(8 * size, 200)
    return lambda: softmax_of_short_rows[(8 * size,)](x, out, 200, BLOCK=2048)


# Causal attention over all blocks of keys, half of which the mask discards.
@triton.jit
def causal_all_blocks(q, k, v, o, n, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    start, bh = tl.program_id(0), tl.program_id(1)
    r, c, d = start * M + tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    base = bh * n * D
    x = tl.load(q + base + r[:, None] * D + d[None, :])
    top, total = tl.full((M,), -float("inf"), tl.float32), tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    for first in range(0, n, N):
        y = tl.load(k + base + (first + c)[None, :] * D + d[:, None])
        s = tl.dot(x, y) * scale
        s = tl.where(r[:, None] >= (first + c)[None, :], s, -float("inf"))  # <- masked-off
        new = tl.maximum(top, tl.max(s, 1))
        p, e = tl.exp2(s - new[:, None]), tl.exp2(top - new)
        z = tl.load(v + base + (first + c)[:, None] * D + d[None, :])
        acc = tl.dot(p.to(tl.float16), z, acc * e[:, None])
        total, top = total * e + tl.sum(p, 1), new
    tl.store(o + base + r[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16))


def causal_attention(form, size):
    n, heads = size // 2, 8
    q, k, v, o = (_halves(heads, n, 64) for _ in "qkvo")
    return lambda: causal_all_blocks[(n // 128, heads)](
        q, k, v, o, n, 0.18, M=128, N=64, D=64, num_warps=8, num_stages=3
    )


# The row is read three times, once for each statistic.
@triton.jit
def layer_norm_passes(x, w, b, y, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, cols, BLOCK):
        c = first + tl.arange(0, BLOCK)
        total += tl.load(x + row * cols + c, mask=c < cols, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / cols
    square = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, cols, BLOCK):
        c = first + tl.arange(0, BLOCK)
        v = (
            tl.load(x + row * cols + c, mask=c < cols, other=0.0).to(tl.float32) - mean
        )  # <- redundant-load
        square += tl.where(c < cols, v * v, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(square, 0) / cols + eps)
    for first in range(0, cols, BLOCK):
        c = first + tl.arange(0, BLOCK)
        v = tl.load(x + row * cols + c, mask=c < cols, other=0.0).to(
            tl.float32
        )  # <- redundant-load
        g, s = tl.load(w + c, mask=c < cols), tl.load(b + c, mask=c < cols)
        tl.store(y + row * cols + c, ((v - mean) * rstd * g + s).to(tl.float16), mask=c < cols)


def layer_norms(form, size):
    rows, cols = size // 2, 8192
    x, y, w, b = _halves(rows, cols), _halves(rows, cols), _halves(cols), _halves(cols)
    return lambda: layer_norm_passes[(rows,)](x, w, b, y, cols, 1e-5, BLOCK=1024)


# Patches of an image: four coordinates of each element by division.
@triton.jit
def im2col(x, out, n, C, H, W, OW, K, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kw = i % K  # <- integer-division
    kh = i // K % K  # <- integer-division
    c = i // (K * K) % C  # <- integer-division
    p = i // (K * K * C)  # <- integer-division
    oh, ow = p // OW, p % OW  # <- integer-division
    v = tl.load(x + (c * H + oh + kh) * W + ow + kw, mask=i < n, other=0.0)
    tl.store(out + i, v, mask=i < n)


def patches(form, size):
    side = 112
    channels, k = 16, 7
    n = (side - k + 1) ** 2 * channels * k * k
    n = n if size >= 2048 else n // 64
    x, out = _halves(channels, side, side), _halves(n)
    return lambda: im2col[(triton.cdiv(n, 1024),)](
        x, out, n, channels, side, side, side - k + 1, k, BLOCK=1024
    )


# The sums of a log-sum-exp in fp64, since a test's tolerance was tight.
@triton.jit
def log_sum_exp_double(x, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c, mask=c < cols, other=-float("inf")).to(tl.float64)
    top = tl.max(v, 0)
    e = tl.exp(v - top)  # <- fp64
    tl.store(out + row, (top + tl.log(tl.sum(e, 0))).to(tl.float32))


def log_sums(form, size):
    x, out = _halves(2 * size, 4096), _ones(2 * size)
    return lambda: log_sum_exp_double[(2 * size,)](x, out, 4096, BLOCK=4096, num_warps=8)


# Random elements of a large table.
@triton.jit
def take(table, index, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(index + i, mask=i < n, other=0)
    tl.store(out + i, tl.load(table + at, mask=i < n), mask=i < n)  # <- gather


def taken(form, size):
    n = 1024 * size
    table = _ones(4 * n)
    index = torch.randint(0, 4 * n, (n,), dtype=torch.int32, device=DEVICE)
    out = _ones(n)
    return lambda: take[(triton.cdiv(n, 1024),)](table, index, out, n, BLOCK=1024)


# One of four interleaved planes is written.
@triton.jit
def write_alpha(alpha, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(alpha + i, mask=i < n)
    tl.store(out + 4 * i + 3, v, mask=i < n)  # <- uncoalesced


def alphas(form, size):
    n = 2048 * size
    alpha, out = _ones(n), _ones(4 * n)
    return lambda: write_alpha[(triton.cdiv(n, 1024),)](alpha, out, n, BLOCK=1024)


def _ones(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype, device=DEVICE)


def _halves(*shape):
    return _ones(*shape, dtype=torch.float16)


CASES = {
    "paged": paged,
    "bags": bags,
    "roots": roots,
    "rotary": rotary,
    "weighted": weighted,
    "filtered": filtered,
    "attention_in_fp32": attention_in_fp32,
    "weight_grads": weight_grads,
    "gated": gated,
    "selective": selective,
    "low_ranks": low_ranks,
    "column_statistics": column_statistics,
    "channels_last": channels_last,
    "key_norms": key_norms,
    "dequantised": dequantised,
    "cross_entropies": cross_entropies,
    "tall_products": tall_products,
    "iterated": iterated,
    "losses": losses,
    "experts": experts,
    "gated_products": gated_products,
    "largest_of_rows": largest_of_rows,
    "head_norms": head_norms,
    "positions": positions,
    "small_tiled_product": small_tiled_product,
    "short_softmaxes": short_softmaxes,
    "causal_attention": causal_attention,
    "layer_norms": layer_norms,
    "patches": patches,
    "log_sums": log_sums,
    "taken": taken,
    "alphas": alphas,
}
