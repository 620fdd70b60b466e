"""dot_scaled lowered to conversions and a dot: the same product."""

from __future__ import annotations

import itertools

import pytest
import torch
from lowering_support import run_lowered_too
from scaled_dots import K_SIZE, M_SIZE, N_SIZE, OPERANDS, codes, elements, scaled_kernel

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.passes.dots import LowerScaledDot


def same_numbers(got, wanted):
    if got.dtype == torch.float32:
        # Sums of up to 64 products, taken in another order.
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)


def check(kernel, grid, *arguments):
    with run_lowered_too([LowerScaledDot()], same_numbers) as modules:
        kernel[grid](*arguments)
    (module,) = modules
    assert "tt.dot_scaled" not in {op.name for op in module.walk()}


def launch(left, right, a_scale, b_scale, groups, fast=False):
    (left, left_along_k), (right, right_along_k) = left, right
    a = elements(left, M_SIZE, K_SIZE, 1 if left_along_k else 0)
    b = elements(right, K_SIZE, N_SIZE, 0 if right_along_k else 1)
    shapes = (*a.shape, *b.shape)
    c = torch.randn(M_SIZE, N_SIZE)
    check(
        scaled_kernel,
        (1,),
        a,
        a_scale,
        b,
        b_scale,
        c,
        M_SIZE,
        N_SIZE,
        groups,
        *shapes,
        left,
        right,
        fast,
    )


@pytest.mark.parametrize(("left", "right"), list(itertools.product(OPERANDS, repeat=2)))
def test_formats_packed_along_either_axis(left, right):
    launch(left, right, codes(M_SIZE), codes(N_SIZE), K_SIZE // 32)


@pytest.mark.parametrize("other", ["e2m1", "fp16"])
def test_operands_without_scales(other):
    launch(("e2m1", True), (other, True), None, codes(N_SIZE), K_SIZE // 32)
    launch(("e2m1", True), (other, True), codes(M_SIZE), None, K_SIZE // 32)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("right", ["e4m3", "fp16"])
def test_scales_at_the_ends_of_their_range(right, fast):
    a_scale, b_scale = codes(M_SIZE), codes(N_SIZE)
    a_scale[:6, 0] = torch.tensor([0, 1, 254, 255, 255, 112], dtype=torch.uint8)
    b_scale[:4, 1] = torch.tensor([0, 1, 142, 255], dtype=torch.uint8)
    launch(("e4m3", True), (right, True), a_scale, b_scale, K_SIZE // 32, fast)


def test_scales_of_fp8_have_groups_of_16():
    def scales(rows):
        return torch.rand(rows, K_SIZE // 16).to(torch.float8_e4m3fn)

    launch(("e2m1", True), ("e2m1", True), scales(M_SIZE), scales(N_SIZE), K_SIZE // 16)


def test_batches():
    @tkdebug.jit
    def kernel(A, S, C):
        b, i, j = tl.arange(0, 2), tl.arange(0, 16), tl.arange(0, 32)
        left = tl.load(A + b[:, None, None] * 512 + i[None, :, None] * 32 + j[None, None, :])
        scale = tl.load(S + b[:, None, None] * 16 + i[None, :, None])
        right = tl.trans(left, 0, 2, 1)
        c = tl.dot_scaled(left, scale, "e4m3", right, scale, "e4m3")
        tl.store(C + b[:, None, None] * 256 + i[None, :, None] * 16 + i[None, None, :], c)

    a = torch.randint(0, 100, (2, 16, 32), dtype=torch.uint8)
    scale = torch.randint(120, 130, (2, 16, 1), dtype=torch.uint8)
    check(kernel, (1,), a, scale, torch.empty(2, 16, 16))
