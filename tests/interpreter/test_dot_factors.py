"""Dots give the same bits whether programs share factors and sums take their memory, or not."""

from unittest import mock

import dot_kernels
import pytest
import torch
from differential import launch as launch_kernel

from tkdebug.interpreter import launch as launching
from tkdebug.interpreter.fusion import Fusion
from tkdebug.interpreter.tile_ops import dots

# Of each kernel: loads that only a dot multiplies, and dots that nobody sees before the loop ends.
PLANS = {"grouped": (2, 1), "by_columns": (0, 1), "by_rows": (2, 0), "rescaled": (2, 0)}


def product(name, dtype, tile):
    """Return the result that a kernel stores for two random matrices, and its module."""
    rows, columns, depth = tile
    m, n, k = 6 * rows, 4 * columns, 3 * depth
    if name in ("grouped", "rescaled"):
        k -= depth // 2
    generator = torch.Generator().manual_seed(0)
    a = torch.rand(m, k + depth, generator=generator)[:, :k].contiguous().to(dtype) - 0.5
    b = (torch.rand(k + depth, n, generator=generator) - 0.5).to(dtype)[:k]
    out = torch.empty(m, n)
    grid = {
        "grouped": (m // rows * (n // columns),),
        "by_rows": (n // columns, m // rows),
    }.get(name, (m // rows, n // columns))
    kernel = getattr(dot_kernels, name)
    seen = launch_kernel(kernel, grid, a, b, out, m, n, k, BM=rows, BN=columns, BK=depth)
    return out, seen.module


@pytest.mark.parametrize("tile", [(16, 16, 16), (32, 16, 64)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("name", PLANS)
def test_dot_factors_and_sums_change_no_bit(name, dtype, tile, monkeypatch):
    by_blocks = mock.Mock(wraps=dots._adds_by_blocks)
    with mock.patch.object(dots, "_adds_by_blocks", by_blocks):
        fast, module = product(name, dtype, tile)
    assert by_blocks.called == (name != "by_rows")
    plan = Fusion.of(module)
    assert (len(plan.factors), len(plan.sums)) == PLANS[name]
    monkeypatch.setattr(launching, "_fusion", lambda *_: Fusion())
    plain, _ = product(name, dtype, tile)
    assert torch.equal(fast, plain)
