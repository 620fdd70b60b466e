"""Tensor descriptors and microscaled products: native against interpreted."""

from __future__ import annotations

import itertools

import descriptor_kernels as descriptors
import pytest
import scaled_dots as scaled
import tensor_map_kernels as maps
import torch
from agreement import expect_same_bits, launch_both

import tkdebug
import tkdebug.language as tl
from tkdebug import TensorDescriptor

pytestmark = pytest.mark.gpu
describe = TensorDescriptor.from_tensor


@pytest.mark.parametrize("pad", ["zero", "nan"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("dy", "dx"), [(0, 0), (-3, -5), (4, 32)])
def test_blocks_that_reach_outside(dtype, pad, dy, dx):
    source, target = torch.randn(20, 80).to(dtype), torch.zeros(20, 80).to(dtype)
    grid = (3, 3)
    arguments = (source, target, 17, 70, 80, dy, dx, 8, 32, pad)
    for native, interpreted in launch_both(descriptors.copy_kernel, grid, *arguments):
        torch.testing.assert_close(native, interpreted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("y", "x"), list(itertools.product((2**31 - 2, -(2**31), 1), repeat=2)))
def test_offsets_near_the_limits(y, x):
    expect_same_bits(
        descriptors.far_kernel, (1,), torch.randn(8, 16), torch.ones(4, 8), 8, 16, y, x
    )


def test_host_descriptors_of_four_axes():
    source, target = torch.randn(3, 4, 5, 16), torch.zeros(3, 4, 5, 16)
    described = [describe(t, [1, 2, 2, 8]) for t in (source, target)]
    expect_same_bits(descriptors.volume_kernel, (4, 3), *described)


@pytest.mark.parametrize("rounds", [0, 2, 3])
@pytest.mark.parametrize("flag", [False, True])
def test_descriptors_carried_through_loops_and_branches(rounds, flag):
    a, b = torch.randn(8, 16), torch.randn(8, 16)
    expect_same_bits(descriptors.carried_kernel, (1,), a, b, torch.zeros(64), 8, 16, rounds, flag)


def test_gathered_and_scattered_rows():
    source, target = torch.randn(10, 24), torch.zeros(10, 24)
    rows = torch.tensor([0, 3, 9, 11, -1, 2, 5, 7], dtype=torch.int32)
    described = [describe(t, [1, 16]) for t in (source, target)]
    expect_same_bits(descriptors.rows_kernel, (1,), *described, rows)


@pytest.mark.parametrize("kind", ["add", "min", "max", "and", "or", "xor"])
def test_reductions_in_memory(kind):
    start = torch.randint(0, 100, (6, 12), dtype=torch.int32)
    value = torch.randint(0, 100, (4, 8), dtype=torch.int32)
    described = describe(start, [4, 8])
    expect_same_bits(descriptors.reduce_kernel, (3,), described, value, f"atomic_{kind}")


@pytest.mark.parametrize("size", [(200, 136, 336), (64, 64, 64), (1000, 520, 72)])
@pytest.mark.parametrize(
    ("blocks", "settings"),
    [
        *maps.BLOCKS_AND_SETTINGS,
        ((16, 32, 32), {"num_stages": 2}),
        ((64, 64, 32), {"num_warps": 2}),
        ((64, 64, 64), {"dtype": torch.float8_e4m3fn}),
    ],
)
def test_products_by_tensor_maps(size, blocks, settings):
    (M, N, K), (BM, BN, BK), options = size, blocks, dict(settings)
    dtype, turned = options.pop("dtype", torch.float16), options.pop("turned", False)
    # Rows of 8-bit elements are multiples of 16.
    M, N, K = (-(-n // 16) * 16 for n in (M, N, K))
    a, b = maps.whole((M, K), dtype).cuda(), maps.whole((K, N), dtype).cuda()
    c = torch.full((M, N), 7.0, dtype=torch.float32, device="cuda")
    operand = describe(b.T.contiguous(), [BN, BK]) if turned else describe(b, [BK, BN])
    described = (describe(a, [BM, BK]), operand, describe(c, [BM, BN]))
    with tkdebug.mode("native"):
        kernel = maps.product_kernel[(-(-M // BM), -(-N // BN))](
            *described, K, BM, BN, BK, turned, **options
        )
    assert "cp.async.bulk.tensor" in kernel.asm["ptx"]
    assert torch.equal(c, (a.double() @ b.double()).float())


def test_tensor_maps_follow_the_tensors_of_each_launch():
    """One kernel on tensors of other sizes, places and strides."""
    with tkdebug.mode("native"):
        for size in (64, 128, 80, 64):
            a, b = (maps.whole((size, size + 32)).cuda()[:, 16:-16] for _ in range(2))
            c = torch.zeros(size, size, dtype=torch.float16, device="cuda")
            described = [describe(t, [64, 64]) for t in (a, b, c)]
            maps.product_kernel[(-(-size // 64), -(-size // 64))](*described, size, 64, 64, 64)
            assert torch.equal(c, (a.float() @ b.float()).half())


def test_blocks_padded_with_nan_by_a_tensor_map():
    a, b = maps.whole((40, 64)).cuda(), maps.whole((64, 64)).cuda()
    c = torch.zeros(64, 64, dtype=torch.float16, device="cuda")
    described = (describe(a, [64, 64], "nan"), describe(b, [64, 64]), describe(c, [64, 64]))
    with tkdebug.mode("native"):
        maps.product_kernel[(1, 1)](*described, 64, 64, 64, 64)
    assert bool(c[40:].isnan().all())
    assert torch.equal(c[:40], (a.float() @ b.float()).half())


def test_programs_that_compute_several_tiles_by_tensor_maps():
    a, b = maps.whole((64 * 37, 96)).cuda(), maps.whole((96, 64)).cuda()
    c = torch.zeros(64 * 37, 64, dtype=torch.float16, device="cuda")
    described = (describe(a, [64, 32]), describe(b, [32, 64]), describe(c, [64, 64]))
    with tkdebug.mode("native"):
        maps.persistent_kernel[(5,)](*described, 96, 37, 64, 64, 32)
    assert torch.equal(c, (a.float() @ b.float()).half())


def test_later_stores_of_a_block_stay():
    """A program stores one block again and again; the last stays."""
    c = torch.zeros(64, 64, dtype=torch.float16, device="cuda")

    with tkdebug.mode("native"):
        kernel = again_kernel[(8,)](describe(c, [64, 64]), 200)
    assert "cp.async.bulk.tensor" in kernel.asm["ptx"]
    assert bool((c == 199).all())


@tkdebug.jit
def again_kernel(c_desc, rounds):
    for i in range(rounds):
        c_desc.store([0, 0], tl.full((64, 64), 0, tl.float16) + i)


@pytest.mark.parametrize("kernel", ["attention", "scaled"])
def test_other_kernels_with_tensor_maps(kernel):
    if kernel == "attention":
        tensors = [maps.whole((128, 64)) / 8 for _ in range(3)]
        described = [describe(x, [64, 64]) for x in (*tensors, torch.zeros_like(tensors[0]))]
        pairs = launch_both(maps.attention_kernel, (2,), *described, 128, 64, 64, 64)
    else:
        pages = torch.tensor([2, 0, 3, 1], dtype=torch.int32)
        described = (
            describe(maps.whole((64, 128)), [64, 32]),
            describe(maps.whole((128, 64)), [32, 64]),
            maps.whole((128,)),
            describe(torch.zeros(64, 64, dtype=torch.float16), [64, 64]),
        )
        pairs = launch_both(maps.scaled_kernel, (1,), *described, pages, 128, 32)
    for native, interpreted in pairs:
        torch.testing.assert_close(native, interpreted, rtol=2**-9, atol=2**-6)


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
    for native, interpreted in launch_both(scaled.scaled_kernel, (1,), *arguments):
        if native.dtype == torch.float32:
            torch.testing.assert_close(native, interpreted, rtol=1e-4, atol=1e-3, equal_nan=True)
