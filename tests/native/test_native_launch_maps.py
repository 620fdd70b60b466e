"""Tensor maps that launches make of what kernels describe: native against interpreted."""

from __future__ import annotations

import math

import descriptor_kernels as descriptors
import pytest
import tensor_map_kernels as maps
import torch
from agreement import expect_same_bits, launch_both

import tkdebug
import tkdebug.language as tl

pytestmark = pytest.mark.gpu
BULK = "cp.async.bulk.tensor"


@pytest.mark.parametrize("how", ["", "at"])
@pytest.mark.parametrize(
    "size", [(96, 64, 80), (64, 32, 64), (200, 64, 16), (96, 64, 72), (96, 56, 64), (96, 60, 80)]
)
def test_products(size, how):
    M, N, K = size
    a, b = maps.whole((M, K)).cuda(), maps.whole((K, N)).cuda()
    c = torch.zeros(M, N, dtype=torch.float16, device="cuda")
    with tkdebug.mode("native"):
        kernel = maps.made_kernel[(-(-M // 64),)](a, b, c, M, N, K, 64, 64, 32, how)
    # Rows of 56 and 72 elements are whole units, too, but 16 does not divide them.
    assert (BULK in kernel.asm["ptx"]) is (K % 16 == 0 or N % 16 == 0)
    assert torch.equal(c, (a.double() @ b.double()).half())


@pytest.mark.parametrize("size", [(0, 64, 80), (96, 64, 0), (96, 0, 80)])
def test_empty_tensors(size):
    """Reads through them give zeros, writes go nowhere."""
    M, N, K = size
    a, b, c = (torch.full((8192,), 7.0, dtype=torch.float16, device="cuda") for _ in range(3))
    with tkdebug.mode("native"):
        for _ in range(2):
            maps.made_kernel[(2,)](a, b, c, M, N, K, 64, 64, 32)
    assert bool((c[: M * N] == 0).all())
    assert bool((c[M * N :] == 7).all())


@tkdebug.jit
def product_kernel(a, b, c, M, N, K, stride_a, BM: tl.constexpr, BN: tl.constexpr,
                   BK: tl.constexpr, TURNED: tl.constexpr):  # fmt: skip
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    a_desc = tl.make_tensor_descriptor(a, [M, K], [stride_a, 1], [BM, BK])
    if TURNED:
        b_desc = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    else:
        b_desc = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    c_desc = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    acc = tl.zeros((BM, BN), c.dtype.element_ty)
    for k in range(0, K, BK):
        if TURNED:
            operand = b_desc.load([n, k]).T
        else:
            operand = b_desc.load([k, n])
        acc = tl.dot(a_desc.load([m, k]), operand, acc)
    c_desc.store([m, n], acc)


@pytest.mark.parametrize("size", [(208, 144, 336), (64, 64, 64), (1008, 528, 80)])
@pytest.mark.parametrize(
    ("blocks", "settings"),
    [
        *maps.BLOCKS_AND_SETTINGS,
        ((64, 64, 64), {"dtype": torch.float8_e5m2}),
        ((64, 64, 64), {"dtype": torch.int8, "out": torch.int32, "turned": True}),
    ],
)
def test_products_of_types_and_blocks(size, blocks, settings):
    (M, N, K), (BM, BN, BK), options = size, blocks, dict(settings)
    dtype, turned = options.pop("dtype", torch.float16), options.pop("turned", False)
    out = options.pop("out", torch.float32)
    a, b = maps.whole((M, K), dtype).cuda(), maps.whole((K, N), dtype).cuda()
    c = torch.full((M, N), 7, dtype=out, device="cuda")
    passed = b.T.contiguous() if turned else b
    with tkdebug.mode("native"):
        kernel = product_kernel[(-(-M // BM), -(-N // BN))](
            a, passed, c, M, N, K, K, BM, BN, BK, turned, **options
        )
    assert BULK in kernel.asm["ptx"]
    assert torch.equal(c, (a.double() @ b.double()).to(out))


@pytest.mark.parametrize("stride", [0, 96, 16])
def test_strides_that_only_the_launch_knows(stride):
    """Rows that repeat one another (no tensor map has them), stand apart, or overlap."""
    memory = maps.whole((128 * 96,)).cuda()
    a = torch.as_strided(memory, (128, 64), (stride, 1))
    b = maps.whole((64, 64)).cuda()
    c = torch.zeros(128, 64, dtype=torch.float32, device="cuda")
    with tkdebug.mode("native"):
        product_kernel[(2, 1)](memory, b, c, 128, 64, 64, stride, 64, 64, 32, False)
    assert torch.equal(c, (a.double() @ b.double()).float())


@tkdebug.jit
def batched_kernel(a, b, c, B0, B1, B2, M, N, K, RANK: tl.constexpr, BM: tl.constexpr,
                   BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    m, batch = tl.program_id(0) * BM, tl.program_id(1)
    x, y, z = batch // (B1 * B2), batch // B2 % B1, batch % B2
    acc = tl.zeros((BM, BN), tl.float32)
    b_desc = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    if RANK == 3:
        a_desc = tl.make_tensor_descriptor(a, [B2, M, K], [M * K, K, 1], [1, BM, BK])
        c_desc = tl.make_tensor_descriptor(c, [B2, M, N], [M * N, N, 1], [1, BM, BN])
    elif RANK == 4:
        a_desc = tl.make_tensor_descriptor(
            a, [B1, B2, M, K], [B2 * M * K, M * K, K, 1], [1, 1, BM, BK]
        )
        c_desc = tl.make_tensor_descriptor(
            c, [B1, B2, M, N], [B2 * M * N, M * N, N, 1], [1, 1, BM, BN]
        )
    else:
        a_desc = tl.make_tensor_descriptor(
            a, [B0, B1, B2, M, K], [B1 * B2 * M * K, B2 * M * K, M * K, K, 1], [1, 1, 1, BM, BK]
        )
        c_desc = tl.make_tensor_descriptor(
            c, [B0, B1, B2, M, N], [B1 * B2 * M * N, B2 * M * N, M * N, N, 1], [1, 1, 1, BM, BN]
        )
    for k in range(0, K, BK):
        if RANK == 3:
            block = a_desc.load([z, m, k])
        elif RANK == 4:
            block = a_desc.load([y, z, m, k])
        else:
            block = a_desc.load([x, y, z, m, k])
        acc = tl.dot(block.reshape(BM, BK), b_desc.load([k, 0]), acc)
    result = acc.to(tl.float16)
    if RANK == 3:
        c_desc.store([z, m, 0], result.reshape(1, BM, BN))
    elif RANK == 4:
        c_desc.store([y, z, m, 0], result.reshape(1, 1, BM, BN))
    else:
        c_desc.store([x, y, z, m, 0], result.reshape(1, 1, 1, BM, BN))


@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize("size", [(128, 64, 96), (72, 48, 80)])
def test_products_of_batches(rank, size):
    M, N, K = size
    B0, B1, B2 = (2 if rank > 4 else 1), (3 if rank > 3 else 1), 5
    a, b = maps.whole((B0, B1, B2, M, K)).cuda(), maps.whole((K, N)).cuda()
    c = torch.zeros(B0, B1, B2, M, N, dtype=torch.float16, device="cuda")
    with tkdebug.mode("native"):
        kernel = batched_kernel[(-(-M // 64), B0 * B1 * B2)](
            a, b, c, B0, B1, B2, M, N, K, rank, 64, 64, 32
        )
    assert kernel.asm["ptx"].count(f".tensor.{rank}d") >= 2
    assert torch.equal(c, (a.double() @ b.double()).half())


@tkdebug.jit
def fill_kernel(x, y, D0, D1, D2, D3, D4, shift, RANK: tl.constexpr, BLOCK: tl.constexpr,
                LAST: tl.constexpr):  # fmt: skip
    at = tl.program_id(0)
    values = tl.load(x + at * BLOCK * LAST + tl.arange(0, BLOCK * LAST))
    row, column = at * BLOCK + shift, tl.program_id(1) * LAST
    if RANK == 2:
        desc = tl.make_tensor_descriptor(y, [D3, D4], [D4, 1], [BLOCK, LAST])
        desc.store([row, column], values.reshape(BLOCK, LAST))
    elif RANK == 3:
        desc = tl.make_tensor_descriptor(y, [D2, D3, D4], [D3 * D4, D4, 1], [2, BLOCK // 2, LAST])
        desc.store([1, row, column], values.reshape(2, BLOCK // 2, LAST))
    elif RANK == 4:
        desc = tl.make_tensor_descriptor(
            y, [D1, D2, D3, D4], [D2 * D3 * D4, D3 * D4, D4, 1], [1, 2, BLOCK // 2, LAST]
        )
        desc.store([1, 0, row, column], values.reshape(1, 2, BLOCK // 2, LAST))
    else:
        desc = tl.make_tensor_descriptor(
            y,
            [D0, D1, D2, D3, D4],
            [D1 * D2 * D3 * D4, D2 * D3 * D4, D3 * D4, D4, 1],
            [2, 1, 1, BLOCK // 2, LAST],
        )
        desc.store([0, 1, 2, row, column], values.reshape(2, 1, 1, BLOCK // 2, LAST))


@pytest.mark.parametrize("shift", [0, 3, -5])
@pytest.mark.parametrize("rank", [2, 3, 4, 5])
@pytest.mark.parametrize("last", [48, 37])
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.float32, torch.int8, torch.int64, torch.float8_e5m2]
)
def test_stores_of_every_type_and_rank(dtype, rank, last, shift):
    """Blocks that reach outside, rows that are no whole units, blocks that begin before all."""
    dims = (2, 3, 3, 37, last)
    values = torch.randint(-100, 100, (3 * 16 * 32,)).to(dtype)
    target = torch.full((math.prod(dims) + 64,), 3).to(dtype)
    expect_same_bits(fill_kernel, (3, 2), values, target, *dims, shift, rank, 16, 32)


def test_whether_stores_use_tensor_maps():
    """The test before this one relies on this."""
    values, target = torch.zeros(512).cuda(), torch.zeros(4096).cuda()
    with tkdebug.mode("native"):
        by_map = fill_kernel.warmup(values, target, 2, 3, 3, 37, 48, 3, 2, 16, 32, grid=(1,))
        plain = fill_kernel.warmup(values, target, 2, 3, 3, 37, 37, 3, 2, 16, 32, grid=(1,))
    assert BULK in by_map.asm["ptx"]
    assert BULK not in plain.asm["ptx"]


@pytest.mark.parametrize("pad", ["zero", "nan"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("dy", "dx"), [(0, 0), (-3, -32), (4, 32), (-8, -16)])
def test_blocks_that_reach_outside_whole_rows(dtype, pad, dy, dx):
    source, target = torch.randn(20, 80).to(dtype), torch.zeros(20, 80).to(dtype)
    arguments = (source, target, 17, 64, 80, dy, dx, 8, 32, pad)
    for native, interpreted in launch_both(descriptors.copy_kernel, (3, 3), *arguments):
        torch.testing.assert_close(native, interpreted, rtol=0, atol=0, equal_nan=True)


@tkdebug.jit
def persistent_kernel(a, b, c, M, N, K, PROGRAMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
                      BK: tl.constexpr, MOVES: tl.constexpr):  # fmt: skip
    a_desc = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    b_desc = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    c_desc = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    wide = tl.cdiv(N, BN)
    done = tl.program_id(0) - PROGRAMS
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * wide, PROGRAMS):
        if MOVES:
            c_desc = tl.make_tensor_descriptor(c + tile // wide * BM * N, [BM, N], [N, 1], [BM, BN])
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(tl.cdiv(K, BK)):
            x = a_desc.load([tile // wide * BM, k * BK])
            acc = tl.dot(x, b_desc.load([tile % wide * BN, k * BK]).T, acc)
        done += PROGRAMS
        c_desc.store([0 if MOVES else done // wide * BM, done % wide * BN], acc.to(tl.float16))


@pytest.mark.parametrize("moves", [False, True])
def test_programs_of_many_tiles(moves):
    M, N, K = 64 * 21, 320, 208
    a, b = maps.whole((M, K)).cuda(), maps.whole((N, K)).cuda()
    c = torch.zeros(M, N, dtype=torch.float16, device="cuda")
    with tkdebug.mode("native"):
        kernel = persistent_kernel[(7,)](a, b, c, M, N, K, 7, 64, 64, 64, moves)
    assert kernel.asm["ptx"].count(".global.shared::cta.bulk_group") == 1
    # A tensor that moves from tile to tile is described by the programs, the others by the launch.
    assert kernel.binary.workspace_bytes == (128 if moves else 0)
    assert ".mbarrier::complete_tx" in kernel.asm["ptx"]
    assert torch.equal(c, (a.double() @ b.double().T).half())


def test_tensor_maps_follow_the_arguments_of_each_launch():
    with tkdebug.mode("native"):
        for size in (64, 128, 80, 64):
            a, b = (maps.whole((size, size)).cuda() for _ in range(2))
            c = torch.zeros(size, size, dtype=torch.float32, device="cuda")
            grid = (-(-size // 64), -(-size // 64))
            product_kernel[grid](a, b, c, size, size, size, size, 64, 64, 64, False)
            assert torch.equal(c, (a.double() @ b.double()).float())


def test_launches_are_captured_in_graphs():
    a, b = maps.whole((128, 64)).cuda(), maps.whole((64, 64)).cuda()
    c = torch.zeros(128, 64, dtype=torch.float32, device="cuda")
    arguments = (a, b, c, 128, 64, 64, 64, 64, 64, 32, False)
    with tkdebug.mode("native"):
        product_kernel[(2, 1)](*arguments)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            product_kernel[(2, 1)](*arguments)
    c.zero_()
    a.mul_(2)
    graph.replay()
    assert torch.equal(c, (a.double() @ b.double()).float())
