"""The figures that a GPU reaches: kernels that use all of one resource, and their times.

Each kernel uses one thing alone (memory, second-level cache, products, FMAs), and its result
depends on all its work, so that none of it can be left out. Sizes, repeats and medians are decided
here; the source of time is given. Each load runs on the current CUDA device as any launch does;
without one, kernels are interpreted, and tests give a made-up source of time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Protocol

import torch

import tkdebug.language as tl
from tkdebug.advice.machines import Ceiling
from tkdebug.runtime.jit.function import jit

# Steps of an inner, unrolled loop.
FMA_STEPS = 16


@jit
def copy(x, out, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Read each element once and write it once."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))


@jit
def add(x, y, out, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Two elements read for each that is written."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) + tl.load(y + at))


@jit
def read_once(x, out, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Read each element once, and write a sum of each block."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + at)))


@jit
def read_again(x, out, blocks, rounds, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Read a buffer that fits the second-level cache, all programs in turn."""
    pid = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for turn in range(rounds):
        block = (pid + turn * 61) % blocks
        total += tl.load(x + block * BLOCK + at, cache_modifier=".cg")
    tl.store(out + pid * BLOCK + at, total)


@jit
def products(x, y, out, rounds, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute one product of tiles again and again, operands read once."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(x + m[:, None] * K + k[None, :])
    b = tl.load(y + k[:, None] * N + n[None, :])
    total = tl.zeros((M, N), tl.float32)
    for _ in range(rounds):
        total = tl.dot(a, b, total)
    at = tl.program_id(0) * M * N + m[:, None] * N + n[None, :]
    tl.store(out + at, total)


@jit
def multiply_add(x, out, scale, shift, rounds, BLOCK: tl.constexpr, STEPS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Chains of fp32 FMAs, as many beside each other as a thread has elements."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at)
    for _ in range(rounds):
        for _ in tl.static_range(STEPS):
            value = value * scale + shift
    tl.store(out + at, value)


REPEATS = 9
_WARM_UPS = 3
_FLOAT_BYTES = 4
_NS_PER_S = 1e9
_FP8_CAPABILITY = 89
_BF16_CAPABILITY = 80
# Hopper multiplies by warpgroups, which take wider tiles.
_WARPGROUPS = 9
_WARPGROUP_TILE, _TILE = (128, 256), (128, 128)


class Timing(Protocol):
    """The source of times and clocks."""

    def time_ns(self, run: Callable[[], object]) -> float:
        """The time of `run` on the device."""
        ...

    def sm_mhz(self, run: Callable[[], object]) -> int | None:
        """The clock of the multiprocessors while `run` runs; None if it is not known."""
        ...


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the measured work.

    Attributes:
        copied: elements of fp32 that are copied, a multiple of `block`.
        cached: elements of fp32 of the buffer in the second-level cache, a multiple of `block`.
        block: elements of a program.
        tile: rows and columns of a product; None for the architecture's fastest.
        depth_bytes: the depth of a product's operands, in bytes.
        programs_per_sm: the number of programs for each multiprocessor that keeps it busy.
        rounds: the iterations of loops in kernels.
    """

    copied: int = 1 << 28
    cached: int = 1 << 22
    block: int = 4096
    tile: tuple[int, int] | None = None
    depth_bytes: int = 256
    programs_per_sm: int = 8
    rounds: int = 2048


@dataclass(frozen=True, slots=True)
class Load:
    """A load to measure: one `run` moves or computes `amount` bytes or flops."""

    name: str
    amount: float
    run: Callable[[], object]


def loads(sms: int, capability: int, sizes: Sizes, device: str) -> Iterator[Load]:
    """The loads to measure, each made when it is asked for, since it takes memory.

    Several of a name are ways to use the same thing: the best counts. Data are random, since a GPU
    takes less power, and so is faster, on zeros.

    Args:
        sms: multiprocessors of the device.
        capability: compute capability times ten.
        sizes: the amounts of work.
        device: the device of the tensors.
    """
    for load in (_reading, _copying, _adding_tensors):
        yield load(sizes, device)
    yield _reading_again(sms, sizes, device)
    yield _adding(sms, sizes, device)
    tile = sizes.tile or (_WARPGROUP_TILE if capability // 10 == _WARPGROUPS else _TILE)
    for name, dtype in _product_types(capability):
        yield _multiplying(name, dtype, sms, tile, sizes, device)


def _reading(sizes: Sizes, device: str) -> Load:
    x, blocks = torch.randn(sizes.copied, device=device), sizes.copied // sizes.block
    run = partial(read_once[(blocks,)], x, torch.empty(blocks, device=device), BLOCK=sizes.block)
    return Load("memory", _FLOAT_BYTES * (sizes.copied + blocks), run)


def _adding_tensors(sizes: Sizes, device: str) -> Load:
    x, y = (torch.randn(sizes.copied, device=device) for _ in range(2))
    grid = (sizes.copied // sizes.block,)
    run = partial(add[grid], x, y, torch.empty_like(x), BLOCK=sizes.block)
    return Load("memory", 3 * _FLOAT_BYTES * sizes.copied, run)


def _copying(sizes: Sizes, device: str) -> Load:
    x = torch.randn(sizes.copied, device=device)
    run = partial(copy[(sizes.copied // sizes.block,)], x, torch.empty_like(x), BLOCK=sizes.block)
    return Load("memory", 2 * _FLOAT_BYTES * sizes.copied, run)


def _reading_again(sms: int, sizes: Sizes, device: str) -> Load:
    programs = sms * sizes.programs_per_sm
    x = torch.randn(sizes.cached, device=device)
    out = torch.empty(programs * sizes.block, device=device)
    blocks, rounds = sizes.cached // sizes.block, max(1, sizes.rounds // 16)
    run = partial(read_again[(programs,)], x, out, blocks, rounds, BLOCK=sizes.block)
    return Load("L2 cache", float(_FLOAT_BYTES * sizes.block * programs * rounds), run)


def _adding(sms: int, sizes: Sizes, device: str) -> Load:
    programs = sms * sizes.programs_per_sm
    x = torch.randn(programs * sizes.block, device=device)
    arguments = (x, torch.empty_like(x), 0.5, 0.25, sizes.rounds)
    run = partial(
        multiply_add[(programs,)], *arguments, BLOCK=sizes.block, STEPS=FMA_STEPS, num_warps=8
    )
    return Load("fp32", 2.0 * FMA_STEPS * sizes.rounds * programs * sizes.block, run)


def _product_types(capability: int) -> Iterator[tuple[str, torch.dtype]]:
    yield "tensor fp16", torch.float16
    if capability >= _BF16_CAPABILITY:
        yield "tensor bf16", torch.bfloat16
        yield "tensor tf32", torch.float32
    if capability >= _FP8_CAPABILITY:
        yield "tensor fp8", torch.float8_e4m3fn


def _multiplying(
    name: str, dtype: torch.dtype, sms: int, tile: tuple[int, int], sizes: Sizes, device: str
) -> Load:
    rows, columns = tile
    depth = sizes.depth_bytes // dtype.itemsize
    x = torch.randn(rows, depth, device=device).to(dtype)
    y = torch.randn(depth, columns, device=device).to(dtype)
    out = torch.empty(sms, rows, columns, device=device)
    run = partial(
        products[(sms,)], x, y, out, sizes.rounds, M=rows, N=columns, K=depth, num_warps=8
    )
    return Load(name, 2.0 * rows * columns * depth * sizes.rounds * sms, run)


def measure(load: Load, timing: Timing, repeats: int = REPEATS) -> Ceiling:
    """The ceiling that a load shows: the median of its repeats."""
    for _ in range(_WARM_UPS):
        load.run()
    rates = [load.amount / timing.time_ns(load.run) * _NS_PER_S for _ in range(repeats)]
    return Ceiling(median(rates), min(rates), max(rates), repeats, timing.sm_mhz(load.run))


def higher(known: Ceiling | None, found: Ceiling) -> Ceiling:
    """Return the ceiling of the higher rate, of two ways to use the same resource."""
    return found if known is None or found.rate > known.rate else known
