"""Arithmetic that is slower than it need be. `# <- kind` marks the line with the cause."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

DEVICE = "cuda"


@triton.jit
def matmul_ieee(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * k + rk[None, :]
    pb = b + rk[:, None] * n + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, k, BK):
        acc = tl.dot(tl.load(pa), tl.load(pb), acc, input_precision="ieee")  # <- no-tensor-cores
        pa += BK
        pb += BK * n
    tl.store(c + rm[:, None] * n + rn[None, :], acc)


@triton.jit
def matmul_tf32(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * k + rk[None, :]
    pb = b + rk[:, None] * n + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, k, BK):
        acc = tl.dot(tl.load(pa), tl.load(pb), acc)
        pa += BK
        pb += BK * n
    tl.store(c + rm[:, None] * n + rn[None, :], acc)


@triton.jit
def matmul_half(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * k + rk[None, :]
    pb = b + rk[:, None] * n + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, k, BK):
        acc = tl.dot(tl.load(pa), tl.load(pb), acc)  # <- no-wgmma
        pa += BK
        pb += BK * n
    tl.store(c + rm[:, None] * n + rn[None, :], acc.to(tl.float16))


@triton.jit
def digits(x, out, base, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    total = tl.zeros((BLOCK,), tl.int32)
    for _ in range(STEPS):
        total += v % base
        v = v // base + total  # <- integer-division
    tl.store(out + i, total, mask=i < n)


@triton.jit
def digits_of_ten(x, out, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    total = tl.zeros((BLOCK,), tl.int32)
    for _ in range(STEPS):
        total += v % 16
        v = v // 16 + total
    tl.store(out + i, total, mask=i < n)


@triton.jit
def polynomial_double(x, out, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n).to(tl.float64)
    y = v
    for _ in range(STEPS):
        y = y * v + 1.0  # <- fp64
    tl.store(out + i, y.to(tl.float32), mask=i < n)


@triton.jit
def polynomial(x, out, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    y = v
    for _ in range(STEPS):
        y = y * v + 1.0
    tl.store(out + i, y, mask=i < n)


@triton.jit
def powers(x, out, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    y = v
    for _ in range(STEPS):
        y = libdevice.pow(y, 2.0) + v  # <- slow-function
    tl.store(out + i, y, mask=i < n)


@triton.jit
def squares(x, out, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    y = v
    for _ in range(STEPS):
        y = y * y + v
    tl.store(out + i, y, mask=i < n)


def _tiles(kernel, dtype, size, warps, out=torch.float32, tile=(128, 128, 32)):
    m = n = k = size
    bm, bn, bk = tile
    a = torch.ones((m, k), dtype=dtype, device=DEVICE)
    b = torch.ones((k, n), dtype=dtype, device=DEVICE)
    c = torch.empty((m, n), dtype=out, device=DEVICE)
    grid = (m // bm, n // bn)
    return lambda: kernel[grid](a, b, c, m, n, k, BM=bm, BN=bn, BK=bk, num_warps=warps)


def ieee(form, size):
    kernel = matmul_ieee if form == "planted" else matmul_tf32
    return _tiles(kernel, torch.float32, size, 8)


def two_warps(form, size):
    warps = 2 if form == "planted" else 4
    return _tiles(matmul_half, torch.float16, size, warps, torch.float16, (64, 128, 64))


def division(form, size):
    n = size * size
    x = torch.ones(n, dtype=torch.int32, device=DEVICE)
    out = torch.empty(n, dtype=torch.int32, device=DEVICE)
    grid = (triton.cdiv(n, 1024),)
    if form == "planted":
        return lambda: digits[grid](x, out, 16, n, STEPS=16, BLOCK=1024)
    return lambda: digits_of_ten[grid](x, out, n, STEPS=16, BLOCK=1024)


def _elementwise(planted, better):
    def case(form, size):
        n = size * size
        x = torch.full((n,), 0.5, device=DEVICE)
        out = torch.empty(n, device=DEVICE)
        kernel = planted if form == "planted" else better
        return lambda: kernel[(triton.cdiv(n, 1024),)](x, out, n, STEPS=64, BLOCK=1024)

    return case


CASES = {
    "matmul_ieee": ieee,
    "matmul_half": two_warps,
    "digits": division,
    "polynomial_double": _elementwise(polynomial_double, polynomial),
    "powers": _elementwise(powers, squares),
}

if __name__ == "__main__":
    for case in CASES.values():
        case("planted", 512)()
