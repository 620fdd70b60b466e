"""Slow kernels as people told of them, one cause each; 4096 is a real size, 256 a laptop's.

Sources: public issues and pull requests of Triton, vLLM, SGLang, Liger, FLA, Mamba, xFormers and
PyTorch that name a cause and what removing it gained. The kernels are our own.
"""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

DEVICE = "cuda"


# Paged caches: each page's number is loaded in the round that needs the page.
@triton.jit
def paged_scores(q, cache, table, out, pages, D: tl.constexpr, PAGE: tl.constexpr):
    seq, head = tl.program_id(0), tl.program_id(1)
    d, t = tl.arange(0, D), tl.arange(0, PAGE)
    x = tl.load(q + (seq * tl.num_programs(1) + head) * D + d).to(tl.float32)
    top = tl.full((PAGE,), -float("inf"), tl.float32)
    for i in range(pages):
        page = tl.load(table + seq * pages + i)
        k = tl.load(cache + page * PAGE * D + t[:, None] * D + d[None, :])  # <- dependent-loads
        top = tl.maximum(top, tl.sum(k.to(tl.float32) * x[None, :], axis=1))
    tl.store(out + seq * tl.num_programs(1) + head, tl.max(top))


# A recurrence over time, one row a round.
@triton.jit
def decay_scan(x, a, out, steps, cols, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    rate = tl.load(a + c)
    h = tl.zeros((BLOCK,), tl.float32)
    for t in range(steps):
        h = rate * h + tl.load(x + t * cols + c)  # <- serial-loop
        tl.store(out + t * cols + c, h)


# A running sum of rows, one row a round.
@triton.jit
def running_sum(x, out, rows, cols, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for r in range(rows):
        total += tl.load(x + r * cols + c).to(tl.float32)  # <- serial-loop
        tl.store(out + r * cols + c, total.to(tl.float16))


# The statistics of a row are computed again for each part of it.
@triton.jit
def norm_by_parts(x, out, cols, BLOCK: tl.constexpr, PART: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    for first in range(0, cols, PART):
        p = first + tl.arange(0, PART)
        whole = tl.load(x + row * cols + c).to(tl.float32)  # <- redundant-load
        scale = tl.rsqrt(tl.sum(whole * whole) / cols + 1e-6)
        part = tl.load(x + row * cols + p).to(tl.float32)
        tl.store(out + row * cols + p, (part * scale).to(tl.float16))


# Angles of a rotary embedding are computed again for each head.
@triton.jit
def rotate_heads(x, freq, out, heads, D: tl.constexpr, ROWS: tl.constexpr):
    t = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, D)
    for h in range(heads):
        angle = t[:, None].to(tl.float32) * tl.load(freq + d)[None, :]
        c, s = tl.cos(angle), tl.sin(angle)  # <- repeated-work
        at = (t[:, None] * heads + h) * 2 * D + d[None, :]
        a, b = tl.load(x + at), tl.load(x + at + D)
        tl.store(out + at, (a * c - b * s).to(tl.float16))
        tl.store(out + at + D, (a * s + b * c).to(tl.float16))


# Hashes of n-grams of tokens, in the 64 bits that indices have in torch.
@triton.jit
def hash_grams(tokens, out, n, GRAM: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(tokens + i)
    h = v
    for j in range(GRAM):
        h = (h * 31 + v * (j + 7)) ^ (h >> 13)  # <- int64-arithmetic
    tl.store(out + i, h.to(tl.int32))


# Operands are cast up before the product.
@triton.jit
def matmul_in_float(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, BK):
        x = tl.load(a + rm[:, None] * k + (first + rk)[None, :]).to(tl.float32)
        y = tl.load(b + (first + rk)[:, None] * n + rn[None, :]).to(tl.float32)
        acc += tl.dot(x, y)  # <- upcast-operands
    tl.store(c + rm[:, None] * n + rn[None, :], acc.to(tl.float16))


# Outer products, added up.
@triton.jit
def gram_by_columns(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(k):
        x = tl.load(a + i * n + rm).to(tl.float32)
        y = tl.load(b + i * n + rn).to(tl.float32)
        acc += x[:, None] * y[None, :]  # <- no-tensor-cores
    tl.store(c + rm[:, None] * n + rn[None, :], acc)


# Scores by broadcasting, cast after it.
@triton.jit
def scores_of_tiles(q, k, out, n, D: tl.constexpr, B: tl.constexpr, BD: tl.constexpr):
    rm = tl.program_id(0) * B + tl.arange(0, B)
    rn = tl.program_id(1) * B + tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for first in range(0, D, BD):
        d = first + tl.arange(0, BD)
        x = tl.load(q + rm[:, None] * D + d[None, :])
        y = tl.load(k + rn[:, None] * D + d[None, :])
        acc += tl.sum((x[:, None, :] * y[None, :, :]).to(tl.float32), axis=2)  # <- no-tensor-cores
    tl.store(out + rm[:, None] * n + rn[None, :], acc)


# A long row by few warps, whose loads nothing runs ahead of.
@triton.jit
def squared_norm(x, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for first in range(0, cols, BLOCK):
        v = tl.load(x + row * cols + first + tl.arange(0, BLOCK))  # <- not-pipelined
        total += tl.sum(v * v)
    tl.store(out + row, total)


# A product of each tile is reduced across warps in each round, and weighed.
@triton.jit
def weighed_norm(x, weight, out, cols, BR: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    total = tl.zeros((BR,), tl.float32)
    for first in range(0, cols, BLOCK):
        c = first + tl.arange(0, BLOCK)
        v = tl.load(x + c[:, None] * 1024 + r[None, :])
        w = tl.load(weight + c)
        total += tl.sum(v * v * w[:, None], axis=0)  # <- reduction-in-loop
    tl.store(out + r, total)


# A row of a vocabulary as one tile, several times over.
@triton.jit
def divergence(x, t, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    a = tl.load(x + row * cols + c, mask=c < cols, other=-float("inf")).to(tl.float32)
    b = tl.load(t + row * cols + c, mask=c < cols, other=-float("inf")).to(tl.float32)
    pa, pb = tl.exp(a - tl.max(a)), tl.exp(b - tl.max(b))
    pa, pb = pa / tl.sum(pa), pb / tl.sum(pb)
    mid = 0.5 * (pa + pb)
    e = pa * tl.log(pa / mid) + pb * tl.log(pb / mid)  # <- spill
    e = tl.where(c < cols, e, 0.0)
    tl.store(out + row * cols + c, e / (1.0 + tl.sum(e)) * pa, mask=c < cols)


# Structures of eight numbers, of which one is read.
@triton.jit
def first_of_eight(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i * 8, mask=i < n)  # <- uncoalesced
    tl.store(out + i, v * 2, mask=i < n)


# Rows are written to columns.
@triton.jit
def to_columns(x, out, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c)
    tl.store(out + c * rows + row, tl.exp(v))  # <- uncoalesced


# A gradient of weights, by as many programs as there are blocks of columns.
@triton.jit
def weight_gradient(dy, x, out, rows, cols, BR: tl.constexpr, BC: tl.constexpr):  # <- small-grid
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    acc = tl.zeros((BR, BC), tl.float32)
    for first in range(0, rows, BR):
        at = (first + tl.arange(0, BR))[:, None] * cols + c[None, :]
        acc += tl.load(dy + at).to(tl.float32) * tl.load(x + at).to(tl.float32)
    tl.store(out + c, tl.sum(acc, axis=0))


# A bias gradient by an atomic for each element.
@triton.jit
def bias_gradient(dy, out, rows, cols, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    v = tl.load(dy + r[:, None] * cols + c[None, :])
    tl.atomic_add(out + c[None, :] + 0 * r[:, None], v)  # <- atomic-contention


# Sequences of all lengths in blocks of the longest.
@triton.jit
def mean_pool(x, lengths, out, longest, D: tl.constexpr, BLOCK: tl.constexpr):
    seq = tl.program_id(0)
    d, t = tl.arange(0, D), tl.arange(0, BLOCK)
    n = tl.load(lengths + seq)
    at = (seq * longest + t[:, None]) * D + d[None, :]
    v = tl.load(x + at, mask=t[:, None] < n, other=0.0)  # <- masked-off
    e = tl.exp(v) * tl.log(1 + tl.abs(v))
    tl.store(out + seq * D + d, tl.sum(e, axis=0) / n)


# Channel and place of each element, by division.
@triton.jit
def scale_channels(x, scale, place, out, hw, channels, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    w = tl.load(scale + i // hw % channels)  # <- integer-division
    p = tl.load(place + i % hw)
    tl.store(out + i, tl.load(x + i) * w + p)


# A constant of numpy's makes everything fp64.
@triton.jit
def gelu_in_double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n).to(tl.float64)
    y = 0.5 * v * (1 + tl.erf(v * 0.7071067811865476))  # <- fp64
    tl.store(out + i, y.to(tl.float32), mask=i < n)


# pow where a product would do.
@triton.jit
def cubes(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    y = libdevice.pow(v, 3.0) + libdevice.pow(v, 2.0)  # <- slow-function
    tl.store(out + i, y, mask=i < n)


# Loads of a product wait, each round.
@triton.jit
def matmul_plain(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, BK):
        x = tl.load(a + rm[:, None] * k + (first + rk)[None, :])  # <- not-pipelined
        y = tl.load(b + (first + rk)[:, None] * n + rn[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rm[:, None] * n + rn[None, :], acc.to(tl.float16))


# A row of 64 for eight warps.
@triton.jit
def short_softmax(x, out, N: tl.constexpr):  # <- small-tiles
    at = tl.program_id(0) * N + tl.arange(0, N)
    e = tl.exp(tl.load(x + at))
    tl.store(out + at, e / tl.sum(e))


def _ones(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype, device=DEVICE)


def _halves(*shape):
    return _ones(*shape, dtype=torch.float16)


def pages(form, size):
    seqs, heads, count = max(8, size // 64), 8, size // 16
    q, out = _halves(seqs, heads, 64), _ones(seqs, heads)
    cache = _halves(seqs * count, 16, 64)
    table = torch.randperm(seqs * count, device=DEVICE).to(torch.int32)
    return lambda: paged_scores[(seqs, heads)](
        q, cache, table, out, count, D=64, PAGE=16, num_warps=2
    )


def decays(form, size):
    steps, cols = max(512, size // 2), 2 * size
    x, a = _ones(steps, cols), torch.full((cols,), 0.9, device=DEVICE)
    out = torch.empty_like(x)
    return lambda: decay_scan[(cols // 128,)](x, a, out, steps, cols, BLOCK=128)


def running_sums(form, size):
    rows, cols = max(512, size // 2), 4 * size
    x = _halves(rows, cols)
    out = torch.empty_like(x)
    return lambda: running_sum[(cols // 256,)](x, out, rows, cols, BLOCK=256)


def norms_by_parts(form, size):
    x = _halves(max(132, size // 4), 4096)
    out = torch.empty_like(x)
    return lambda: norm_by_parts[(x.shape[0],)](x, out, 4096, BLOCK=4096, PART=256)


def rotations(form, size):
    x, freq = _halves(size, 16, 128), torch.full((64,), 0.1, device=DEVICE)
    out = torch.empty_like(x)
    return lambda: rotate_heads[(size // 16,)](x, freq, out, 16, D=64, ROWS=16)


def grams(form, size):
    n = size * size
    dtype = torch.int64 if form == "planted" else torch.int32
    tokens, out = _ones(n, dtype=dtype), torch.empty(n, dtype=torch.int32, device=DEVICE)
    return lambda: hash_grams[(n // 1024,)](tokens, out, n, GRAM=16, BLOCK=1024)


def _product(kernel, tile, **options):
    def case(form, size):
        n, k = max(256, size // 2), max(256, size // 2)
        bm, bn, bk = tile
        a, b, c = _halves(n, k), _halves(k, n), _halves(n, n)
        return lambda: kernel[(n // bm, n // bn)](a, b, c, n, k, BM=bm, BN=bn, BK=bk, **options)

    return case


def columns(form, size):
    n = max(256, size // 4)
    a, b, c = _halves(n, n), _halves(n, n), _ones(n, n)
    return lambda: gram_by_columns[(n // 64, n // 64)](a, b, c, n, n, BM=64, BN=64)


def broadcast_scores(form, size):
    n = max(256, size // 4)
    q, k, out = _halves(n, 128), _halves(n, 128), _ones(n, n)
    return lambda: scores_of_tiles[(n // 32, n // 32)](q, k, out, n, D=128, B=32, BD=16)


def squared_norms(form, size):
    rows, cols = 132, 64 * size
    x, out = _ones(rows, cols), _ones(rows)
    return lambda: squared_norm[(rows,)](x, out, cols, BLOCK=4096, num_warps=4)


def weighed_norms(form, size):
    x, weight, out = _ones(2 * size, 1024), _ones(2 * size), _ones(1024)
    return lambda: weighed_norm[(1024 // 8,)](
        x, weight, out, 2 * size, BR=8, BLOCK=128, num_warps=8
    )


def divergences(form, size):
    rows, cols = max(16, size // 8), 32000
    x, t = _halves(rows, cols), _halves(rows, cols)
    out = _ones(rows, cols)
    return lambda: divergence[(rows,)](x, t, out, cols, BLOCK=32768, num_warps=8)


def firsts(form, size):
    n = size * size // 2
    x, out = _ones(8 * n), _ones(n)
    return lambda: first_of_eight[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)


def turned(form, size):
    x, out = _ones(size, size), _ones(size, size)
    return lambda: to_columns[(size, size // 256)](x, out, size, size, BLOCK=256)


def weight_gradients(form, size):
    rows, cols = 8 * size, 1024
    dy, x, out = _halves(rows, cols), _halves(rows, cols), _ones(cols)
    return lambda: weight_gradient[(cols // 128,)](dy, x, out, rows, cols, BR=32, BC=128)


def bias_gradients(form, size):
    dy, out = _ones(size, size), torch.zeros(size, device=DEVICE)
    grid = (size // 32, size // 128)
    return lambda: bias_gradient[grid](dy, out, size, size, BR=32, BC=128)


def pooled(form, size):
    seqs = max(64, size // 8)
    x, out = _ones(seqs, 256, 64), _ones(seqs, 64)
    lengths = torch.full((seqs,), 32, dtype=torch.int32, device=DEVICE)
    return lambda: mean_pool[(seqs,)](x, lengths, out, 256, D=64, BLOCK=256)


def channels(form, size):
    n = size * size
    x, scale, place = _halves(n), _halves(96), _halves(56 * 57)
    out = torch.empty_like(x)
    return lambda: scale_channels[(n // 1024,)](x, scale, place, out, 56 * 57, 96, BLOCK=1024)


def gelus(form, size):
    x, out = _ones(size * size), _ones(size * size)
    return lambda: gelu_in_double[(size * size // 1024,)](x, out, size * size, BLOCK=1024)


def cubed(form, size):
    x, out = _ones(size * size), _ones(size * size)
    return lambda: cubes[(size * size // 1024,)](x, out, size * size, BLOCK=1024)


def short_rows(form, size):
    x, out = _ones(32 * size, 64), _ones(32 * size, 64)
    return lambda: short_softmax[(32 * size,)](x, out, N=64, num_warps=8)


CASES = {
    "pages": pages,
    "decays": decays,
    "running_sums": running_sums,
    "norms_by_parts": norms_by_parts,
    "rotations": rotations,
    "grams": grams,
    "upcasts": _product(matmul_in_float, (128, 128, 32), num_warps=8, num_stages=3),
    "outer_products": columns,
    "broadcast_scores": broadcast_scores,
    "squared_norms": squared_norms,
    "weighed_norms": weighed_norms,
    "divergences": divergences,
    "first_of_eight": firsts,
    "turned": turned,
    "weight_gradient": weight_gradients,
    "bias_gradient": bias_gradients,
    "pooled": pooled,
    "channels": channels,
    "gelu_in_double": gelus,
    "cubes": cubed,
    "plain_product": _product(matmul_plain, (128, 128, 64), num_warps=8, num_stages=1),
    "short_rows": short_rows,
}

if __name__ == "__main__":
    for case in CASES.values():
        case("planted", 256)()
