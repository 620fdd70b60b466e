"""One dot, and the sums that wgmma makes of fp8."""

from __future__ import annotations

import torch

import tkdebug
import tkdebug.language as tl


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


def cut(number, largest=None):
    """Toward zero to 13 bits below the leading bit of `largest`, the number itself if None."""
    exponent = torch.frexp((number if largest is None else largest).abs()).exponent - 1
    unit = torch.ldexp(torch.ones_like(number), exponent - 13)
    return torch.trunc(number / unit) * unit


def wgmma_fp8(a, b, c):
    """A @ b + c as Hopper's wgmma sums products of fp8.

    Each 32 products and the sum so far are cut 13 bits below the leading bit of the largest of
    them, and their sum 13 bits below its own: so come out, to the bit, all sums that an H200 gave
    (`test_recorded_sums`). The report on DeepSeek-V3 (3.3.2) says "14 bits" of the same.
    """
    total = c.double()
    for k in range(0, a.shape[1], 32):
        terms = [a[:, i : i + 1].double() * b[i : i + 1].double() for i in range(k, k + 32)]
        terms = torch.stack([total, *terms])
        total = cut(cut(terms, terms.abs().amax(0)).sum(0))
    return total.to(c.dtype)
