"""Costs of `tkdebug numerics`: processor time of launches, looked at and not.

    python bench/numerics.py

Per kernel: a launch as it is interpreted; the launch with some of its programs looked at, and with
all of them, as multiples of that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from statistics import median

import torch

import tkdebug
import tkdebug.language as tl

ROUNDS, WHOLE_ROUNDS = 25, 5


@tkdebug.jit
def elementwise(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a, b = tl.load(x + i, mask=i < n), tl.load(y + i, mask=i < n)
    tl.store(o + i, a * b + a, mask=i < n)


@tkdebug.jit
def softmax(x, o, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + row * n + i, e / tl.sum(e, 0), mask=i < n)


@tkdebug.jit
def layer_norm(x, w, o, n, eps, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    mean = tl.sum(v, 0) / n
    centred = tl.where(i < n, v - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / n + eps)
    weight = tl.load(w + i, mask=i < n)
    tl.store(o + row * n + i, centred * scale * weight, mask=i < n)


@tkdebug.jit
def matmul(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + start + k[None, :])
        y = tl.load(b + (start + k[:, None]) * N + n[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.float16))


@tkdebug.jit
def attention(q, k, v, o, n, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(1) * n * D
    rows, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    x = tl.load(q + head + rows[:, None] * D + d[None, :])
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, n, BN):
        cols = start + tl.arange(0, BN)
        s = tl.dot(x, tl.load(k + head + cols[None, :] * D + d[:, None])) * scale
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        shrink = tl.exp2(top - new)
        total = total * shrink + tl.sum(p, 1)
        values = tl.load(v + head + cols[:, None] * D + d[None, :])
        acc = tl.dot(p.to(tl.float16), values, acc * shrink[:, None])
        top = new
    tl.store(o + head + rows[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16))


def launches() -> dict[str, Callable[[], object]]:
    """The launches, by name."""
    x, y, o = (torch.randn(1 << 20) for _ in range(3))
    rows, out, weight = torch.randn(2048, 1000), torch.empty(2048, 1000), torch.randn(1000)
    halves = torch.randn(2048, 1000).half()
    a, b = torch.randn(1024, 512).half(), torch.randn(512, 1024).half()
    c = torch.empty(1024, 1024, dtype=torch.float16)
    q, k, v = (torch.randn(8, 1024, 64).half() for _ in range(3))
    r = torch.empty_like(q)
    return {
        "elementwise, 1 M": lambda: elementwise[(1024,)](x, y, o, 1 << 20, B=1024),
        "softmax, 2048 x 1000": lambda: softmax[(2048,)](rows, out, 1000, B=1024),
        "layer norm, 2048 x 1000": lambda: layer_norm[(2048,)](
            halves, weight, out, 1000, 1e-5, B=1024
        ),
        "matmul, 1024 x 1024 x 512": lambda: matmul[(16, 16)](
            a, b, c, 1024, 512, BM=64, BN=64, BK=32
        ),
        "attention, 8 x 1024 x 64": lambda: attention[(16, 8)](
            q, k, v, r, 1024, 0.18, BM=64, BN=64, D=64
        ),
    }


def seconds(launch: Callable[[], object], **options: object) -> float:
    """The processor time of a launch, looked at where there are options."""
    looked_at = tkdebug.numerics(seconds=1000.0, **options) if options else nullcontext()  # type: ignore[arg-type]
    with looked_at:
        begun = time.process_time()
        launch()
        return time.process_time() - begun


def cost(launch: Callable[[], object], rounds: int, **options: object) -> tuple[float, float]:
    """The medians of a launch's processor time and of its cost, from runs that take turns."""
    pairs = [(seconds(launch), seconds(launch, **options)) for _ in range(rounds)]
    return median(plain for plain, _ in pairs), median(some / plain for plain, some in pairs)


def main() -> None:
    """Print a row for each launch."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| launch | interpreted | some programs looked at | all |")
    print("|---|---|---|---|")
    with tkdebug.mode("interpret"):
        for name, launch in launches().items():
            cost(launch, 1, launches=1)
            plain, some = cost(launch, ROUNDS, launches=1)
            whole = cost(launch, WHOLE_ROUNDS, whole=True)[1]
            print(f"| {name} | {plain * 1e3:.1f} ms | {some:.2f}x | {whole:.1f}x |")


if __name__ == "__main__":
    main()
