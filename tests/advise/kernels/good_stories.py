"""Kernels as libraries have them, without a cause worth a remark; 4096 is a real size."""

import torch
import triton
import triton.language as tl

DEVICE = "cuda"


@triton.jit
def adamw(p, g, m, v, n, lr, b1, b2, eps, decay, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    w, d = tl.load(p + i, mask=inside), tl.load(g + i, mask=inside)
    first = b1 * tl.load(m + i, mask=inside) + (1 - b1) * d
    second = b2 * tl.load(v + i, mask=inside) + (1 - b2) * d * d
    tl.store(m + i, first, mask=inside)
    tl.store(v + i, second, mask=inside)
    w = w - lr * (first / (tl.sqrt(second) + eps) + decay * w)
    tl.store(p + i, w, mask=inside)


@triton.jit
def rope(x, cos, sin, out, heads, D: tl.constexpr, HEADS: tl.constexpr):
    t = tl.program_id(0)
    d, h = tl.arange(0, D), tl.arange(0, HEADS)
    c, s = tl.load(cos + t * D + d), tl.load(sin + t * D + d)
    at = (t * heads + h[:, None]) * 2 * D + d[None, :]
    a, b = tl.load(x + at).to(tl.float32), tl.load(x + at + D).to(tl.float32)
    tl.store(out + at, (a * c[None, :] - b * s[None, :]).to(tl.float16))
    tl.store(out + at + D, (a * s[None, :] + b * c[None, :]).to(tl.float16))


@triton.jit
def embedding(table, index, out, D: tl.constexpr):
    token = tl.program_id(0)
    row = tl.load(index + token).to(tl.int64)
    d = tl.arange(0, D)
    tl.store(out + token.to(tl.int64) * D + d, tl.load(table + row * D + d))


@triton.jit
def store_kv(k, v, k_cache, v_cache, slots, D: tl.constexpr):
    token = tl.program_id(0)
    slot = tl.load(slots + token).to(tl.int64)
    d = tl.arange(0, D)
    tl.store(k_cache + slot * D + d, tl.load(k + token * D + d))
    tl.store(v_cache + slot * D + d, tl.load(v + token * D + d))


@triton.jit
def add_rms_norm(x, residual, w, out, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    inside = c < cols
    h = tl.load(x + row * cols + c, mask=inside, other=0.0).to(tl.float32)
    h += tl.load(residual + row * cols + c, mask=inside, other=0.0).to(tl.float32)
    tl.store(residual + row * cols + c, h.to(tl.float16), mask=inside)
    scale = tl.rsqrt(tl.sum(h * h) / cols + eps)
    g = tl.load(w + c, mask=inside)
    tl.store(out + row * cols + c, (h * scale).to(tl.float16) * g, mask=inside)


@triton.jit
def layer_norm_grad(dy, x, w, mean, rstd, dx, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    inside = c < cols
    v = tl.load(x + row * cols + c, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(dy + row * cols + c, mask=inside, other=0.0).to(tl.float32)
    g *= tl.load(w + c, mask=inside, other=0.0).to(tl.float32)
    r = tl.load(rstd + row)
    h = (v - tl.load(mean + row)) * r
    a, b = tl.sum(h * g) / cols, tl.sum(g) / cols
    tl.store(dx + row * cols + c, ((g - (h * a + b)) * r).to(tl.float16), mask=inside)


@triton.jit
def quantise_tokens(x, out, scale, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c, mask=c < cols, other=0.0).to(tl.float32)
    s = tl.max(tl.abs(v)) / 127
    tl.store(scale + row, s)
    tl.store(out + row * cols + c, (v / s).to(tl.int8), mask=c < cols)


@triton.jit
def token_loss(x, target, loss, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    top, total = -float("inf"), 0.0
    for first in range(0, cols, BLOCK):
        c = first + tl.arange(0, BLOCK)
        v = tl.load(x + row * cols + c, mask=c < cols, other=-float("inf")).to(tl.float32)
        new = tl.maximum(top, tl.max(v))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(v - new))
        top = new
    picked = tl.load(x + row * cols + tl.load(target + row)).to(tl.float32)
    tl.store(loss + row, top + tl.log(total) - picked)


@triton.jit
def _linear(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def chunk_scan(x, a, out, cols, T: tl.constexpr, C: tl.constexpr):
    t, c = tl.arange(0, T), tl.program_id(0) * C + tl.arange(0, C)
    at = (tl.program_id(1) * T + t[:, None]) * cols + c[None, :]
    rate = tl.load(a + at)
    _, h = tl.associative_scan((rate, tl.load(x + at)), 0, _linear)
    tl.store(out + at, h)


@triton.jit
def matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
           GROUP: tl.constexpr):  # fmt: skip
    pid = tl.program_id(0)
    rows, cols = tl.cdiv(m, BM), tl.cdiv(n, BN)
    first = pid // (GROUP * cols) * GROUP
    size = min(rows - first, GROUP)
    rm = (first + pid % (GROUP * cols) % size) * BM + tl.arange(0, BM)
    rn = pid % (GROUP * cols) // size * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * k + rk[None, :]
    pb = b + rk[:, None] * n + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, k, BK):
        acc = tl.dot(tl.load(pa), tl.load(pb), acc)
        pa += BK
        pb += BK * n
    tl.store(c + rm[:, None] * n + rn[None, :], acc.to(tl.float16))


@triton.jit
def attention(q, k, v, out, tokens, scale, BQ: tl.constexpr, BK: tl.constexpr, D: tl.constexpr):
    base = tl.program_id(1) * tokens * D
    rq, d = tl.program_id(0) * BQ + tl.arange(0, BQ), tl.arange(0, D)
    x = tl.load(q + base + rq[:, None] * D + d[None, :])
    top = tl.full((BQ,), -float("inf"), tl.float32)
    total = tl.zeros((BQ,), tl.float32)
    acc = tl.zeros((BQ, D), tl.float32)
    for first in range(0, (tl.program_id(0) + 1) * BQ, BK):
        rk = first + tl.arange(0, BK)
        s = tl.dot(x, tl.load(k + base + rk[None, :] * D + d[:, None])) * scale
        s = tl.where(rq[:, None] >= rk[None, :], s, -float("inf"))
        new = tl.maximum(top, tl.max(s, axis=1))
        p = tl.math.exp2(s - new[:, None])
        shrink = tl.math.exp2(top - new)
        total = total * shrink + tl.sum(p, axis=1)
        acc = acc * shrink[:, None]
        acc = tl.dot(p.to(tl.float16), tl.load(v + base + rk[:, None] * D + d[None, :]), acc)
        top = new
    tl.store(out + base + rq[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16))


@triton.jit
def partial_sums(dy, x, out, rows, cols, PER: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    acc = tl.zeros((BR, BC), tl.float32)
    for first in range(tl.program_id(1) * PER, (tl.program_id(1) + 1) * PER, BR):
        at = (first + tl.arange(0, BR))[:, None] * cols + c[None, :]
        acc += tl.load(dy + at).to(tl.float32) * tl.load(x + at).to(tl.float32)
    tl.store(out + tl.program_id(1) * cols + c, tl.sum(acc, axis=0))


def _ones(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype, device=DEVICE)


def _halves(*shape):
    return _ones(*shape, dtype=torch.float16)


def steps(size):
    n = size * size // 2
    p, g, m, v = (_ones(n) for _ in range(4))
    grid = (triton.cdiv(n, 1024),)
    return lambda: adamw[grid](p, g, m, v, n, 1e-3, 0.9, 0.99, 1e-8, 0.1, BLOCK=1024)


def ropes(size):
    x, out = _halves(size, 32, 128), _halves(size, 32, 128)
    cos, sin = _ones(size, 64), _ones(size, 64)
    return lambda: rope[(size,)](x, cos, sin, out, 32, D=64, HEADS=32, num_warps=4)


def embeddings(size):
    table, out = _halves(8 * size, 4096), _halves(size, 4096)
    index = torch.randint(0, 8 * size, (size,), device=DEVICE)
    return lambda: embedding[(size,)](table, index, out, D=4096, num_warps=8)


def stored(size):
    k, v = _halves(size, 1024), _halves(size, 1024)
    k_cache, v_cache = _halves(2 * size, 1024), _halves(2 * size, 1024)
    slots = torch.randperm(2 * size, device=DEVICE)[:size]
    return lambda: store_kv[(size,)](k, v, k_cache, v_cache, slots, D=1024)


def norms(size):
    x, residual, out = (_halves(size, 4096) for _ in range(3))
    w = _halves(4096)
    return lambda: add_rms_norm[(size,)](x, residual, w, out, 4096, 1e-5, BLOCK=4096, num_warps=8)


def norm_grads(size):
    dy, x, dx = (_halves(size, 2048) for _ in range(3))
    w, mean, rstd = _halves(2048), _ones(size), _ones(size)
    return lambda: layer_norm_grad[(size,)](dy, x, w, mean, rstd, dx, 2048, BLOCK=2048, num_warps=8)


def quantised(size):
    x, out = _halves(size, 4096), _ones(size, 4096, dtype=torch.int8)
    scale = _ones(size)
    return lambda: quantise_tokens[(size,)](x, out, scale, 4096, BLOCK=4096, num_warps=8)


def losses(size):
    rows = max(264, size // 4)
    x, loss = _halves(rows, 32000), _ones(rows)
    target = torch.zeros(rows, dtype=torch.int64, device=DEVICE)
    return lambda: token_loss[(rows,)](x, target, loss, 32000, BLOCK=4096, num_warps=8)


def scans(size):
    x, a = _ones(size, size), _ones(size, size)
    out = torch.empty_like(x)
    grid = (size // 32, size // 64)
    return lambda: chunk_scan[grid](x, a, out, size, T=64, C=32, num_warps=4)


def products(size):
    n = max(512, size // 2)
    a, b, c = (_halves(n, n) for _ in range(3))
    grid = ((n // 128) * (n // 128),)
    return lambda: matmul[grid](
        a, b, c, n, n, n, BM=128, BN=128, BK=64, GROUP=8, num_warps=8, num_stages=4
    )


def attentions(size):
    tokens = max(512, size // 4)
    q, k, v, out = (_halves(32, tokens, 64) for _ in range(4))
    return lambda: attention[(tokens // 128, 32)](
        q, k, v, out, tokens, 0.18, BQ=128, BK=64, D=64, num_warps=8, num_stages=3
    )


def sums(size):
    rows, cols = 4 * size, 1024
    dy, x, out = _halves(rows, cols), _halves(rows, cols), _ones(rows // 128, cols)
    return lambda: partial_sums[(cols // 128, rows // 128)](
        dy, x, out, rows, cols, PER=128, BR=32, BC=128
    )


# Loops over a row, of which a test's has a single block: larger ones have to be read again.
@triton.jit
def log_softmax(x, out, cols, BLOCK: tl.constexpr):
    row, top, total = tl.program_id(0), -float("inf"), 0.0
    for first in range(0, cols, BLOCK):
        c = first + tl.arange(0, BLOCK)
        v = tl.load(x + row * cols + c, mask=c < cols, other=-float("inf"))
        new = tl.maximum(top, tl.max(v))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(v - new))
        top = new
    for first in range(0, cols, BLOCK):
        c = first + tl.arange(0, BLOCK)
        v = tl.load(x + row * cols + c, mask=c < cols, other=0.0)
        tl.store(out + row * cols + c, v - top - tl.log(total), mask=c < cols)


def log_softmaxes(size):
    rows, cols = (2048, 65536) if size > 1024 else (32, 1024)
    x, out = _ones(rows, cols), _ones(rows, cols)
    block, warps = (8192, 16) if size > 1024 else (1024, 4)
    return lambda: log_softmax[(rows,)](x, out, cols, BLOCK=block, num_warps=warps)


# Rows that fill three fifths of a block.
@triton.jit
def gelu(x, out, cols, BLOCK: tl.constexpr):
    row, c = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c, mask=c < cols, other=0.0).to(tl.float32)
    y = 0.5 * v * (1 + tl.erf(v * 0.7071067811865476))
    tl.store(out + row * cols + c, y.to(tl.float16), mask=c < cols)


def gelus(size):
    rows, cols, block = (size, 4096, 4096) if size > 1024 else (8, 640, 1024)
    x, out = _halves(rows, cols), _halves(rows, cols)
    return lambda: gelu[(rows,)](x, out, cols, BLOCK=block)


# A program finds its token and head by a division, once.
@triton.jit
def bias_of_heads(x, bias, out, tokens, heads, D: tl.constexpr):
    head, token = tl.program_id(0) % heads, tl.program_id(0) // heads
    d = tl.arange(0, D)
    v = tl.load(x + (token * heads + head) * D + d) + tl.load(bias + head * D + d)
    tl.store(out + (head * tokens + token) * D + d, v)


def head_biases(size):
    tokens, heads = (size, 32) if size > 1024 else (32, 4)
    x, out = _ones(tokens, heads, 128), _ones(heads, tokens, 128)
    bias = _ones(heads, 128)
    return lambda: bias_of_heads[(tokens * heads,)](x, bias, out, tokens, heads, D=128)


# Heads of 256 whose two warpgroups share what is loaded: one computes while the other multiplies.
def wide_attentions(size):
    tokens, heads = (size // 4, 33) if size > 1024 else (256, 2)
    q, k, v, out = (_halves(heads, tokens, 256) for _ in range(4))
    return lambda: attention[(tokens // 128, heads)](
        q, k, v, out, tokens, 0.09, BQ=128, BK=32, D=256, num_warps=8, num_stages=3
    )


CASES = {
    "gelu": gelus,
    "bias_of_heads": head_biases,
    "wide_attention": wide_attentions,
    "log_softmax": log_softmaxes,
    "adamw": steps,
    "rope": ropes,
    "embedding": embeddings,
    "store_kv": stored,
    "add_rms_norm": norms,
    "layer_norm_grad": norm_grads,
    "quantise_tokens": quantised,
    "token_loss": losses,
    "chunk_scan": scans,
    "matmul": products,
    "attention": attentions,
    "partial_sums": sums,
}

if __name__ == "__main__":
    for case in CASES.values():
        case(256)()
