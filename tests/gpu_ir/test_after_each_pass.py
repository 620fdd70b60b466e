"""Kernels interpreted after each GPU pass store what their Tile IR stores."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import tkdebug
import tkdebug.interpreter.launch
import tkdebug.language as tl
from tkdebug.compiler.ir import Module
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.passes import PassManager
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.pipeline import gpu_pipeline
from tkdebug.interpreter.launch import run_module

NUM_WARPS = 4


def divisibility(value: object) -> int:
    """Return the facts of an argument that native compilation has."""
    return (
        16 if isinstance(value, torch.Tensor) or (isinstance(value, int) and value % 16 == 0) else 1
    )


def after_each_pass(
    target: str, module: Module, values: Sequence[Any], check: Callable[[str, Module], None]
) -> None:
    """Call `check` with the module as each GPU pass leaves it."""
    module = parse_module(print_module(module, locations=True))
    module.function.attributes["num_warps"] = NUM_WARPS
    module.function.attributes["target"] = target
    module.function.attributes["arg_divisibility"] = tuple(map(divisibility, values))
    for pass_ in gpu_pipeline(TARGETS[target], 3):
        (run,) = PassManager((pass_,), verify_each=True, print_after=()).run(module)
        if not run.changed:
            continue
        text = print_module(module, locations=True)
        again = parse_module(text)
        assert print_module(again, locations=True) == text
        check(pass_.name, again)


@pytest.fixture(params=["sm_80", "sm_90a"])
def checked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every interpreted launch is done after each pass too, and compared; the passes seen."""
    seen: list[str] = []

    def run(module: Module, values: Sequence[Any], grid: Any, *rest: Any, **keywords: Any) -> Any:
        before = copy.deepcopy(list(values))
        faults = run_module(module, values, grid, *rest, **keywords)

        def check(name: str, changed: Module) -> None:
            arguments = copy.deepcopy(before)
            assert run_module(changed, arguments, grid) == []
            for got, wanted in zip(arguments, values, strict=True):
                if isinstance(wanted, torch.Tensor):
                    torch.testing.assert_close(
                        got, wanted, rtol=1e-5, atol=1e-5, msg=lambda m: f"after {name}: {m}"
                    )
            seen.append(name)

        after_each_pass(request.param, module, values, check)
        return faults

    monkeypatch.setattr(tkdebug.interpreter.launch, "run_module", run)
    torch.manual_seed(0)
    return seen


@tkdebug.jit
def matmul(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    rows, columns, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    at = a + (tl.program_id(0) * M + rows[:, None]) * K + depth[None, :]
    bt = b + depth[:, None] * N + columns[None, :]
    total = tl.zeros((M, N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        mask = depth < K - k * BK
        x = tl.load(at, mask=mask[None, :], other=0.0)
        y = tl.load(bt, mask=mask[:, None], other=0.0)
        total = tl.dot(x, y, total)
        at += BK
        bt += BK * N
    out = c + (tl.program_id(0) * M + rows[:, None]) * N + columns[None, :]
    tl.store(out, total.to(c.dtype.element_ty))


@pytest.mark.parametrize(
    ("dtype", "depth"), [(torch.float16, 160), (torch.float16, 88), (torch.float32, 96)]
)
def test_matmul(checked: list[str], dtype: torch.dtype, depth: int) -> None:
    a, b = torch.randn(128, depth).to(dtype), torch.randn(depth, 32).to(dtype)
    c = torch.zeros(128, 32)
    with tkdebug.mode("interpret"):
        matmul[(2,)](a, b, c, depth, M=64, N=32, BK=32, num_warps=NUM_WARPS)
    torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-2, atol=1e-1)
    assert "allocate-shared" in checked
    assert "pipeline-loops" in checked


@tkdebug.jit
def attention(q, k, v, out, N, M: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    rows, columns, depth = tl.arange(0, M), tl.arange(0, BN), tl.arange(0, D)
    x = tl.load(q + rows[:, None] * D + depth[None, :])
    top = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    for start in range(0, N, BN):
        y = tl.load(k + (start + columns[None, :]) * D + depth[:, None])
        scores = tl.dot(x, y)
        new = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp(scores - new[:, None])
        scale = tl.exp(top - new)
        total = total * scale + tl.sum(p, 1)
        z = tl.load(v + (start + columns[:, None]) * D + depth[None, :])
        acc = tl.dot(p.to(tl.float16), z, acc * scale[:, None])
        top = new
    tl.store(out + rows[:, None] * D + depth[None, :], acc / total[:, None])


def test_attention(checked: list[str]) -> None:
    # Eighths: scores are exact in whatever order they are summed, and so is which fp16 a
    # probability is rounded to.
    q, k = ((torch.randint(-8, 9, (64, 32)) / 8).half() for _ in range(2))
    v = torch.randn(64, 32).half()
    out = torch.zeros(64, 32)
    with tkdebug.mode("interpret"):
        attention[(1,)](q, k, v, out, 64, M=64, BN=32, D=32, num_warps=NUM_WARPS)
    expected = torch.softmax(q.float() @ k.float().T, 1) @ v.float()
    torch.testing.assert_close(out, expected, rtol=1e-2, atol=1e-2)
    assert checked


@tkdebug.jit
def row_statistics(x, y, best, n, N: tl.constexpr, R: tl.constexpr):
    columns = tl.arange(0, N)
    rows = tl.program_id(0) * R + tl.arange(0, R)
    mask = columns[None, :] < n
    tile = tl.load(x + rows[:, None] * n + columns[None, :], mask=mask, other=-1e9)
    shifted = tile - tl.max(tile, 1)[:, None]
    power = tl.exp(shifted)
    running = tl.cumsum(power / tl.sum(power, 1)[:, None], 1)
    tl.store(y + rows[:, None] * n + columns[None, :], running, mask=mask)
    tl.store(best + rows, tl.argmax(tile, 1))


def test_reductions_and_scans(checked: list[str]) -> None:
    x, y = torch.randn(8, 100), torch.zeros(8, 100)
    best = torch.zeros(8, dtype=torch.int32)
    with tkdebug.mode("interpret"):
        row_statistics[(2,)](x, y, best, 100, N=128, R=4, num_warps=NUM_WARPS)
    torch.testing.assert_close(y, torch.softmax(x, 1).cumsum(1), rtol=1e-4, atol=1e-4)
    assert torch.equal(best, x.argmax(1).int())
    assert checked


@tkdebug.jit
def shapes(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tile = tl.load(x + i)
    pairs = tl.reshape(tile, (N // 2, 2))
    even, odd = tl.split(pairs)
    turned = tl.trans(tl.reshape(tile, (16, N // 16)))
    both = tl.interleave(odd, even) + tl.reshape(turned, (N,))
    both = tl.where(i % 3 == 0, tl.flip(both), both)
    count = 0
    while count < 3:
        both = both + count
        count += tl.program_id(0) + 1
    tl.store(y + tl.program_id(0) * N + i, tl.sort(both))


def test_shape_ops_and_divergent_loops(checked: list[str]) -> None:
    x, y = torch.randn(256), torch.zeros(3, 256)
    with tkdebug.mode("interpret"):
        shapes[(3,)](x, y, N=256, num_warps=NUM_WARPS)
    assert bool((y[:, 1:] >= y[:, :-1]).all())
    assert checked


@tkdebug.jit
def sums_of_blocks(x, y, n, B: tl.constexpr, R: tl.constexpr, UNROLL: tl.constexpr):
    total, top = 0.0, float("-inf")
    rows = tl.arange(0, R)
    lows = tl.full((R,), float("inf"), tl.float32)
    for start in tl.range(0, n, B, loop_unroll_factor=UNROLL):
        columns = start + tl.arange(0, B)
        row = tl.load(x + columns, mask=columns < n, other=0.0)
        total += tl.sum(row)
        top = tl.maximum(top, tl.max(row))
        tile = tl.load(x + rows[:, None] * n + columns, mask=columns < n, other=0.0)
        lows = tl.minimum(lows, tl.min(tile, 1))
    tl.store(y, total)
    tl.store(y + 1, top)
    tl.store(y + 2 + rows, lows)


@pytest.mark.parametrize("unroll", [1, 2])
def test_sums_over_a_loop(checked: list[str], unroll: int) -> None:
    x, y = torch.randn(4, 1000), torch.zeros(6)
    with tkdebug.mode("interpret"):
        sums_of_blocks[(1,)](x, y, 1000, B=256, R=4, UNROLL=unroll, num_warps=NUM_WARPS)
    torch.testing.assert_close(y[0], x[0].sum(), rtol=1e-4, atol=1e-4)
    assert y[1] == x[0].max()
    assert torch.equal(y[2:], x.min(1).values)
    assert "sink-reductions" in checked


@tkdebug.jit
def products_of_three(a, b, c, out, n, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    at = i[:, None] * SIZE + i[None, :]
    total = tl.zeros([SIZE, SIZE], tl.float32)
    for k in tl.range(n, num_stages=1):
        x = tl.load(a + k * SIZE * SIZE + at)
        y = tl.load(b + k * SIZE * SIZE + at)
        z = tl.load(c + k * SIZE * SIZE + at)
        total += tl.dot(x, tl.trans(y)) + tl.dot((y * 2).to(tl.float16), z)
    tl.store(out + at, total)


def test_loads_that_come_before_conversions(checked: list[str]) -> None:
    a, b, c = (torch.randn(3, 32, 32).half() for _ in range(3))
    out = torch.empty(32, 32)
    products_of_three[(1,)](a, b, c, out, 3, 32)
    assert "sink-conversions" in checked
    expected = (a.float() @ b.float().mT + b.float() * 2 @ c.float()).sum(0)
    torch.testing.assert_close(out, expected, rtol=1e-2, atol=1e-1)
