"""Tensor maps that programs make: products on a GPU against exact ones."""

from __future__ import annotations

import pytest
import torch
from kernel_map_kernels import batch_kernel, empty_kernel, grouped_kernel, groups
from tensor_map_kernels import whole

import tkdebug
import tkdebug.language as tl

pytestmark = pytest.mark.gpu
SIZES = [(256, 128, 192), (100, 72, 80), (64, 60, 36), (0, 64, 32), (130, 64, 0), (65, 200, 264)]
TYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32,
         torch.float8_e4m3fn: tl.float8e4nv}  # fmt: skip


def launched(g, workers, block, turned=False, dtype=torch.float16, out=torch.float16, **options):
    M, N, K = block
    with tkdebug.mode("native"):
        kernel = grouped_kernel[(workers,)](
            *g.arguments, WORKERS=workers, BM=M, BN=N, BK=K, TURNED=turned,
            ELEMENT=TYPES[dtype], OUT=TYPES[out], **options,
        )  # fmt: skip
    assert kernel.binary.workspace_bytes == 3 * 128
    for result, wanted, memory in zip(g.results, g.wanted, g.memory, strict=True):
        assert torch.equal(result, wanted)
        # What is beside the result.
        rows, columns = result.shape
        assert bool((memory[rows:] == 7).all())
        assert bool((memory[:, columns:] == 7).all())


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("workers", [1, 3, 40])
@pytest.mark.parametrize(
    ("block", "options"),
    [
        ((64, 64, 32), {}),
        ((128, 128, 64), {"num_stages": 4}),
        ((64, 64, 64), {"num_stages": 1}),
        ((64, 64, 32), {"num_warps": 1}),
        ((32, 64, 32), {"num_warps": 2}),
        ((128, 128, 64), {"num_warps": 8}),
    ],
)
def test_groups_of_products(block, workers, turned, options):
    g = groups(SIZES, turned=turned, device="cuda")
    launched(g, workers, block, turned, **options)


@pytest.mark.parametrize(
    ("dtype", "out", "turned"),
    [
        (torch.bfloat16, torch.float32, False),
        (torch.float32, torch.float32, False),
        (torch.float8_e4m3fn, torch.float16, True),
    ],
)
def test_types_of_elements(dtype, out, turned):
    g = groups(SIZES, dtype, out, turned, device="cuda")
    launched(g, 3, (64, 64, 64), turned, dtype, out)


def test_many_groups_by_one_worker():
    """Its tensor maps are written again and again in their places."""
    g = groups([(64 + 8 * (i % 5), 64 + 8 * (i % 7), 32 * (1 + i % 3)) for i in range(200)],
               device="cuda")  # fmt: skip
    launched(g, 1, (64, 64, 32))


@pytest.mark.parametrize("how", ["", "made again", "before"])
@pytest.mark.parametrize("size", [(128, 64, 96), (72, 56, 80)])
def test_parts_of_batches(size, how):
    M, N, K = size
    a, b = whole((6, M, K)).cuda(), whole((6, K, N)).cuda()
    memory = torch.full((7 * M, N), 7.0, dtype=torch.float16, device="cuda")
    c = memory[M:].view(6, M, N)
    with tkdebug.mode("native"):
        batch_kernel[(6, 2, 1)](a, b, c, c, M, N, K, how, 64, 64, 32)
    wanted = (a.double() @ b.double()).half()
    if how == "before":
        assert torch.equal(c[:, : M - 8], wanted[:, 8:])
    else:
        assert torch.equal(c, wanted)
    assert bool((memory[:M] == 7).all())


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize("size", [(64, 64), (0, 64), (64, 0), (-3, 64), (17, 35)])
def test_tensors_that_may_be_empty(size, padding):
    x = whole((64, 64)).cuda()
    table = torch.tensor([x.data_ptr()], dtype=torch.int64, device="cuda")
    out = torch.zeros(64, 64, device="cuda")
    numbers = torch.tensor(size, dtype=torch.int32, device="cuda")
    with tkdebug.mode("native"):
        kernel = empty_kernel[(1,)](table, numbers, out, padding, 64)
    assert "tensormap.replace" in kernel.asm["ptx"]
    rows, columns = (max(n, 0) for n in size)
    inside = torch.zeros(64, 64, dtype=torch.bool, device="cuda")
    inside[:rows, :columns] = True
    if padding == "zero":
        assert torch.equal(out, torch.where(inside, x, 0).float())
    else:
        # A column's sum is NaN where any of its elements is.
        whole_columns = inside.all(0)
        assert torch.equal(out.isnan(), (~whole_columns).expand(64, 64))
        assert torch.equal(out[:, whole_columns], x[:, whole_columns].float())


def test_workspaces_come_from_the_allocator_that_is_set():
    asked = []

    def allocate(size, alignment, stream):
        asked.append((size, alignment, stream))
        return torch.empty(size, dtype=torch.int8, device="cuda")

    tkdebug.set_allocator(allocate)
    try:
        launched(groups(SIZES, device="cuda"), 3, (64, 64, 32))
    finally:
        tkdebug.set_allocator(None)
    assert asked == [(3 * 3 * 128, 128, torch.cuda.current_stream().cuda_stream)]


def test_launches_in_a_graph():
    g = groups(SIZES, device="cuda")
    launched(g, 3, (64, 64, 32))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launched_quietly(g)
    for memory in g.memory:
        memory.fill_(7.0)
    for _ in range(3):
        graph.replay()
        # Memory that others would get if the workspace were not the graph's.
        torch.full((1 << 20,), -1, dtype=torch.int64, device="cuda")
    torch.cuda.synchronize()
    assert all(torch.equal(r, w) for r, w in zip(g.results, g.wanted, strict=True))


def launched_quietly(g):
    with tkdebug.mode("native"):
        grouped_kernel[(3,)](*g.arguments, WORKERS=3, BM=64, BN=64, BK=32, TURNED=False,
                             ELEMENT=tl.float16, OUT=tl.float16)  # fmt: skip
