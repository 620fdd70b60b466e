"""Tiles that do not fit their threads, the cache or `tl.dot`.

Written before the rules were looked at; rules were added or fixed for them since.
"""

import torch
import triton
import triton.language as tl

DEVICE = "cuda"


@triton.jit
def largest_of_rows(x, out, rows, N: tl.constexpr, ROWS: tl.constexpr):  # <- small-tiles
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    v = tl.load(x + r[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(out + r, tl.max(v, axis=1))


@triton.jit
def softmax(x, out, N: tl.constexpr):  # <- small-tiles
    at = tl.program_id(0) * N + tl.arange(0, N)
    v = tl.load(x + at)
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + at, e / tl.sum(e, axis=0))


@triton.jit
def matmul(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, k, BK):
        x = tl.load(a + rm[:, None] * k + (first + rk)[None, :])
        y = tl.load(b + (first + rk)[:, None] * n + rn[None, :])
        acc = tl.dot(x, y, acc)  # <- small-product-tiles
    tl.store(c + rm[:, None] * n + rn[None, :], acc.to(tl.float16))


@triton.jit
def scores_by_hand(q, k, s, n, D: tl.constexpr, B: tl.constexpr, BD: tl.constexpr):
    rm = tl.program_id(0) * B + tl.arange(0, B)
    rn = tl.program_id(1) * B + tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for first in range(0, D, BD):
        d = first + tl.arange(0, BD)
        x = tl.load(q + rm[:, None] * D + d[None, :])
        y = tl.load(k + rn[:, None] * D + d[None, :])
        acc += tl.sum(x[:, None, :] * y[None, :, :], axis=2)  # <- no-tensor-cores
    tl.store(s + rm[:, None] * n + rn[None, :], acc)


@triton.jit
def scores(q, k, s, n, D: tl.constexpr, B: tl.constexpr):
    rm = tl.program_id(0) * B + tl.arange(0, B)
    rn = tl.program_id(1) * B + tl.arange(0, B)
    d = tl.arange(0, D)
    x = tl.load(q + rm[:, None] * D + d[None, :])
    y = tl.load(k + rn[None, :] * D + d[:, None])
    tl.store(s + rm[:, None] * n + rn[None, :], tl.dot(x, y))


@triton.jit
def rms_norm(x, w, out, N: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, N)
    v = tl.load(x + row * N + c)
    y = v * tl.load(w + c) / tl.sqrt(tl.sum(v * v, axis=0) / N + 1e-6)
    tl.store(out + row * N + c, y / tl.max(tl.abs(y), axis=0))  # <- spill


@triton.jit
def permute(x, out, d1, d2, d3, d4, s0, s1, s2, s3, s4, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    i4 = i % d4
    rest = i // d4
    i3 = rest % d3
    rest = rest // d3  # <- integer-division
    i2 = rest % d2
    rest = rest // d2
    at = rest // d1 * s0 + rest % d1 * s1 + i2 * s2 + i3 * s3 + i4 * s4
    tl.store(out + i, tl.load(x + at))


@triton.jit
def permute_known(
    x,
    out,
    d1: tl.constexpr,
    d2: tl.constexpr,
    d3: tl.constexpr,
    d4: tl.constexpr,
    s0,
    s1,
    s2,
    s3,
    s4,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    rest = i // d4
    i3 = rest % d3
    rest = rest // d3
    i2 = rest % d2
    rest = rest // d2
    at = rest // d1 * s0 + rest % d1 * s1 + i2 * s2 + i3 * s3 + i % d4 * s4
    tl.store(out + i, tl.load(x + at))


@triton.jit
def deal(x, out, BLOCK: tl.constexpr, HANDS: tl.constexpr, AT_ONCE: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * BLOCK + i)
    if AT_ONCE:
        v = tl.reshape(tl.trans(tl.reshape(v, (BLOCK // HANDS, HANDS))), (BLOCK,))
    else:
        each = BLOCK // HANDS
        v = tl.gather(v, i % each * HANDS + i // each, 0)  # <- bank-conflict
    tl.store(out + tl.program_id(0) * BLOCK + i, v)


def few_elements(form, size):
    rows = size * size // 8
    x, out = torch.ones((rows, 8), device=DEVICE), torch.empty(rows, device=DEVICE)
    many = 1 if form == "planted" else 64
    return lambda: largest_of_rows[(rows // many,)](x, out, rows, N=8, ROWS=many)


def many_warps(form, size):
    x = torch.ones((16 * size, 128), device=DEVICE)
    out = torch.empty_like(x)
    return lambda: softmax[(16 * size,)](x, out, N=128, num_warps=32 if form == "planted" else 4)


def small_products(form, size):
    n = 4 * size
    a = torch.ones((n, n // 4), dtype=torch.float16, device=DEVICE)
    b = torch.ones((n // 4, n), dtype=torch.float16, device=DEVICE)
    c = torch.empty((n, n), dtype=torch.float16, device=DEVICE)
    tile = {"BM": 32, "BN": 128, "BK": 64, "num_warps": 4, "num_stages": 4}
    if form != "planted":
        tile = {**tile, "BM": 128}
    return lambda: matmul[(n // tile["BM"], n // 128)](a, b, c, n, n // 4, **tile)


def products_by_hand(form, size):
    n = size
    q, k = torch.ones((n, 128), device=DEVICE), torch.ones((n, 128), device=DEVICE)
    s, grid = torch.empty((n, n), device=DEVICE), (n // 32, n // 32)
    if form == "planted":
        return lambda: scores_by_hand[grid](q, k, s, n, D=128, B=32, BD=8)
    return lambda: scores[grid](q, k, s, n, D=128, B=32)


def rows_of_a_warp(form, size):
    x, w = torch.ones((2 * size, 16384), device=DEVICE), torch.ones(16384, device=DEVICE)
    out = torch.empty_like(x)
    warps = 1 if form == "planted" else 16
    return lambda: rms_norm[(2 * size,)](x, w, out, N=16384, num_warps=warps)


def permuted(form, size):
    x = torch.ones((6, size // 16, 12, 20, 96), device=DEVICE).permute(2, 0, 3, 1, 4)
    out = torch.empty(x.shape, device=DEVICE)
    grid = (x.numel() // 512,)
    kernel = permute if form == "planted" else permute_known
    return lambda: kernel[grid](x, out, *x.shape[1:], *x.stride(), BLOCK=512)


def dealt(form, size):
    x = torch.ones(4 * size * size, dtype=torch.float16, device=DEVICE)
    out = torch.empty_like(x)
    at_once = form != "planted"
    return lambda: deal[(x.numel() // 2048,)](x, out, BLOCK=2048, HANDS=64, AT_ONCE=at_once)


CASES = {
    "few_elements": few_elements,
    "many_warps": many_warps,
    "small_products": small_products,
    "scores_by_hand": products_by_hand,
    "rms_norm_of_a_warp": rows_of_a_warp,
    "permute": permuted,
    "deal": dealt,
}

if __name__ == "__main__":
    for case in CASES.values():
        case("planted", 512)()
