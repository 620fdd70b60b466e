"""The benchmark's kernels: one file, run by either interpreter, writing its times as JSON.

Started by `bench/interpreter.py`, under upstream's interpreter (`TRITON_INTERPRET=1 python`) and
under tkdebug (`tkdebug run --mode interpret`). Tensors are on the CPU for both.

    kernels.py WORK REPEATS OUTPUT.json
"""

from __future__ import annotations

import json
import math
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import triton
import triton.language as tl

THREADS = 2
# ru_maxrss counts KiB on Linux and bytes on macOS.
RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, x_stride, out_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=-float("inf"))
    exponentials = tl.exp(x - tl.max(x, axis=0))
    probabilities = exponentials / tl.sum(exponentials, axis=0)
    tl.store(out_ptr + row * out_stride + cols, probabilities, mask=mask)


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    programs_in_group = GROUP_M * tiles_n
    first_m = (pid // programs_in_group) * GROUP_M
    rows = min(tiles_m - first_m, GROUP_M)
    tile_m = first_m + (pid % programs_in_group) % rows
    tile_n = (pid % programs_in_group) // rows

    offs_m = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_n = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    offs_cm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_cn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + offs_cm[:, None] * stride_cm + offs_cn[None, :] * stride_cn
    tl.store(c_ptrs, acc, mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    scale_log2,
    stride_head,
    stride_row,
    n_tokens,
    HEAD_DIM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    head_offset = tl.program_id(1) * stride_head
    offs_q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, HEAD_DIM)
    q_tile = head_offset + offs_q[:, None] * stride_row + offs_d[None, :]
    q = tl.load(q_ptr + q_tile, mask=offs_q[:, None] < n_tokens, other=0.0)
    row_max = tl.full([BLOCK_Q], -float("inf"), dtype=tl.float32)
    row_sum = tl.zeros([BLOCK_Q], dtype=tl.float32)
    acc = tl.zeros([BLOCK_Q, HEAD_DIM], dtype=tl.float32)
    for start in range(0, n_tokens, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        k_tile = head_offset + offs_k[None, :] * stride_row + offs_d[:, None]
        k = tl.load(k_ptr + k_tile, mask=offs_k[None, :] < n_tokens, other=0.0)
        scores = tl.dot(q, k) * scale_log2
        scores = tl.where(offs_k[None, :] < n_tokens, scores, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_max[:, None])
        shrink = tl.exp2(row_max - new_max)
        row_sum = row_sum * shrink + tl.sum(weights, axis=1)
        v_tile = head_offset + offs_k[:, None] * stride_row + offs_d[None, :]
        v = tl.load(v_ptr + v_tile, mask=offs_k[:, None] < n_tokens, other=0.0)
        acc = tl.dot(weights, v, acc * shrink[:, None])
        row_max = new_max
    tl.store(out_ptr + q_tile, acc / row_sum[:, None], mask=offs_q[:, None] < n_tokens)


@triton.jit
def embedding_kernel(
    tokens_ptr,
    table_ptr,
    out_ptr,
    n_tokens,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    in_range = offs < n_tokens
    tokens = tl.load(tokens_ptr + offs, mask=in_range, other=0)
    cols = tl.arange(0, DIM)
    rows = tl.load(table_ptr + tokens[:, None] * DIM + cols[None, :], mask=in_range[:, None])
    tl.store(out_ptr + offs[:, None] * DIM + cols[None, :], rows, mask=in_range[:, None])


@triton.jit
def split_k_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    parts_ptr,
    arrived_ptr,
    M,
    N,
    K,
    SPLIT: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    tile_m, tile_n, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    offs_m = tile_m * BLOCK + tl.arange(0, BLOCK)
    offs_n = tile_n * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK, BLOCK], dtype=tl.float32)
    part = tl.cdiv(K, SPLIT)
    end = min(K, (split + 1) * part)
    for k in range(split * part, end, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        a_tile = offs_m[:, None] * K + offs_k[None, :]
        a = tl.load(a_ptr + a_tile, mask=(offs_m[:, None] < M) & (offs_k[None, :] < end), other=0.0)
        b_tile = offs_k[:, None] * N + offs_n[None, :]
        b = tl.load(b_ptr + b_tile, mask=(offs_k[:, None] < end) & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
    c_tile = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(parts_ptr + split * M * N + c_tile, acc, mask=mask)
    arrived = tl.atomic_add(arrived_ptr + tile_m * tl.num_programs(1) + tile_n, 1)
    if arrived % SPLIT == SPLIT - 1:
        total = tl.zeros([BLOCK, BLOCK], dtype=tl.float32)
        for other in range(SPLIT):
            total += tl.load(parts_ptr + other * M * N + c_tile, mask=mask, other=0.0)
        tl.store(c_ptr + c_tile, total, mask=mask)


@triton.jit
def locked_sum_kernel(x_ptr, out_ptr, lock_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + offs)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(out_ptr + offs, tl.load(out_ptr + offs) + x)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def paged_prefill_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    k_cache_ptr,
    v_cache_ptr,
    pages_ptr,
    starts_ptr,
    lengths_ptr,
    cached_ptr,
    out_ptr,
    scale_log2,
    stride_pages,
    stride_row,
    stride_head,
    stride_page,
    stride_slot,
    stride_cached_head,
    GROUP: tl.constexpr,
    PAGE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    # The new tokens of a sequence attend to those in the cache, by pages, and to those before them.
    sequence, head = tl.program_id(0), tl.program_id(1)
    kv_head = head // GROUP
    first, length = tl.load(starts_ptr + sequence), tl.load(lengths_ptr + sequence)
    cached = tl.load(cached_ptr + sequence)
    offs_q = tl.program_id(2) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, HEAD_DIM)
    q_tile = (first + offs_q[:, None]) * stride_row + head * stride_head + offs_d[None, :]
    q_mask = offs_q[:, None] < length
    q = tl.load(q_ptr + q_tile, mask=q_mask, other=0.0)
    row_max = tl.full([BLOCK_Q], -float("inf"), dtype=tl.float32)
    row_sum = tl.zeros([BLOCK_Q], dtype=tl.float32)
    acc = tl.zeros([BLOCK_Q, HEAD_DIM], dtype=tl.float32)
    for start in range(0, cached, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        inside = offs_k < cached
        page = tl.load(pages_ptr + sequence * stride_pages + offs_k // PAGE, mask=inside, other=0)
        slot = page * stride_page + (offs_k % PAGE) * stride_slot + kv_head * stride_cached_head
        k = tl.load(k_cache_ptr + slot[None, :] + offs_d[:, None], mask=inside[None, :], other=0.0)
        v = tl.load(v_cache_ptr + slot[:, None] + offs_d[None, :], mask=inside[:, None], other=0.0)
        scores = tl.dot(q, k)
        scores = tl.where(inside[None, :], scores, -float("inf"))
        scores *= scale_log2
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_max[:, None])
        shrink = tl.exp2(row_max - new_max)
        row_sum = row_sum * shrink + tl.sum(weights, axis=1)
        acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None])
        row_max = new_max
    last = tl.where(tl.program_id(2) * BLOCK_Q < length, (tl.program_id(2) + 1) * BLOCK_Q, 0)
    for start in range(0, last, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        row = (first + offs_k) * stride_row // GROUP + kv_head * stride_head
        k = tl.load(
            k_ptr + row[None, :] + offs_d[:, None], mask=offs_k[None, :] < length, other=0.0
        )
        v = tl.load(
            v_ptr + row[:, None] + offs_d[None, :], mask=offs_k[:, None] < length, other=0.0
        )
        scores = tl.dot(q, k) * scale_log2
        scores = tl.where(offs_q[:, None] >= offs_k[None, :], scores, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_max[:, None])
        shrink = tl.exp2(row_max - new_max)
        row_sum = row_sum * shrink + tl.sum(weights, axis=1)
        acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None])
        row_max = new_max
    tl.store(out_ptr + q_tile, acc / row_sum[:, None], mask=q_mask)


@dataclass(frozen=True)
class Work:
    """One row of the benchmark: `launch` fills `out`, `eager` gives what it must hold."""

    launch: Callable[[], object]
    eager: Callable[[], torch.Tensor]
    out: torch.Tensor
    tolerance: float


def vector_add() -> Work:
    n, block = 1 << 20, 1024
    x, y = torch.rand(n), torch.rand(n)
    out = torch.empty(n)
    return Work(
        lambda: add_kernel[(n // block,)](x, y, out, n, BLOCK=block), lambda: x + y, out, 0.0
    )


def softmax() -> Work:
    rows, cols = 1823, 781
    x = torch.randn(rows, cols)
    out = torch.empty_like(x)
    return Work(
        lambda: softmax_kernel[(rows,)](x, out, x.stride(0), out.stride(0), cols, BLOCK=1024),
        lambda: torch.softmax(x, dim=1),
        out,
        1e-6,
    )


def matmul() -> Work:
    size, tile = 512, 32
    a, b = torch.rand(size, size) - 0.5, torch.rand(size, size) - 0.5
    c = torch.empty(size, size)
    strides = (*a.stride(), *b.stride(), *c.stride())
    tiles = {"BLOCK_M": tile, "BLOCK_N": tile, "BLOCK_K": tile, "GROUP_M": 8}
    grid = ((size // tile) ** 2,)
    return Work(
        lambda: matmul_kernel[grid](a, b, c, size, size, size, *strides, **tiles),
        lambda: a @ b,
        c,
        # Inputs of a dot are cut to tf32, 10 bits of mantissa.
        2e-2,
    )


def attention(tokens: int = 512) -> Work:
    heads, dim, tile = 4, 64, 64
    q, k, v = (torch.randn(heads, tokens, dim) for _ in range(3))
    out = torch.empty_like(q)
    scale_log2 = math.log2(math.e) / math.sqrt(dim)
    return Work(
        lambda: attention_kernel[(triton.cdiv(tokens, tile), heads)](
            q,
            k,
            v,
            out,
            scale_log2,
            q.stride(0),
            q.stride(1),
            tokens,
            HEAD_DIM=dim,
            BLOCK_Q=tile,
            BLOCK_K=tile,
        ),
        lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v),
        out,
        2e-2,
    )


def embedding() -> Work:
    n_tokens, vocabulary, dim, block = 16_384, 50_000, 256, 16
    tokens = torch.randint(0, vocabulary, (n_tokens,))
    table = torch.randn(vocabulary, dim)
    out = torch.empty(n_tokens, dim)
    grid = (n_tokens // block,)
    return Work(
        lambda: embedding_kernel[grid](tokens, table, out, n_tokens, DIM=dim, BLOCK=block),
        lambda: torch.nn.functional.embedding(tokens, table),
        out,
        0.0,
    )


def ragged_attention() -> Work:
    return attention(500)


def split_k() -> Work:
    m, n, k, split, block = 250, 250, 500, 4, 64
    a, b = torch.rand(m, k) - 0.5, torch.rand(k, n) - 0.5
    c, parts = torch.empty(m, n), torch.empty(split, m, n)
    tiles = triton.cdiv(m, block), triton.cdiv(n, block)
    arrived = torch.zeros(tiles, dtype=torch.int32)
    grid, sizes = (*tiles, split), {"SPLIT": split, "BLOCK": block, "BLOCK_K": 32}
    return Work(
        lambda: split_k_kernel[grid](a, b, c, parts, arrived, m, n, k, **sizes),
        lambda: a @ b,
        c,
        2e-2,
    )


def paged_prefill() -> Work:
    heads, kv_heads, dim, page, block = 8, 2, 64, 16, 64
    lengths, cached = [150, 61, 128, 5], [200, 33, 512, 480]
    starts = [sum(lengths[:place]) for place in range(len(lengths))]
    rows, most = sum(lengths), max(cached) // page
    q = torch.randn(rows, heads, dim)
    k, v = (torch.randn(rows, kv_heads, dim) for _ in range(2))
    k_cache, v_cache = (torch.randn(len(lengths) * most, page, kv_heads, dim) for _ in range(2))
    pages = torch.randperm(len(lengths) * most).view(len(lengths), most)
    out = torch.empty_like(q)
    tables = [torch.tensor(each) for each in (starts, lengths, cached)]
    grid = (len(lengths), heads, triton.cdiv(max(lengths), block))
    strides = (pages.stride(0), *q.stride()[:2], *k_cache.stride()[:3])
    group = heads // kv_heads

    def eager() -> torch.Tensor:
        parts = []
        for place, (first, length, before) in enumerate(zip(starts, lengths, cached, strict=True)):
            both = []
            for cache, new in ((k_cache, k), (v_cache, v)):
                old = cache[pages[place]].flatten(0, 1)[:before]
                whole = torch.cat([old, new[first : first + length]]).repeat_interleave(group, 1)
                both.append(whole.transpose(0, 1))
            sees = torch.ones(length, before + length, dtype=torch.bool).tril(before)
            mine = q[first : first + length].transpose(0, 1)
            attend = torch.nn.functional.scaled_dot_product_attention
            parts.append(attend(mine, *both, attn_mask=sees).transpose(0, 1))
        return torch.cat(parts)

    return Work(
        lambda: paged_prefill_kernel[grid](
            q,
            k,
            v,
            k_cache,
            v_cache,
            pages,
            *tables,
            out,
            math.log2(math.e) / math.sqrt(dim),
            *strides,
            GROUP=group,
            PAGE=page,
            HEAD_DIM=dim,
            BLOCK_Q=block,
            BLOCK_K=block,
        ),
        eager,
        out,
        2e-2,
    )


def locked_sum() -> Work:
    programs, block = 64, 1024
    x, out, lock = (
        torch.rand(programs, block),
        torch.zeros(block),
        torch.zeros(1, dtype=torch.int32),
    )

    def launch() -> None:
        out.zero_()
        locked_sum_kernel[(programs,)](x, out, lock, BLOCK=block)

    return Work(launch, lambda: x.sum(0), out, 1e-4)


def tiny_launch() -> Work:
    n = 64
    x, y = torch.rand(n), torch.rand(n)
    out = torch.empty(n)
    return Work(lambda: add_kernel[(1,)](x, y, out, n, BLOCK=n), lambda: x + y, out, 0.0)


WORKS = {
    "vector-add": vector_add,
    "softmax": softmax,
    "matmul": matmul,
    "attention": attention,
    "ragged-attention": ragged_attention,
    "paged-prefill": paged_prefill,
    "split-k": split_k,
    "locked-sum": locked_sum,
    "embedding": embedding,
    "tiny-launch": tiny_launch,
}


def times_ms(function: Callable[[], object], repeats: int) -> list[float]:
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        found.append((time.perf_counter() - start) * 1e3)
    return found


def medians_ms(
    functions: Sequence[Callable[[], object]], repeats: int, together: int = 10
) -> list[float]:
    """The functions take turns, some calls together: what else the machine does slows all."""
    found: list[list[float]] = [[] for _ in functions]
    for done in range(0, repeats, together):
        for times, function in zip(found, functions, strict=True):
            times += times_ms(function, min(together, repeats - done))
    return [statistics.median(times) for times in found]


def measure(name: str, repeats: int) -> dict[str, float]:
    torch.manual_seed(0)
    work = WORKS[name]()
    eager_ms = statistics.median(times_ms(work.eager, 21))
    rss_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # The first launch compiles; under upstream's interpreter, which does not, it may be the only.
    (first_ms,) = times_ms(work.launch, 1)
    launch_ms = first_ms
    if repeats > 1:
        eager_ms, launch_ms = medians_ms((work.eager, work.launch), repeats)
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    difference = (work.out - work.eager()).abs().max().item()
    if not difference <= work.tolerance:
        raise SystemExit(f"{name}: differs from torch by {difference}, allowed {work.tolerance}")
    return {
        "first_ms": first_ms,
        "launch_ms": launch_ms,
        "eager_ms": eager_ms,
        "difference": difference,
        "peak_rss_bytes": rss * RSS_UNIT_BYTES,
        "grown_rss_bytes": (rss - rss_before) * RSS_UNIT_BYTES,
    }


def main() -> None:
    name, repeats, output = sys.argv[1:]
    torch.set_num_threads(THREADS)
    result = measure(name, int(repeats))
    Path(output).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
