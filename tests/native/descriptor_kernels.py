"""Kernels whose descriptors become pointers and masks."""

from __future__ import annotations

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def copy_kernel(source, target, M, N, S, dy, dx, BM: tl.constexpr, BN: tl.constexpr,
                PAD: tl.constexpr):  # fmt: skip
    load = tl.make_tensor_descriptor(source, [M, N], [S, 1], [BM, BN], padding_option=PAD)
    store = tl.make_tensor_descriptor(target, [M, N], [S, 1], [BM, BN])
    y, x = tl.program_id(0) * BM + dy, tl.program_id(1) * BN + dx
    store.store([y, x], load.load([y - 1, x + 2]))


@tkdebug.jit
def far_kernel(source, target, M, N, y, x):
    load = tl.make_tensor_descriptor(source, [M, N], [N, 1], [4, 8])
    store = tl.make_tensor_descriptor(target, [4, 8], [8, 1], [4, 8])
    store.store([0, 0], load.load([y, x]))


@tkdebug.jit
def volume_kernel(source, target):
    block = source.load([tl.program_id(0), 1, tl.program_id(1) * 2, 4])
    target.store([tl.program_id(0), 0, tl.program_id(1) * 2, 4], block)


@tkdebug.jit
def carried_kernel(a, b, out, M, N, rounds, flag):
    first = tl.make_tensor_descriptor(a, [M, N], [N, 1], [4, 8])
    second = tl.make_tensor_descriptor(b, [M - 1, N], [N, 1], [4, 8])
    if flag:
        chosen = first
    else:
        chosen = second
    total = tl.zeros((4, 8), tl.float32)
    for i in range(rounds):
        total += chosen.load([i, 0])
        first, second = second, first
        total += first.load([4, i])
    while rounds > 0:
        total += 2 * first.load([rounds, 8])
        first, second = second, first
        rounds -= 1
    place = tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(out + place, total)
    tl.store(out + 32 + place, second.load([5, 3]))


@tkdebug.jit
def rows_kernel(source, target, rows):
    picked = tl.load(rows + tl.arange(0, 8))
    target.scatter(source.gather(picked, 4) * 2, picked, 12)


@tkdebug.jit
def reduce_kernel(desc, V, KIND: tl.constexpr):
    value = tl.load(V + tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :])
    getattr(desc, KIND)([tl.program_id(0) * 2, 4], value)
