"""Dots of every dtype, shape and precision: native against interpreted."""

from __future__ import annotations

import pytest
import torch
from agreement import run_both, tile

import tkdebug
import tkdebug.language as tl

pytestmark = pytest.mark.gpu


@tkdebug.jit
def multiply(
    a,
    b,
    c,
    d,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    PRECISION: tl.constexpr,
    OUT: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    if TRANSPOSED:
        y = tl.load(b + n[:, None] * K + k[None, :]).T
    else:
        y = tl.load(b + k[:, None] * N + n[None, :])
    z = tl.load(c + m[:, None] * N + n[None, :])
    z = tl.dot(x, y, z, input_precision=PRECISION, out_dtype=OUT)
    tl.store(d + m[:, None] * N + n[None, :], z)


@tkdebug.jit
def multiply_batch(a, b, d, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i = tl.arange(0, B)[:, None, None]
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + i * M * K + m[None, :, None] * K + k[None, None, :])
    y = tl.load(b + i * K * N + k[None, :, None] * N + n[None, None, :])
    tl.store(d + i * M * N + m[None, :, None] * N + n[None, None, :], tl.dot(x, y))


CASES = [
    (torch.float16, torch.float32, "tf32"),
    (torch.float16, torch.float16, "tf32"),
    (torch.bfloat16, torch.float32, "tf32"),
    (torch.float32, torch.float32, "tf32"),
    (torch.float32, torch.float32, "tf32x3"),
    (torch.float32, torch.float32, "ieee"),
    (torch.float64, torch.float64, "ieee"),
    (torch.int8, torch.int32, "ieee"),
    (torch.float8_e4m3fn, torch.float32, "tf32"),
    (torch.float8_e5m2, torch.float32, "tf32"),
]
OUT_TYPES = {
    torch.float16: tl.float16,
    torch.float32: tl.float32,
    torch.float64: tl.float64,
    torch.int32: tl.int32,
}


def allowed(a, b, c, rounding, every):
    """How far apart sums may be that lose up to `rounding` of themselves after `every` products."""
    products = a.double()[:, :, None] * b.double()[None]
    partial = c.double()[:, None] + products.cumsum(1)
    return rounding * (partial[:, every - 1 :: every].abs().sum(1) + partial[:, -1].abs())


def tolerance(dtype, out, shape, transposed, operands):
    """How far from each other native and interpreted may be.

    `tile`'s numbers are multiples of 1/16 up to 4, and so of few bits that their products' sums are
    exact in fp32, in any order: every dtype agrees to the bit, but where the hardware's sums are
    narrower.

    - fp16 sums: the interpreter rounds once, tensor cores at least after each 8 products, FMA after
      each; half a unit in the last place is at most 2**-11 of the sum.
    - fp8 by wgmma (M of 64, both operands contiguous along K): Hopper's sums keep 13 bits below the
      leading one and cut the rest (seen here; reported of it as "14 bits" in the DeepSeek-V3
      report, 3.3.2), the sum before and the sum after, after each 32 products at most.
    """
    if out == torch.float16:
        return allowed(*operands, 2.0**-11, 8 if shape[0] >= 16 else 1)
    if dtype.itemsize == 1 and dtype.is_floating_point and shape[0] >= 64 and transposed:
        return allowed(*operands, 2.0**-12, 16)
    return 0.0


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("shape", "num_warps"),
    [
        ((16, 16, 32), 1),
        ((32, 64, 32), 2),
        ((64, 64, 64), 4),
        ((64, 16, 32), 4),
        ((128, 128, 64), 8),
        ((16, 128, 64), 4),
        ((2, 32, 32), 4),
    ],
)
@pytest.mark.parametrize(("dtype", "out", "precision"), CASES)
def test_dot(dtype, out, precision, shape, num_warps, transposed):
    m, n, k = shape
    wide = torch.float32 if dtype.is_floating_point and dtype.itemsize == 1 else dtype
    a = tile((m, k), wide).to(dtype)
    b = tile((n, k) if transposed else (k, n), wide, seed=1).to(dtype)
    c = tile((m, n), out, seed=2)
    constants = {"M": m, "N": n, "K": k, "PRECISION": precision, "OUT": OUT_TYPES[out]}
    constants["TRANSPOSED"] = transposed
    ((native, interpreted),) = run_both(multiply, [a, b, c], [c], num_warps, **constants)
    operands = (a, b.T if transposed else b, c)
    difference = (native.double() - interpreted.double()).abs()
    excess = difference - tolerance(dtype, out, shape, transposed, operands)
    assert float(excess.max()) <= 0, (
        f"{int((excess > 0).sum())} of {excess.numel()} differ, by up to {float(difference.max())}"
    )


@pytest.mark.parametrize(
    ("dtype", "out"),
    [
        (torch.float16, torch.float16),
        (torch.float8_e4m3fn, torch.float32),
        (torch.float8_e5m2, torch.float32),
    ],
)
def test_dot_of_small_whole_numbers_is_exact(dtype, out):
    """Where other dots have a tolerance: here no sum needs more bits than there are."""
    m, n, k = 64, 64, 64
    a = (tile((m, k), torch.float32).round() % 3 - 1).to(dtype)
    b = (tile((n, k), torch.float32, seed=1).round() % 3 - 1).to(dtype)
    c = tile((m, n), torch.float32, seed=2).round().to(out)
    constants = {"M": m, "N": n, "K": k, "PRECISION": "tf32", "OUT": OUT_TYPES[out]}
    ((native, interpreted),) = run_both(multiply, [a, b, c], [c], 4, **constants, TRANSPOSED=True)
    assert torch.equal(native, interpreted)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("batch", [2, 8])
def test_batches(dtype, batch):
    a, b = tile((batch, 32, 32), dtype), tile((batch, 32, 16), dtype, seed=1)
    out = torch.zeros((batch, 32, 16))
    constants = {"B": batch, "M": 32, "N": 16, "K": 32}
    ((native, interpreted),) = run_both(multiply_batch, [a, b], [out], 4, **constants)
    assert torch.equal(native, interpreted)
