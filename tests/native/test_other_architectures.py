"""Architectures that no GPU here has: their kernels assemble, and GPU IR does what Tile IR does.

Every launch is interpreted; what it launches is compiled for each target besides, and interpreted
again as the GPU passes leave it.
"""

from __future__ import annotations

import re

import pytest
import torch
from corpus import Corpus, Row, failure_table
from native_support import needs_codegen

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.targets.nvptx.architectures import TARGETS

pytestmark = needs_codegen
OTHERS = [name for name in TARGETS if name not in ("sm_80", "sm_86", "sm_89", "sm_90a")]


def compiled(launch) -> dict[str, tuple[Row, str]]:
    """The row and the PTX of the kernel that `launch` launches, by target."""
    torch.manual_seed(0)
    corpus = Corpus(OTHERS, check_gpu_ir=True, keep_ptx=True)
    with corpus.collecting():
        launch()
    assert not corpus.failures, failure_table(corpus.rows)
    found = {row.target: (row, corpus.ptx[row.hash, row.target]) for row in corpus.rows}
    assert list(found) == OTHERS
    for name, (row, ptx) in found.items():
        assert f".target {name}\n" in ptx
        assert row.registers
    return found


@tkdebug.jit
def product(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    rows, columns, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    total = tl.zeros((M, N), dtype=c.dtype.element_ty)
    for k in range(0, K, BK):
        x = tl.load(a + rows[:, None] * K + k + depth[None, :])
        y = tl.load(b + (k + depth)[:, None] * N + columns[None, :])
        total = tl.dot(x, y, total)
    tl.store(c + rows[:, None] * N + columns[None, :], total)


PRODUCTS = [
    (torch.float16, torch.float32, r"mma\.sync\.aligned\.m16n8k8\.row\.col\.f32\.f16"),
    (torch.bfloat16, torch.float32, None),
    (torch.float32, torch.float32, None),
    (torch.int8, torch.int32, None),
    (torch.float8_e4m3fn, torch.float32, r"m16n8k8\.row\.col\.f32\.f16"),
]


@pytest.mark.parametrize(("dtype", "sums", "on_turing"), PRODUCTS)
def test_products(dtype: torch.dtype, sums: torch.dtype, on_turing: str | None) -> None:
    a, b = (torch.randint(-3, 4, size).to(dtype) for size in ((64, 128), (128, 32)))
    c = torch.zeros(64, 32, dtype=sums)
    found = compiled(lambda: product[(1,)](a, b, c, 128, M=64, N=32, BK=32))
    assert torch.equal(c, (a.double() @ b.double()).to(sums))
    for name, (_, ptx) in found.items():
        assert "wgmma" not in ptx
        assert "tcgen05" not in ptx
        assert ("cp.async" in ptx) == (name != "sm_75")
        if name != "sm_75" or on_turing is None:
            assert ("mma.sync" in ptx) == (name != "sm_75")
        else:
            assert re.search(on_turing, ptx)


@tkdebug.jit
def sums_and_counts(x, out, kept, N: tl.constexpr):
    i = tl.arange(0, N)
    values = tl.load(x + i)
    tl.atomic_add(out, tl.sum(values))
    tl.atomic_max(out + 1, tl.max(values))
    tl.store(out + 2 + i, tl.sort(values))
    cut = values.to(tl.float32) * 1.001
    tl.store(kept + i, cut.to(tl.bfloat16, fp_downcast_rounding="rtz"))
    tl.atomic_add(kept + N + i, cut.to(tl.bfloat16))


def test_reductions_atomics_and_conversions() -> None:
    x, out = torch.randint(-99, 99, (256,), dtype=torch.int32), torch.zeros(258, dtype=torch.int32)
    kept = torch.zeros(512, dtype=torch.bfloat16)
    found = compiled(lambda: sums_and_counts[(1,)](x, out, kept, N=256))
    assert out[0] == x.sum()
    assert torch.equal(out[2:], x.sort().values)
    for name, (_, ptx) in found.items():
        assert ("redux.sync" in ptx) == (name != "sm_75")
        assert ("cvt.rz.bf16" in ptx) == (name != "sm_75")


@tkdebug.jit
def through_descriptors(a, out, M, N, B: tl.constexpr):
    source = tl.make_tensor_descriptor(a, [M, N], [N, 1], [B, B])
    target = tl.make_tensor_descriptor(out, [M, N], [N, 1], [B, B])
    for k in range(0, N, B):
        tile = source.load([0, k])
        target.store([0, k], tl.dot(tile, tile).to(tl.float16))


def test_descriptors_are_tensor_maps_from_hopper_on() -> None:
    a, out = torch.randint(-2, 3, (32, 96)).half(), torch.zeros(32, 96).half()
    found = compiled(lambda: through_descriptors[(1,)](a, out, 32, 96, B=32))
    assert torch.equal(out[:, :32], a[:, :32] @ a[:, :32])
    for name, (_, ptx) in found.items():
        assert ("cp.async.bulk.tensor" in ptx) == TARGETS[name].has("tma")
