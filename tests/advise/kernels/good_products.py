"""Kernels without a cause worth a remark: matrix products and attention."""

import torch
import triton
import triton.language as tl

DEVICE = "cuda"


@triton.jit
def matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
           GROUP: tl.constexpr):  # fmt: skip
    pid = tl.program_id(0)
    rows, cols = tl.cdiv(m, BM), tl.cdiv(n, BN)
    group = pid // (GROUP * cols)
    first = group * GROUP
    size = min(rows - first, GROUP)
    rm = (first + pid % (GROUP * cols) % size) * BM + tl.arange(0, BM)
    rn = pid % (GROUP * cols) // size * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a + (rm % m)[:, None] * k + rk[None, :]
    pb = b + rk[:, None] * n + (rn % n)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        x = tl.load(pa, mask=rk[None, :] < k - start, other=0.0)
        y = tl.load(pb, mask=rk[:, None] < k - start, other=0.0)
        acc = tl.dot(x, y, acc)
        pa += BK
        pb += BK * n
    inside = (rm[:, None] < m) & (rn[None, :] < n)
    tl.store(c + rm[:, None] * n + rn[None, :], acc.to(c.dtype.element_ty), mask=inside)


@triton.jit
def batched(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    batch = tl.program_id(2)
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a + batch * m * k + rm[:, None] * k + rk[None, :]
    pb = b + batch * k * n + rk[:, None] * n + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, k, BK):
        acc = tl.dot(tl.load(pa), tl.load(pb), acc)
        pa += BK
        pb += BK * n
    tl.store(c + batch * m * n + rm[:, None] * n + rn[None, :], acc.to(tl.float16))


@triton.jit
def attention(q, k, v, out, tokens, scale, BQ: tl.constexpr, BK: tl.constexpr, D: tl.constexpr,
              CAUSAL: tl.constexpr):  # fmt: skip
    block = tl.program_id(0)
    base = tl.program_id(1) * tokens * D
    rq = block * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    x = tl.load(q + base + rq[:, None] * D + d[None, :])
    top = tl.full((BQ,), -float("inf"), tl.float32)
    total = tl.zeros((BQ,), tl.float32)
    acc = tl.zeros((BQ, D), tl.float32)
    end = (block + 1) * BQ if CAUSAL else tokens
    for first in range(0, end, BK):
        rk = first + tl.arange(0, BK)
        s = tl.dot(x, tl.load(k + base + rk[None, :] * D + d[:, None])) * scale
        if CAUSAL:
            s = tl.where(rq[:, None] >= rk[None, :], s, -float("inf"))
        new = tl.maximum(top, tl.max(s, axis=1))
        p = tl.math.exp2(s - new[:, None])
        shrink = tl.math.exp2(top - new)
        total = total * shrink + tl.sum(p, axis=1)
        values = tl.load(v + base + rk[:, None] * D + d[None, :])
        acc = tl.dot(p.to(tl.float16), values, acc * shrink[:, None])
        top = new
    y = acc / total[:, None]
    tl.store(out + base + rq[:, None] * D + d[None, :], y.to(tl.float16))


def _halves(*shape):
    return torch.ones(shape, dtype=torch.float16, device=DEVICE)


def _matmul(dtype, tile, warps, stages, out=torch.float16):
    def case(size):
        m = n = k = 2 * size
        bm, bn, bk = tile
        a = torch.ones((m, k), dtype=dtype, device=DEVICE)
        b = torch.ones((k, n), dtype=dtype, device=DEVICE)
        c = torch.empty((m, n), dtype=out, device=DEVICE)
        grid = (triton.cdiv(m, bm) * triton.cdiv(n, bn),)
        return lambda: matmul[grid](
            a, b, c, m, n, k, BM=bm, BN=bn, BK=bk, GROUP=8, num_warps=warps, num_stages=stages
        )

    return case


def batches(size):
    a, b, c = (_halves(16, 256, 256) for _ in range(3))
    grid = (2, 2, 16)
    return lambda: batched[grid](
        a, b, c, 256, 256, 256, BM=128, BN=128, BK=64, num_warps=8, num_stages=3
    )


def _attention(causal):
    def case(size):
        q, k, v, out = (_halves(8, size, 64) for _ in range(4))
        return lambda: attention[(size // 128, 8)](
            q, k, v, out, size, 0.18, BQ=128, BK=64, D=64, CAUSAL=causal, num_warps=8, num_stages=3
        )

    return case


CASES = {
    "matmul 128x256": _matmul(torch.float16, (128, 256, 64), 8, 3),
    "matmul 128x128": _matmul(torch.float16, (128, 128, 64), 8, 4),
    "matmul tf32": _matmul(torch.float32, (128, 128, 32), 8, 3, torch.float32),
    "batched": batches,
    "attention": _attention(False),
    "attention causal": _attention(True),
}

if __name__ == "__main__":
    for case in CASES.values():
        case(512)()
