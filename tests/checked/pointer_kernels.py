"""Kernels that load their pointers from memory."""

from __future__ import annotations

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def row_sums(table, out, n, B: tl.constexpr):
    row = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, B)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(row + at, mask=at < n, other=0.0)))


@tkdebug.jit
def scaled_rows(table, n, B: tl.constexpr):
    row = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    pointers = row + tl.arange(0, B)
    for _ in range(0, n, B):
        tl.store(pointers, tl.load(pointers) * 2)
        pointers += B


@tkdebug.jit
def counted(table, B: tl.constexpr):
    bins = tl.load(table).to(tl.pointer_type(tl.int32))
    tl.atomic_add(bins + tl.arange(0, B), 1)


@tkdebug.jit
def elements(table, out, B: tl.constexpr):
    at = tl.arange(0, B)
    each = tl.load(table + at).to(tl.pointer_type(tl.float32), bitcast=True)
    tl.store(out + at, tl.load(each))


@tkdebug.jit
def grouped_gemm(tables, strides, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    g = tl.program_id(0)
    a = tl.load(tables + g * 3).to(tl.pointer_type(tl.float16))
    b = tl.load(tables + g * 3 + 1).to(tl.pointer_type(tl.float16))
    c = tl.load(tables + g * 3 + 2).to(tl.pointer_type(tl.float16))
    lda, ldb, ldc = tl.load(strides), tl.load(strides + 1), tl.load(strides + 2)
    rows, columns, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    a_tile = a + rows[:, None] * lda + depth[None, :]
    b_tile = b + depth[:, None] * ldb + columns[None, :]
    total = tl.zeros((M, N), tl.float32)
    for _ in range(0, tl.cdiv(K, BK)):
        tl.multiple_of(a_tile, [16, 16])
        tl.multiple_of(b_tile, [16, 16])
        total += tl.dot(tl.load(a_tile), tl.load(b_tile))
        a_tile += BK
        b_tile += BK * ldb
    tl.store(c + rows[:, None] * ldc + columns[None, :], total.to(tl.float16))


@tkdebug.jit
def loaded_blocks(table, out, rows, B: tl.constexpr):
    x = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float16))
    block = tl.make_tensor_descriptor(x, [rows, 64], [64, 1], [B, 64])
    to = tl.make_tensor_descriptor(out, [2 * rows, 64], [64, 1], [B, 64])
    to.store([tl.program_id(0) * rows, 0], block.load([0, 0]))
