"""Tensor descriptors and microscaled products: native against interpreted."""

from __future__ import annotations

import itertools

import pytest
import test_lower_descriptors as descriptors
import test_lower_scaled_dot as scaled
import torch

import tkdebug
from tkdebug import TensorDescriptor

pytestmark = pytest.mark.gpu


def run_both(kernel, grid, *arguments):
    """What each tensor holds after a launch: native, then interpreted."""
    found = []
    for mode, device in (("native", "cuda"), ("interpret", "cpu")):
        moved = [_moved(argument, device) for argument in arguments]
        with tkdebug.mode(mode):
            kernel[grid](*moved)
        tensors = [t.base if isinstance(t, TensorDescriptor) else t for t in moved]
        found.append([t.cpu() for t in tensors if isinstance(t, torch.Tensor)])
    return zip(*found, strict=True)


def _moved(argument, device):
    if isinstance(argument, TensorDescriptor):
        base = argument.base.to(device)
        return TensorDescriptor(
            base, argument.shape, argument.strides, argument.block_shape, argument.padding
        )
    # A copy, so that neither mode sees what the other has written.
    return argument.clone().to(device) if isinstance(argument, torch.Tensor) else argument


def same(kernel, grid, *arguments):
    for native, interpreted in run_both(kernel, grid, *arguments):
        assert torch.equal(native.view(torch.uint8), interpreted.view(torch.uint8))


@pytest.mark.parametrize("pad", ["zero", "nan"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("dy", "dx"), [(0, 0), (-3, -5), (4, 32)])
def test_blocks_that_reach_outside(dtype, pad, dy, dx):
    source, target = torch.randn(20, 80).to(dtype), torch.zeros(20, 80).to(dtype)
    grid = (3, 3)
    arguments = (source, target, 17, 70, 80, dy, dx, 8, 32, pad)
    for native, interpreted in run_both(descriptors.copy_kernel, grid, *arguments):
        torch.testing.assert_close(native, interpreted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("y", "x"), list(itertools.product((2**31 - 2, -(2**31), 1), repeat=2)))
def test_offsets_near_the_limits(y, x):
    same(descriptors.far_kernel, (1,), torch.randn(8, 16), torch.ones(4, 8), 8, 16, y, x)


def test_host_descriptors_of_four_axes():
    source, target = torch.randn(3, 4, 5, 16), torch.zeros(3, 4, 5, 16)
    described = [TensorDescriptor.from_tensor(t, [1, 2, 2, 8]) for t in (source, target)]
    same(descriptors.volume_kernel, (4, 3), *described)


@pytest.mark.parametrize("rounds", [0, 2, 3])
@pytest.mark.parametrize("flag", [False, True])
def test_descriptors_carried_through_loops_and_branches(rounds, flag):
    a, b = torch.randn(8, 16), torch.randn(8, 16)
    same(descriptors.carried_kernel, (1,), a, b, torch.zeros(64), 8, 16, rounds, flag)


def test_gathered_and_scattered_rows():
    source, target = torch.randn(10, 24), torch.zeros(10, 24)
    rows = torch.tensor([0, 3, 9, 11, -1, 2, 5, 7], dtype=torch.int32)
    described = [TensorDescriptor.from_tensor(t, [1, 16]) for t in (source, target)]
    same(descriptors.rows_kernel, (1,), *described, rows)


@pytest.mark.parametrize("kind", ["add", "min", "max", "and", "or", "xor"])
def test_reductions_in_memory(kind):
    start = torch.randint(0, 100, (6, 12), dtype=torch.int32)
    value = torch.randint(0, 100, (4, 8), dtype=torch.int32)
    described = TensorDescriptor.from_tensor(start, [4, 8])
    same(descriptors.reduce_kernel, (3,), described, value, f"atomic_{kind}")


@pytest.mark.parametrize(("left", "right"), list(itertools.product(scaled.OPERANDS, repeat=2)))
def test_microscaled_products(left, right):
    (left, left_along_k), (right, right_along_k) = left, right
    a = scaled.elements(left, scaled.M_SIZE, scaled.K_SIZE, 1 if left_along_k else 0)
    b = scaled.elements(right, scaled.K_SIZE, scaled.N_SIZE, 0 if right_along_k else 1)
    groups = scaled.K_SIZE // 32
    a_scale, b_scale = scaled.codes(scaled.M_SIZE), scaled.codes(scaled.N_SIZE)
    a_scale[:4, 0] = torch.tensor([0, 1, 255, 112], dtype=torch.uint8)
    c = torch.randn(scaled.M_SIZE, scaled.N_SIZE)
    shape = (scaled.M_SIZE, scaled.N_SIZE, groups, *a.shape, *b.shape)
    arguments = (a, a_scale, b, b_scale, c, *shape, left, right, False)
    for native, interpreted in run_both(scaled.scaled_kernel, (1,), *arguments):
        if native.dtype == torch.float32:
            torch.testing.assert_close(native, interpreted, rtol=1e-4, atol=1e-3, equal_nan=True)
