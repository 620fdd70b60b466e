"""Kernels that ask a GPU for one thing alone: memory, its second-level cache, products, FMAs.

Each kernel's result depends on all that it does, so that nothing of it can be left out.
"""

from __future__ import annotations

import tkdebug.language as tl
from tkdebug.runtime.jit.function import jit

# Of an inner, unrolled loop.
FMA_STEPS = 16


@jit
def copy(x, out, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Each element read once and written once."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))


@jit
def add(x, y, out, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Two elements read for each that is written."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) + tl.load(y + at))


@jit
def read_once(x, out, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Each element read once; a sum of each block is written."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + at)))


@jit
def read_again(x, out, blocks, rounds, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """A buffer that fits the second-level cache, read by all programs in turns, past the first."""
    pid = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for turn in range(rounds):
        block = (pid + turn * 61) % blocks
        total += tl.load(x + block * BLOCK + at, cache_modifier=".cg")
    tl.store(out + pid * BLOCK + at, total)


@jit
def products(x, y, out, rounds, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):  # type: ignore[no-untyped-def]
    """One product of tiles again and again, operands read once."""
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
