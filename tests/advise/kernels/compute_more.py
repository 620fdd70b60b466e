"""More products, loops and grids that cost what they need not, planted after the rules."""

import torch
import triton
import triton.language as tl

DEVICE = "cuda"


@triton.jit
def matmul_odd(a, b, c, n, k, stride_a, stride_b, BM: tl.constexpr, BN: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, 64)
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, 64):
        x = tl.load(a + rm[:, None] * stride_a + first + rk[None, :])  # <- not-pipelined
        y = tl.load(b + (first + rk[:, None]) * stride_b + rn[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rm[:, None] * n + rn[None, :], acc.to(tl.float16))


@triton.jit
def matmul_doubles(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, 32)
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, 32):
        x = tl.load(a + rm[:, None] * k + first + rk[None, :]).to(tl.float32)
        y = tl.load(b + (first + rk[:, None]) * n + rn[None, :]).to(tl.float32)
        acc = tl.dot(x, y, acc, input_precision="ieee")  # <- no-tensor-cores
    tl.store(c + rm[:, None] * n + rn[None, :], acc.to(tl.float16))


@triton.jit
def matmul_half_sums(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, 64)
    acc = tl.zeros((BM, BN), tl.float16)
    for first in range(0, k, 64):
        x = tl.load(a + rm[:, None] * k + first + rk[None, :])
        y = tl.load(b + (first + rk[:, None]) * n + rn[None, :])
        acc = tl.dot(x, y, acc, out_dtype=tl.float16)  # <- no-wgmma
    tl.store(c + rm[:, None] * n + rn[None, :], acc)


@triton.jit
def matmul_rows(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, 64)
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, 64):
        x = tl.load(a + rm[:, None] * k + first + rk[None, :])
        y = tl.load(b + (first + rk[:, None]) * n + rn[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rm[:, None] * n + rn[None, :], acc.to(tl.float16))


@triton.jit
def causal_scores(q, k, out, tokens, BQ: tl.constexpr, BK: tl.constexpr, D: tl.constexpr,
                  SKIP: tl.constexpr):  # fmt: skip
    rq = tl.program_id(0) * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    out += tl.program_id(1) * tokens
    x = tl.load(q + rq[:, None] * D + d[None, :])
    best = tl.full((BQ,), -float("inf"), tl.float32)
    end = (tl.program_id(0) + 1) * BQ if SKIP else tokens
    for first in range(0, end, BK):
        rk = first + tl.arange(0, BK)
        s = tl.dot(x, tl.load(k + rk[None, :] * D + d[:, None]))
        s = tl.where(rq[:, None] >= rk[None, :], s, -float("inf"))  # <- masked-off
        best = tl.maximum(best, tl.max(s, axis=1))
    tl.store(out + rq, best)


@triton.jit
def hash_long(x, out, modulus, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=1)
    for step in range(STEPS):
        v = (v * 31 + step) % modulus  # <- integer-division
    tl.store(out + i, v, mask=i < n)


@triton.jit
def mask_long(x, out, modulus: tl.constexpr, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=1)
    for step in range(STEPS):
        v = (v * 31 + step) & (modulus - 1)
    tl.store(out + i, v, mask=i < n)


@triton.jit
def row_dot(x, y, out, n, BLOCK: tl.constexpr):  # <- small-grid
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, BLOCK):
        i = first + tl.arange(0, BLOCK)
        row = tl.program_id(0) * n
        total += tl.load(x + row + i) * tl.load(y + row + i)
    tl.store(out + tl.program_id(0), tl.sum(total))


@triton.jit
def logistic(x, out, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):  # <- wave-quantisation
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    for _ in range(STEPS):
        v = 3.7 * v * (1.0 - v)
    tl.store(out + i, v, mask=i < n)


@triton.jit
def outer_sums(x, out, n, K: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, K)
    acc = tl.load(x + i)[:, None] + k[None, :]
    for _ in range(8):
        acc = acc * acc - tl.max(acc, axis=1)[:, None]  # <- spill
    tl.store(out + i, tl.sum(acc, axis=1))


@triton.jit
def scale_short_rows(x, scale, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + c, mask=c < cols, other=0.0)  # <- masked-off
    for _ in range(4):
        v = tl.exp(-v) * v + 1.0
    tl.store(out + row * cols + c, v, mask=c < cols)


def _half(rows, stride):
    return torch.ones(rows * stride, dtype=torch.float16, device=DEVICE)


def odd(form, size):
    n = k = size
    stride = k + 1 if form == "planted" else k + 16
    a, b, c = _half(n, stride), _half(k, stride), _half(n, n)
    grid = (n // 128, n // 128)
    return lambda: matmul_odd[grid](a, b, c, n, k, stride, stride, BM=128, BN=128, num_warps=8)


def _product(planted, better, tile, better_tile, warps=4):
    def case(form, size):
        kernel = planted if form == "planted" else better
        bm, bn = tile if form == "planted" else better_tile
        n = k = size
        a, b, c = _half(n, k), _half(k, n), _half(n, n)
        return lambda: kernel[(n // bm, n // bn)](a, b, c, n, k, BM=bm, BN=bn, num_warps=warps)

    return case


def causal(form, size):
    tokens = 2 * size
    q, k = _half(tokens, 64).view(-1, 64), _half(tokens, 64).view(-1, 64)
    heads = 16
    out = torch.empty(heads * tokens, device=DEVICE)
    skip = form != "planted"
    grid = (tokens // 64, heads)
    return lambda: causal_scores[grid](q, k, out, tokens, BQ=64, BK=64, D=64, SKIP=skip)


def hashes(form, size):
    n = size * size // 4
    x = torch.ones(n, dtype=torch.int64, device=DEVICE)
    out = torch.empty_like(x)
    kernel = hash_long if form == "planted" else mask_long
    return lambda: kernel[(triton.cdiv(n, 1024),)](x, out, 1 << 20, n, STEPS=16, BLOCK=1024)


def row_dots(form, size):
    total = 4 * size * 1024
    rows = 4 if form == "planted" else 1024
    x, y = torch.ones(total, device=DEVICE), torch.ones(total, device=DEVICE)
    out = torch.empty(rows, device=DEVICE)
    return lambda: row_dot[(rows,)](x, y, out, total // rows, BLOCK=1024)


def waves(form, size):
    programs = 133 if form == "planted" else 132
    n = 8192 * programs
    x, out = torch.full((n,), 0.3, device=DEVICE), torch.empty(n, device=DEVICE)
    return lambda: logistic[(programs,)](x, out, n, STEPS=256, BLOCK=8192, num_warps=16)


def outer(form, size):
    n = size * 16
    x, out = torch.full((n,), 0.5, device=DEVICE), torch.empty(n, device=DEVICE)
    block = 64 if form == "planted" else 4
    return lambda: outer_sums[(n // block,)](x, out, n, K=512, BLOCK=block, num_warps=2)


def short_rows(form, size):
    rows, cols = 16 * size, 70
    x = torch.ones((rows, cols), device=DEVICE)
    out = torch.empty((rows, cols), device=DEVICE)
    block = 1024 if form == "planted" else 128
    return lambda: scale_short_rows[(rows,)](x, x, out, cols, BLOCK=block)


CASES = {
    "matmul_odd": odd,
    "matmul_doubles": _product(matmul_doubles, matmul_rows, (64, 64), (128, 128)),
    "matmul_half_sums": _product(matmul_half_sums, matmul_rows, (128, 128), (128, 128), 8),
    "causal_scores": causal,
    "hash_long": hashes,
    "row_dot": row_dots,
    "logistic": waves,
    "outer_sums": outer,
    "scale_short_rows": short_rows,
}

if __name__ == "__main__":
    for case in CASES.values():
        case("planted", 512)()
