"""Good kernels that look like the slow ones of `published.py`; 4096 is a real size."""

import torch
import triton
import triton.language as tl

DEVICE = "cuda"


# Rows of tokens of an expert are gathered, by indices that are loaded before the loop.
@triton.jit
def expert_product(
    x, w, ids, experts, out, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    m, rn = tl.program_id(0), tl.program_id(1) * N + tl.arange(0, N)
    token = tl.load(ids + m * M + tl.arange(0, M))
    e = tl.load(experts + m).to(tl.int64)
    rk = tl.arange(0, K)
    a_at = x + token[:, None] * k + rk[None, :]
    b_at = w + e * k * n + rk[:, None] * n + rn[None, :]
    acc = tl.zeros((M, N), tl.float32)
    for _ in range(0, k, K):
        acc = tl.dot(tl.load(a_at), tl.load(b_at), acc)
        a_at += K
        b_at += K * n
    tl.store(out + token[:, None] * n + rn[None, :], acc.to(tl.float16))


def expert_products(size):
    tokens, n, k = size, size // 2, size // 4
    x, out = _halves(tokens, k), _halves(tokens, n)
    w = _halves(8, k, n)
    ids = torch.randperm(tokens, device=DEVICE).to(torch.int32)
    experts = (torch.arange(tokens // 128, device=DEVICE) % 8).to(torch.int32)
    return lambda: expert_product[(tokens // 128, n // 128)](
        x, w, ids, experts, out, n, k, M=128, N=128, K=64, num_warps=8, num_stages=3
    )


# Weights are loaded once for several rows.
@triton.jit
def norm_of_rows(x, w, out, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    g = tl.load(w + c).to(tl.float32)
    for i in range(ROWS):
        at = (tl.program_id(0).to(tl.int64) * ROWS + i) * cols + c
        v = tl.load(x + at).to(tl.float32)
        r = tl.rsqrt(tl.sum(v * v, 0) / cols + 1e-6)
        tl.store(out + at, (v * r * g).to(tl.float16))


def norms_of_rows(size):
    x, out, w = _halves(4 * size, 4096), _halves(4 * size, 4096), _halves(4096)
    return lambda: norm_of_rows[(size,)](x, w, out, 4096, ROWS=4, BLOCK=4096, num_warps=8)


# A tall product, with its sum divided over programs.
@triton.jit
def split_product(
    a, b, c, n, k, PART: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    rm, rn = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    rk = tl.program_id(2) * PART + tl.arange(0, K)
    acc = tl.zeros((M, N), tl.float32)
    for first in range(0, PART, K):
        x = tl.load(a + rm[:, None] * k + (first + rk)[None, :])
        y = tl.load(b + (first + rk)[:, None] * n + rn[None, :])
        acc = tl.dot(x, y, acc)
    tl.atomic_add(c + rm[:, None] * n + rn[None, :], acc)


def split_products(size):
    m, n, k = 256, 256, 32 * size
    a, b, c = _halves(m, k), _halves(k, n), torch.zeros(m, n, device=DEVICE)
    part = k // 32
    return lambda: split_product[(2, 2, 32)](
        a, b, c, n, k, PART=part, M=128, N=128, K=64, num_warps=8, num_stages=4
    )


@triton.jit
def _decay(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


# A recurrence by chunks, which is a scan within each.
@triton.jit
def chunked_recurrence(x, a, out, ends, C, T: tl.constexpr, B: tl.constexpr):
    t, c = tl.arange(0, T), tl.program_id(0) * B + tl.arange(0, B)
    at = (tl.program_id(1) * T + t[:, None]) * C + c[None, :]
    rate = tl.load(a + at).to(tl.float32)
    _, h = tl.associative_scan((rate, tl.load(x + at).to(tl.float32)), 0, _decay)
    tl.store(out + at, h.to(tl.float16))


def recurrences(size):
    steps, channels = 4 * size, 1024
    x, a, out = (_halves(steps, channels) for _ in "xao")
    return lambda: chunked_recurrence[(channels // 64, steps // 32)](
        x, a, out, out, channels, T=32, B=64
    )


# A transposition by tiles that are read and written along their rows.
@triton.jit
def transpose_tiles(x, out, rows, cols, B: tl.constexpr):
    r, c = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    v = tl.load(x + r[:, None] * cols + c[None, :])
    tl.store(out + c[:, None] * rows + r[None, :], tl.trans(v))


def transpositions(size):
    x, out = _ones(size, size), _ones(size, size)
    return lambda: transpose_tiles[(size // 64, size // 64)](x, out, size, size, B=64, num_warps=8)


# Causal attention that ends where the mask does.
@triton.jit
def causal(q, k, v, o, n, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    start, bh = tl.program_id(0), tl.program_id(1)
    r, c, d = start * M + tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    base = bh * n * D
    x = tl.load(q + base + r[:, None] * D + d[None, :])
    top, total = tl.full((M,), -float("inf"), tl.float32), tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    for first in range(0, (start + 1) * M, N):
        y = tl.load(k + base + (first + c)[None, :] * D + d[:, None])
        s = tl.dot(x, y) * scale
        s = tl.where(r[:, None] >= (first + c)[None, :], s, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p, e = tl.exp2(s - new[:, None]), tl.exp2(top - new)
        z = tl.load(v + base + (first + c)[:, None] * D + d[None, :])
        acc = tl.dot(p.to(tl.float16), z, acc * e[:, None])
        total, top = total * e + tl.sum(p, 1), new
    tl.store(o + base + r[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16))


def causal_attention(size):
    n, heads = size // 2, 32
    q, k, v, o = (_halves(heads, n, 64) for _ in "qkvo")
    return lambda: causal[(n // 128, heads)](
        q, k, v, o, n, 0.18, M=128, N=64, D=64, num_warps=8, num_stages=3
    )


# A softmax of a row that one program holds.
@triton.jit
def softmax_of_rows(x, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c, mask=c < cols, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * cols + c, (e / tl.sum(e, 0)).to(tl.bfloat16), mask=c < cols)


def softmaxes(size):
    x = _ones(2 * size, 4096, dtype=torch.bfloat16)
    out = torch.empty_like(x)
    return lambda: softmax_of_rows[(2 * size,)](x, out, 4096, BLOCK=4096, num_warps=8)


# Codes of 8 bits, with a scale for each group of a row.
@triton.jit
def dequantise_groups(codes, scales, out, cols, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(codes + row * cols + c).to(tl.float32)
    s = tl.load(scales + row * (cols // GROUP) + c // GROUP)
    tl.store(out + row * cols + c, (v * s).to(tl.float16))


def dequantised(size):
    codes = _ones(2 * size, 4096, dtype=torch.int8)
    scales, out = _ones(2 * size, 32), _halves(2 * size, 4096)
    return lambda: dequantise_groups[(2 * size, 2)](codes, scales, out, 4096, GROUP=128, BLOCK=2048)


# A gate and its product, of a tensor that has both.
@triton.jit
def swiglu(x, out, cols, BLOCK: tl.constexpr):
    row, c = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = c < cols
    g = tl.load(x + row * 2 * cols + c, mask=inside).to(tl.float32)
    u = tl.load(x + row * 2 * cols + cols + c, mask=inside).to(tl.float32)
    tl.store(out + row * cols + c, (g * tl.sigmoid(g) * u).to(tl.float16), mask=inside)


def gates(size):
    cols = 11008
    x, out = _halves(size, 2 * cols), _halves(size, cols)
    grid = (size, triton.cdiv(cols, 1024))
    return lambda: swiglu[grid](x, out, cols, BLOCK=1024)


# Sums of columns by tiles of rows, and one atomic for each column and tile.
@triton.jit
def bias_grad(dy, out, rows, cols, R: tl.constexpr, C: tl.constexpr):
    c = tl.program_id(1) * C + tl.arange(0, C)
    r = tl.program_id(0) * R + tl.arange(0, R)
    v = tl.load(dy + r[:, None] * cols + c[None, :]).to(tl.float32)
    tl.atomic_add(out + c, tl.sum(v, 0))


def bias_grads(size):
    dy, out = _halves(4 * size, 4096), torch.zeros(4096, device=DEVICE)
    return lambda: bias_grad[(4 * size // 64, 4096 // 128)](
        dy, out, 4 * size, 4096, R=64, C=128, num_warps=8
    )


# A residual sum and its scale, in place, with the state of an optimiser.
@triton.jit
def momentum(p, g, m, n, lr, beta, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    v = beta * tl.load(m + i, mask=inside) + tl.load(g + i, mask=inside).to(tl.float32)
    tl.store(m + i, v, mask=inside)
    tl.store(p + i, tl.load(p + i, mask=inside) - lr * v, mask=inside)


def momenta(size):
    n = 8 * 1024 * size
    p, g, m = _ones(n), _halves(n), _ones(n)
    return lambda: momentum[(triton.cdiv(n, 1024),)](p, g, m, n, 0.1, 0.9, BLOCK=1024)


# Angles are read from a table, and hold for all heads of a token.
@triton.jit
def rotate_tokens(x, cos, sin, out, heads, H: tl.constexpr, D: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    h, d = tl.arange(0, H), tl.arange(0, D)
    c, s = tl.load(cos + t * D + d)[None, :], tl.load(sin + t * D + d)[None, :]
    at = (t * heads + h[:, None]) * (2 * D) + d[None, :]
    a, b = tl.load(x + at).to(tl.float32), tl.load(x + at + D).to(tl.float32)
    tl.store(out + at, (a * c - b * s).to(tl.bfloat16))
    tl.store(out + at + D, (b * c + a * s).to(tl.bfloat16))


def rotations(size):
    x = _ones(2 * size, 32, 128, dtype=torch.bfloat16)
    out = torch.empty_like(x)
    cos, sin = _ones(2 * size, 64), _ones(2 * size, 64)
    return lambda: rotate_tokens[(2 * size,)](x, cos, sin, out, 32, H=32, D=64)


# Rows of an embedding, in 64 bits where they have to be.
@triton.jit
def lookup(table, ids, out, dim, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(ids + r)
    v = tl.load(table + row[:, None] * dim + c[None, :])
    tl.store(out + r[:, None].to(tl.int64) * dim + c[None, :], v)


def lookups(size):
    table, out = _halves(8 * size, 2048), _halves(4 * size, 2048)
    ids = torch.randint(0, 8 * size, (4 * size,), device=DEVICE)
    return lambda: lookup[(4 * size // 4, 2)](table, ids, out, 2048, ROWS=4, BLOCK=1024)


# A product of bf16 by tiles that fill the multiprocessors.
@triton.jit
def linear(x, w, out, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, G: tl.constexpr):
    pid = tl.program_id(0)
    rows, cols = tl.cdiv(m, M), tl.cdiv(n, N)
    group = pid // (G * cols)
    first = group * G
    size = min(rows - first, G)
    pm, pn = first + pid % (G * cols) % size, pid % (G * cols) // size
    rm, rn, rk = pm * M + tl.arange(0, M), pn * N + tl.arange(0, N), tl.arange(0, K)
    acc = tl.zeros((M, N), tl.float32)
    for i in range(0, k, K):
        a = tl.load(x + rm[:, None] * k + (i + rk)[None, :])
        b = tl.load(w + rn[None, :] * k + (i + rk)[:, None])
        acc = tl.dot(a, b, acc)
    tl.store(out + rm[:, None] * n + rn[None, :], acc.to(tl.bfloat16))


def linears(size):
    m, n, k = size, size, size // 2
    x, w, out = (_ones(*s, dtype=torch.bfloat16) for s in ((m, k), (n, k), (m, n)))
    return lambda: linear[(m // 128 * (n // 128),)](
        x, w, out, m, n, k, M=128, N=128, K=64, G=8, num_warps=8, num_stages=4
    )


def _ones(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype, device=DEVICE)


def _halves(*shape):
    return _ones(*shape, dtype=torch.float16)


CASES = {
    "expert_products": expert_products,
    "norms_of_rows": norms_of_rows,
    "split_products": split_products,
    "recurrences": recurrences,
    "transpositions": transpositions,
    "causal_attention": causal_attention,
    "softmaxes": softmaxes,
    "dequantised": dequantised,
    "gates": gates,
    "bias_grads": bias_grads,
    "momenta": momenta,
    "rotations": rotations,
    "lookups": lookups,
    "linears": linears,
}
