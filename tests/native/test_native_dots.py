"""Dots of every dtype, shape and precision: native against interpreted."""

from __future__ import annotations

import pytest
import torch
from agreement import run_both, tile
from dot_sums import multiply, wgmma_fp8

import tkdebug
import tkdebug.language as tl

pytestmark = pytest.mark.gpu


@tkdebug.jit
def multiply_batch(a, b, d, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i = tl.arange(0, B)[:, None, None]
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + i * M * K + m[None, :, None] * K + k[None, None, :])
    y = tl.load(b + i * K * N + k[None, :, None] * N + n[None, None, :])
    tl.store(d + i * M * N + m[None, :, None] * N + n[None, None, :], tl.dot(x, y))


@tkdebug.jit
def multiply_blocks(
    a,
    b,
    d,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
    OUT: tl.constexpr,
    TURNED: tl.constexpr,
):
    m, n = tl.arange(0, M), tl.arange(0, N)
    z = tl.zeros((M, N), OUT)
    for first in range(0, K, BLOCK):
        k = first + tl.arange(0, BLOCK)
        if TURNED:
            x = tl.load(a + k[None, :] * M + m[:, None])
            y = tl.load(b + n[None, :] * K + k[:, None])
        else:
            x = tl.load(a + m[:, None] * K + k[None, :])
            y = tl.load(b + k[:, None] * N + n[None, :])
        z = tl.dot(x, y, z, input_precision=PRECISION, out_dtype=OUT)
    tl.store(d + m[:, None] * N + n[None, :], z)


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
    # `tile`'s numbers are multiples of 1/16 up to 4, and so of few bits that sums of products
    # are exact in fp32 in any order: all agree to the bit but where hardware sums are narrow.
    if dtype.itemsize > 1 or dtype == torch.int8 or m < 64:
        assert torch.equal(native, interpreted)
        return
    # wgmma of fp8 where the compiler chooses it; elsewhere fp8 is multiplied as fp16.
    b = b.T if transposed else b
    assert torch.equal(interpreted.double(), a.double() @ b.double() + c.double())
    assert torch.equal(native, wgmma_fp8(a, b, c)) or torch.equal(native, interpreted)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("m", "n", "num_warps"), [(16, 16, 1), (64, 64, 4), (128, 32, 8)])
@pytest.mark.parametrize(
    ("dtype", "k", "precision"),
    [
        (torch.float32, 8, "tf32"),
        (torch.float32, 8, "tf32x3"),
        (torch.float32, 8, "ieee"),
        (torch.float64, 4, "ieee"),
    ],
)
def test_dot_of_the_shortest_k(dtype, k, precision, m, n, num_warps, transposed):
    b = tile((n, k) if transposed else (k, n), dtype, seed=1)
    a, c = tile((m, k), dtype), tile((m, n), dtype, seed=2)
    constants = {"M": m, "N": n, "K": k, "PRECISION": precision, "OUT": OUT_TYPES[dtype]}
    constants["TRANSPOSED"] = transposed
    ((native, interpreted),) = run_both(multiply, [a, b, c], [c], num_warps, **constants)
    assert torch.equal(native, interpreted)


@pytest.mark.parametrize(
    ("dtype", "out"),
    [
        (torch.float16, torch.float16),
        (torch.float8_e4m3fn, torch.float32),
        (torch.float8_e5m2, torch.float32),
    ],
)
def test_dot_of_small_whole_numbers_is_exact(dtype, out):
    """No tolerance, unlike for other dots: no sum needs more bits than there are."""
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
