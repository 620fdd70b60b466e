"""fp8 dots on targets without fp8 tensor cores: the same product in fp16."""

from __future__ import annotations

import pytest
import torch
from lowering_support import lowered, run_lowered_too

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.passes.dots import WidenDotOperands
from tkdebug.compiler.targets.nvptx.architectures import TARGETS


@tkdebug.jit
def kernel(A, B, C, S: tl.constexpr, OUT: tl.constexpr):
    at = tl.arange(0, S)[:, None] * S + tl.arange(0, S)[None, :]
    tl.store(C + at, tl.dot(tl.load(A + at), tl.load(B + at), out_dtype=OUT))


def same(got, wanted):
    if got.dtype != torch.uint8:
        torch.testing.assert_close(got.float(), wanted.float(), rtol=1e-3, atol=1e-3)


def operands(*dtypes):
    return [torch.randn(32, 32).to(dtype) for dtype in dtypes]


E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


@pytest.mark.parametrize("dtypes", [(E4M3, E4M3), (E5M2, E4M3)])
def test_products_are_the_same_in_fp16(dtypes):
    with run_lowered_too([WidenDotOperands(TARGETS["sm_80"])], same) as modules:
        kernel[(1,)](*operands(*dtypes), torch.empty(32, 32), 32, tl.float32)
    assert _dot_elements(modules[0]) == {"f16"}


def test_tensor_cores_with_fp8_take_it_as_it_is():
    tile = kernel.warmup(*operands(E4M3, E4M3), torch.empty(32, 32), 32, tl.float32, grid=(1,))
    module = lowered(tile.module, [WidenDotOperands(TARGETS["sm_90a"])])
    assert _dot_elements(module) == {"f8E4M3FN"}


def test_fp16_sums_of_fp8_are_widened_everywhere():
    out = torch.empty(32, 32, dtype=torch.float16)
    with run_lowered_too([WidenDotOperands(TARGETS["sm_90a"])], same) as modules:
        kernel[(1,)](*operands(E4M3, E4M3), out, 32, tl.float16)
    assert _dot_elements(modules[0]) == {"f16"}


def _dot_elements(module):
    return {
        str(value.type.element)
        for op in module.walk()
        if op.name == "tt.dot"
        for value in op.operands[:2]
    }
