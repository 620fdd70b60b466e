"""Watched values on a GPU are what interpreted kernels show, bit by bit."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from test_watches import plain
from watch_support import spot, watched
from watched_kernels import branches, elementwise, loops, matmul, twice

import tkdebug
from tkdebug import knobs
from tkdebug.watches.in_force import ValueWatch
from tkdebug.watches.records import WatchedValue

pytestmark = pytest.mark.gpu


def both(
    run: Callable[[str], object], *watches: Callable[[], ValueWatch]
) -> list[list[WatchedValue]]:
    """Return the values that native launches show; interpreted ones show the same."""
    seen = []
    for mode, device in (("interpret", "cpu"), ("native", "cuda")):
        with tkdebug.mode(mode), watched(*watches) as found:
            run(device)
            seen.append([sorted(one.values, key=lambda v: v.order) for one in found])
    interpreted, native = seen
    for ours, theirs in zip(native, interpreted, strict=True):
        assert plain(ours) == plain(theirs)
    return native


def run_matmul(device: str, k: int = 96, programs: int = 4) -> None:
    torch.manual_seed(1)
    # Products and sums of small whole numbers are exact in any order.
    a = torch.randint(-8, 8, (64 * programs, k)).half().to(device)
    b = torch.randint(-8, 8, (k, 32)).half().to(device)
    c = torch.zeros(64 * programs, 32, device=device)
    matmul[(programs,)](a, b, c, k, M=64, N=32, BK=32)
    torch.testing.assert_close(c.cpu(), a.cpu().float() @ b.cpu().float())


def test_accumulator() -> None:
    summary, whole, chosen = both(
        run_matmul,
        lambda: spot(matmul, "acc +=", "acc"),
        lambda: spot(matmul, "x = tl.load", "x", whole=True),
        lambda: spot(matmul, "acc +=", "acc", condition="pid % 2 == 1 and acc.max() > 0"),
    )
    assert len(summary) == len(whole) == 12
    assert 0 < len(chosen) <= 6


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.uint8, torch.bool]
)
def test_element_types(dtype: torch.dtype) -> None:
    def run(device: str) -> None:
        x = (torch.arange(300) * 7 % 251 - 100).to(dtype)
        if dtype.is_floating_point:
            x[3], x[5], x[7], x[9] = math.nan, math.inf, -math.inf, 0.0
            x[20:40] *= 1e-30
        x = x.to(device)
        elementwise[(3,)](x, torch.zeros_like(x), 300, BLOCK=128)

    both(
        run,
        lambda: spot(elementwise, "x = tl.load", "x"),
        lambda: spot(elementwise, "x = tl.load", "x", whole=True),
        lambda: spot(twice, "doubled =", "doubled", condition="doubled.mean() > -1000"),
        lambda: spot(elementwise, "y = y - 1", "y"),
    )


def test_loops_and_branches() -> None:
    def run(device: str) -> None:
        loops[(1,)](torch.zeros(1, dtype=torch.int32, device=device), 3)
        branches[(1,)](torch.zeros(8, dtype=torch.int32, device=device), 8)

    both(
        run,
        lambda: spot(loops, "part =", "part"),
        lambda: spot(loops, "total = total", "total"),
        lambda: spot(branches, "late = ", "late"),
    )


def test_every_launch_is_watched_and_nothing_waits() -> None:
    x = torch.randn(1 << 16, device="cuda")
    out = torch.zeros_like(x)
    with (
        tkdebug.mode("native"),
        watched(lambda: spot(elementwise, "x = tl.load", "x", programs="7")) as (found,),
    ):
        for _ in range(100):
            elementwise[(64,)](x, out, x.numel(), BLOCK=1024)
        assert len(found.values) == 100


def test_buffer_that_is_full(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.randn(1 << 16, device="cuda")
    with (
        tkdebug.mode("native"),
        knobs.scope(watch_buffer_bytes=1 << 14),
        watched(lambda: spot(elementwise, "x = tl.load", "x")) as (found,),
    ):
        elementwise[(64,)](x, x, x.numel(), BLOCK=1024)
        assert (len(found.values), found.seen) == ((1 << 14) // 584, 64)
    assert "28 of 64 values were kept" in capsys.readouterr().err


def test_watch_of_a_kernel_that_was_compiled_before() -> None:
    x = torch.ones(64, device="cuda")
    with tkdebug.mode("native"):
        elementwise[(1,)](x, x, 64, BLOCK=64)
        with watched(lambda: spot(elementwise, "x = tl.load", "x")) as (found,):
            elementwise[(1,)](x, x, 64, BLOCK=64)
        elementwise[(1,)](x, x, 64, BLOCK=64)
    assert found.seen == 1
