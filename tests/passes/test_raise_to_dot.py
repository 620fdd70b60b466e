"""`RaiseToDot`: which sums of products become dots, and what they come to."""

from __future__ import annotations

import pytest
import torch
from pass_support import expect, run_on

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.passes import EliminateDeadCode, RaiseToDot

# x: 32 x 16 and y: 16 x 64, and their product.
SUM = """
    %s = tt.splat %x : f32 -> tensor<32x16xf32>
    %y = arith.constant dense<2.0> : tensor<16x64xf32>
    %s1 = tt.expand_dims %s {axis = 2} : tensor<32x16xf32> -> tensor<32x16x1xf32>
    %s2 = tt.broadcast %s1 : tensor<32x16x1xf32> -> tensor<32x16x64xf32>
    %y1 = tt.expand_dims %y {axis = 0} : tensor<16x64xf32> -> tensor<1x16x64xf32>
    %y2 = tt.broadcast %y1 : tensor<1x16x64xf32> -> tensor<32x16x64xf32>
    %products = arith.mulf %s2, %y2 : tensor<32x16x64xf32>
    %sums = tt.reduce %products {axis = 1} ({
    ^bb0(%a: f32, %b: f32):
      %ab = arith.addf %a, %b : f32
      tt.reduce.return %ab : f32
    }) : tensor<32x16x64xf32> -> tensor<32x64xf32>
    tt.print %sums {prefix = ""} : tensor<32x64xf32>
"""


def test_sum_of_products_is_a_dot() -> None:
    expect(
        SUM,
        """
        %s = tt.splat %x : f32 -> tensor<32x16xf32>
        %y = arith.constant dense<2.0> : tensor<16x64xf32>
        %cst = arith.constant dense<-0.0> : tensor<32x64xf32>
        %0 = tt.dot %s, %y, %cst {input_precision = "ieee"} : (tensor<32x16xf32>, tensor<16x64xf32>, tensor<32x64xf32>) -> tensor<32x64xf32>
        tt.print %0 {prefix = ""} : tensor<32x64xf32>
        """,  # noqa: E501
        RaiseToDot(),
        EliminateDeadCode(),
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("arith.addf %a", "arith.maxnumf %a"),
        ("arith.mulf %s2, %y2", "arith.addf %s2, %y2"),
        ("arith.mulf %s2, %y2", "arith.mulf %s2, %s2"),
        (
            "tt.print %sums",
            'tt.print %products {prefix = ""} : tensor<32x16x64xf32>\n    tt.print %sums',
        ),
    ],
)
def test_other_sums_stay(old: str, new: str) -> None:
    body = SUM.replace(old, new)
    got, records = run_on(body, RaiseToDot())
    assert "tt.dot" not in got
    assert not records


@tkdebug.jit
def products(
    x,
    y,
    z,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    AXIS: tl.constexpr,
    SWAPPED: tl.constexpr,
):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(x + m[:, None] * K + k[None, :])
    b = tl.load(y + k[:, None] * N + n[None, :])
    if AXIS == 0:
        p, q = a.T[:, :, None], b[:, None, :]
    elif AXIS == 1:
        p, q = a[:, :, None], b[None, :, :]
    else:
        p, q = a[:, None, :], b.T[None, :, :]
    total = tl.sum(q * p if SWAPPED else p * q, AXIS)
    tl.store(z + m[:, None] * N + n[None, :], total)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(("dtype", "k"), [(torch.float32, 32), (torch.float64, 16)])
def test_products_along_each_axis(dtype, k, axis, swapped) -> None:
    x, y = torch.randint(-3, 4, (16, k)).to(dtype), torch.randint(-3, 4, (k, 64)).to(dtype)
    z = torch.zeros((16, 64), dtype=dtype)
    with tkdebug.mode("interpret"):
        kernel = products[(1,)](x, y, z, M=16, N=64, K=k, AXIS=axis, SWAPPED=swapped)
    assert torch.equal(z, x @ y)
    assert "tt.dot" in kernel.asm["ttir"]


def test_few_products_stay() -> None:
    x, y = torch.randn(16, 8), torch.randn(8, 64)
    z = torch.zeros(16, 64)
    with tkdebug.mode("interpret"):
        kernel = products[(1,)](x, y, z, M=16, N=64, K=8, AXIS=1, SWAPPED=False)
    torch.testing.assert_close(z, x @ y)
    assert "tt.dot" not in kernel.asm["ttir"]
