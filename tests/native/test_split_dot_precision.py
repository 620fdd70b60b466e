"""fp32 products split for bf16 tensor cores: more right than one bf16 product."""

from __future__ import annotations

import pytest
import torch
from lowering_support import run_lowered_too

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.passes.dots import SplitDotPrecision

SIZE = 32


@tkdebug.jit
def kernel(A, B, C, S: tl.constexpr, PRECISION: tl.constexpr):
    at = tl.arange(0, S)[:, None] * S + tl.arange(0, S)[None, :]
    acc = tl.full((S, S), 1.0, tl.float32)
    tl.store(C + at, tl.dot(tl.load(A + at), tl.load(B + at), acc, input_precision=PRECISION))


@pytest.mark.parametrize(("precision", "dots", "bound"), [("bf16x3", 3, 3e-5), ("bf16x6", 6, 1e-6)])
def test_error_is_that_of_the_parts_left_out(precision: str, dots: int, bound: float) -> None:
    torch.manual_seed(0)
    a, b, out = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE), torch.empty(SIZE, SIZE)
    exact = a.double() @ b.double() + 1

    with run_lowered_too([SplitDotPrecision()], lambda got, wanted: None) as modules:
        kernel[(1,)](a, b, out, SIZE, precision)
    # What the lowered kernel, which ran last, has left there.
    assert ((out.double() - exact).norm() / exact.norm()).item() < bound
    (module,) = modules
    names = [op.name for op in module.walk()]
    assert names.count("tt.dot") == dots
    products = [op for op in module.walk() if op.name == "tt.dot"]
    assert {str(value.type.element) for op in products for value in op.operands[:2]} == {"bf16"}
