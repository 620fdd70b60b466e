"""Kernels whose dots have factors that programs share, and sums that nobody else sees, or does."""

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def grouped(a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Programs in groups of 2 rows of tiles; the last tile of K may be cut."""
    pid, tiles_n = tl.program_id(0), N // BN
    first = pid // (2 * tiles_n) * 2
    rows = min(M // BM - first, 2)
    tile_m, tile_n = first + pid % (2 * tiles_n) % rows, pid % (2 * tiles_n) // rows
    m, n, k = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inside = k + start < K
        x = tl.load(a + m[:, None] * K + (k + start)[None, :], mask=inside[None, :], other=0.0)
        y = tl.load(b + (k + start)[:, None] * N + n[None, :], mask=inside[:, None], other=0.0)
        acc = tl.dot(x, y, acc)
    tl.store(out + m[:, None] * N + n[None, :], acc)


@tkdebug.jit
def by_columns(a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Programs along M share b; their trip counts differ."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = counted = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K - tl.program_id(0) % 3 * BK, BK):
        x = tl.load(a + m[:, None] * K + (k + start)[None, :])
        y = tl.load(b + (k + start)[:, None] * N + n[None, :])
        # Not 0 where a program has left the loop.
        acc = tl.dot(x, y, tl.dot((x + 1).to(x.dtype), (y + 1).to(y.dtype), acc))
        ones = tl.full((BM, BK), 1, x.dtype)
        counted = tl.dot(ones, tl.full((BK, BN), 1, x.dtype), counted)
    tl.store(out + m[:, None] * N + n[None, :], acc + counted)


@tkdebug.jit
def by_rows(a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Programs along N share a; the sum is looked at in each iteration, and begins again."""
    m, n = tl.program_id(1) * BM + tl.arange(0, BM), tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    most = tl.zeros((BM, BN), dtype=tl.float32)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(2):
        before = total
        for start in range(0, K, BK):
            x = tl.load(a + m[:, None] * K + (k + start)[None, :])
            y = tl.load(b + (k + start)[:, None] * N + n[None, :])
            total = tl.dot(x, y, total)
        most = tl.maximum(most, total - before)
    tl.store(out + m[:, None] * N + n[None, :], most + total)


@tkdebug.jit
def rescaled(a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A sum that is scaled before each product, and a product that is a factor and a sum, too."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inside = k + start < K
        x = tl.load(a + m[:, None] * K + (k + start)[None, :], mask=inside[None, :], other=0.0)
        y = tl.load(b + (k + start)[:, None] * N + n[None, :], mask=inside[:, None], other=0.0)
        shrink = tl.exp2(tl.max(acc, axis=1) * -0.1)
        acc = tl.dot(x, y, acc * shrink[:, None])
    if BM == BN:
        square = acc * 0.5
        acc = tl.dot(square, acc, square, input_precision="ieee")
    tl.store(out + m[:, None] * N + n[None, :], acc)
