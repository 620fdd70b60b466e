"""Kernels whose descriptors become tensor maps, and numbers whose products are exact."""

from __future__ import annotations

import torch

import tkdebug
import tkdebug.language as tl

# Of products: the blocks, and what else the launch or the operands are given.
BLOCKS_AND_SETTINGS = (
    ((128, 128, 64), {}),
    ((128, 128, 64), {"turned": True, "num_stages": 4}),
    ((128, 256, 64), {"num_warps": 8}),
    ((64, 64, 16), {"num_stages": 2}),
    ((64, 64, 64), {"num_stages": 1}),
    ((64, 64, 32), {"dtype": torch.bfloat16}),
    ((64, 64, 32), {"dtype": torch.float32}),
    ((64, 64, 64), {"dtype": torch.float8_e4m3fn, "turned": True}),
)


@tkdebug.jit
def product_kernel(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                   B_TURNED: tl.constexpr = False):  # fmt: skip
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([m, k])
        if B_TURNED:
            b = b_desc.load([n, k]).T
        else:
            b = b_desc.load([k, n])
        acc = tl.dot(a, b, acc)
    c_desc.store([m, n], acc.to(c_desc.dtype))


def whole(shape, dtype=torch.float16):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(-4, 5, shape, generator=generator).to(dtype)


@tkdebug.jit
def persistent_kernel(a_desc, b_desc, c_desc, K, TILES, BM: tl.constexpr, BN: tl.constexpr,
                      BK: tl.constexpr):  # fmt: skip
    for tile in range(tl.program_id(0), TILES, tl.num_programs(0)):
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(a_desc.load([tile * BM, k]), b_desc.load([k, 0]), acc)
        c_desc.store([tile * BM, 0], acc.to(tl.float16))


@tkdebug.jit
def attention_kernel(q, k, v, o, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    x = q.load([tl.program_id(0) * BM, 0])
    acc = tl.zeros((BM, D), tl.float32)
    for j in range(0, N, BN):
        s = tl.dot(x, k.load([j, 0]).T)
        acc = tl.dot(s.to(tl.float16), v.load([j, 0]), acc)
    o.store([tl.program_id(0) * BM, 0], acc.to(tl.float16))


@tkdebug.jit
def scaled_kernel(a_desc, b_desc, bias, c_desc, pages, K, BK: tl.constexpr):
    acc = tl.zeros((64, 64), tl.float32)
    at = tl.arange(0, 64)
    for k in range(0, K, BK):
        page = tl.load(pages + k // BK)
        a = a_desc.load([0, k])
        a = tl.where(a > 0, a, a * 2)
        scale = tl.load(bias + k + tl.arange(0, BK)[:, None] + at[None, :] * 0)
        acc = tl.dot(a, b_desc.load([page * BK, 0]) * scale, acc)
    c_desc.store([0, 0], acc.to(tl.float16))


@tkdebug.jit
def made_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                HOW: tl.constexpr = ""):  # fmt: skip
    at = tl.program_id(0) * BM
    a_desc = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        b_desc = tl.make_tensor_descriptor(b, [K * 1, N], [N, 1], [BK, BN])
        acc = tl.dot(a_desc.load([at, k]), b_desc.load([k, 0]), acc)
    c_desc = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    if HOW == "at":
        at = at * (K // K)
    if HOW == "before":
        at = 0 - (0 - at)
    c_desc.store([at, 0], acc.to(tl.float16))
    if HOW == "read":
        tl.store(a + tl.arange(0, 64), tl.load(b + tl.arange(0, 64)))
