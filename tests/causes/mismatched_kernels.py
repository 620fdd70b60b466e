"""Kernels whose results are wrong, by one statement each, and right ones beside them."""

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def scaled_rows(x_ptr, s_ptr, o_ptr, M, N, sxm, sxn, BM: tl.constexpr, BN: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    x = tl.load(x_ptr + rm[:, None] * sxn + rn[None, :] * sxm, mask=mask, other=0.0)  # WRONG rows
    s = tl.load(s_ptr + rm, mask=rm < M, other=0.0)
    tl.store(o_ptr + rm[:, None] * N + rn[None, :], x * s[:, None], mask=mask)


@tkdebug.jit
def softmax(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=-float("inf"))
    e = tl.exp2(x - tl.max(x, axis=0))  # WRONG base
    tl.store(y_ptr + row * N + cols, e / tl.sum(e, axis=0), mask=mask)


@tkdebug.jit
def right_softmax(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * N + cols, e / tl.sum(e, axis=0), mask=mask)


@tkdebug.jit
def momentum(p_ptr, g_ptr, b_ptr, rate, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    p = tl.load(p_ptr + i, mask=i < n)
    b = tl.load(b_ptr + i, mask=i < n)
    new = 0.5 * b + tl.load(g_ptr + i, mask=i < n)
    tl.store(b_ptr + i, new, mask=i < n)
    tl.store(p_ptr + i, p - rate * b, mask=i < n)  # WRONG step


@tkdebug.jit
def doubled(x):
    return x + x + x  # WRONG callee


@tkdebug.jit
def twice(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o_ptr + i, doubled(tl.load(x_ptr + i, mask=i < n)), mask=i < n)


@tkdebug.jit
def added(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=i < n) - 1.0, mask=i < n)  # WRONG first


@tkdebug.jit
def in_place(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) * 3.0, mask=i < n)  # WRONG place


@tkdebug.jit
def suffix_sums(x_ptr, o_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    s = tl.sum(x) - tl.cumsum(x) + x  # WRONG precision
    tl.store(o_ptr + i, s)


@tkdebug.jit
def tripled(x_ptr, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out[0] + i, tl.load(x_ptr + i) * 2)  # WRONG factor


@tkdebug.jit
def variances(x_ptr, o_ptr, n, N: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * n + tl.arange(0, N))
    mean = tl.sum(x) / n
    tl.store(o_ptr + tl.program_id(0), tl.sum(x * x) / n - mean * mean)  # WRONG variance


@tkdebug.jit
def half_sums(x_ptr, o_ptr, N, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros((B,), dtype=tl.float16)  # WRONG accumulator
    for k in range(0, N):
        acc += tl.load(x_ptr + k * B + i)
    tl.store(o_ptr + i, acc)


@tkdebug.jit
def two_mistakes(x_ptr, o_ptr, factor, N: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, N)
    x = tl.load(x_ptr + row + i * N)
    tl.store(o_ptr + row, tl.sum(x * x, axis=0) * factor)


@tkdebug.jit
def locked_add(data_ptr, lock_ptr):
    i = tl.arange(0, 16)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(data_ptr + i, tl.load(data_ptr + i) + 1.0)
    tl.atomic_xchg(lock_ptr, 0)


def mismatch(faults):
    """The only mismatch among faults."""
    (fault,) = (fault for fault in faults if fault.kind == "mismatch")
    return fault
