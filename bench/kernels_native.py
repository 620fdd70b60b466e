"""The native benchmark's kernels: one source for upstream's Triton and for tkdebug.

Which of the two `import triton` gives is settled before this is imported (`native_worker.py`).
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, x_stride, out_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=-float("inf"))
    exponentials = tl.exp(x - tl.max(x, axis=0))
    tl.store(
        out_ptr + row * out_stride + cols, exponentials / tl.sum(exponentials, axis=0), mask=mask
    )


@triton.jit
def layer_norm_kernel(
    x_ptr, out_ptr, weight_ptr, bias_ptr, stride, n_cols, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    x_ptr += row * stride
    out_ptr += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n_cols
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        centered = tl.where(cols < n_cols, x - mean, 0.0)
        squares += centered * centered
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        weight = tl.load(weight_ptr + cols, mask=mask)
        bias = tl.load(bias_ptr + cols, mask=mask)
        x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + cols, (x - mean) * scale * weight + bias, mask=mask)


def matmul_config(m: int, n: int, k: int, warps: int, stages: int) -> triton.Config:
    sizes = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}
    return triton.Config(sizes, num_warps=warps, num_stages=stages)


MATMUL_CONFIGS = [
    matmul_config(128, 256, 64, 8, 3),
    matmul_config(128, 256, 64, 8, 4),
    matmul_config(128, 128, 64, 4, 4),
    matmul_config(128, 128, 64, 8, 3),
    matmul_config(128, 256, 128, 8, 3),
    matmul_config(256, 128, 64, 8, 3),
    matmul_config(64, 256, 32, 4, 4),
    matmul_config(128, 128, 32, 4, 4),
]


@triton.autotune(configs=MATMUL_CONFIGS, key=["M", "N", "K"])
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
    ACC: tl.constexpr,
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
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        left = K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=offs_k[None, :] < left, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < left, other=0.0)
        acc = tl.dot(a, b, acc, out_dtype=ACC)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    out_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    out_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + out_m[:, None] * stride_cm + out_n[None, :] * stride_cn
    inside = (out_m[:, None] < M) & (out_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


def set_block_shapes(nargs: dict[str, Any]) -> None:
    """Let the descriptors have the blocks of the configuration that is tried."""
    m, n, k = (nargs[f"BLOCK_{axis}"] for axis in "MNK")
    nargs["a_desc"].block_shape = [m, k]
    nargs["b_desc"].block_shape = [k, n]
    nargs["c_desc"].block_shape = [m, n]


DESCRIPTOR_CONFIGS = [
    triton.Config(
        config.kwargs,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        pre_hook=set_block_shapes,
    )
    for config in MATMUL_CONFIGS
]


@triton.autotune(configs=DESCRIPTOR_CONFIGS, key=["M", "N", "K"])
@triton.jit
def descriptor_matmul_kernel(
    a_desc,
    b_desc,
    c_desc,
    M,
    N,
    K,
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
    start_m = (first_m + (pid % programs_in_group) % rows) * BLOCK_M
    start_n = ((pid % programs_in_group) // rows) * BLOCK_N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = a_desc.load([start_m, k])
        b = b_desc.load([k, start_n])
        acc = tl.dot(a, b, acc)
    c_desc.store([start_m, start_n], acc.to(c_desc.dtype))


def attention_config(m: int, n: int, warps: int, stages: int) -> triton.Config:
    return triton.Config({"BLOCK_M": m, "BLOCK_N": n}, num_warps=warps, num_stages=stages)


ATTENTION_CONFIGS = [
    attention_config(128, 64, 4, 3),
    attention_config(128, 64, 8, 3),
    attention_config(128, 128, 8, 2),
    attention_config(128, 128, 8, 3),
    attention_config(64, 64, 4, 3),
    attention_config(128, 32, 4, 4),
]


@triton.jit
def attend(
    acc,
    total,
    peak,
    q,
    k_ptrs,
    v_ptrs,
    stride_n,
    first,
    last,
    offs_m,
    offs_n,
    scale,
    BLOCK_N: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Take keys first to last into the running softmax of one block of queries."""
    k_ptrs += first * stride_n
    v_ptrs += first * stride_n
    for start in range(first, last, BLOCK_N):
        k = tl.load(k_ptrs)
        scores = tl.dot(q, k)
        if MASKED:
            seen = offs_m[:, None] >= start + offs_n[None, :]
            scores = scores * scale + tl.where(seen, 0.0, -1.0e6)
            new_peak = tl.maximum(peak, tl.max(scores, 1))
            scores -= new_peak[:, None]
        else:
            new_peak = tl.maximum(peak, tl.max(scores, 1) * scale)
            scores = scores * scale - new_peak[:, None]
        p = tl.math.exp2(scores)
        fade = tl.math.exp2(peak - new_peak)
        total = total * fade + tl.sum(p, 1)
        acc = acc * fade[:, None]
        v = tl.load(v_ptrs)
        acc = tl.dot(p.to(v.dtype), v, acc)
        peak = new_peak
        k_ptrs += BLOCK_N * stride_n
        v_ptrs += BLOCK_N * stride_n
    return acc, total, peak


@triton.autotune(configs=ATTENTION_CONFIGS, key=["n_tokens", "HEAD_DIM", "CAUSAL"])
@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    scale,
    stride_head,
    stride_token,
    n_tokens,
    HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Queries, keys and values of (heads, tokens, head dim); `scale` is in base 2."""
    start_m = tl.program_id(0) * BLOCK_M
    base = tl.program_id(1).to(tl.int64) * stride_head
    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, HEAD_DIM)
    q = tl.load(q_ptr + base + offs_m[:, None] * stride_token + offs_d[None, :])
    k_ptrs = k_ptr + base + offs_n[None, :] * stride_token + offs_d[:, None]
    v_ptrs = v_ptr + base + offs_n[:, None] * stride_token + offs_d[None, :]
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32) + 1.0
    peak = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    # Whole blocks before the diagonal need no mask.
    unmasked = start_m // BLOCK_N * BLOCK_N if CAUSAL else n_tokens
    acc, total, peak = attend(
        acc, total, peak, q, k_ptrs, v_ptrs, stride_token, 0, unmasked, offs_m, offs_n, scale,
        BLOCK_N, False,
    )  # fmt: skip
    if CAUSAL:
        acc, total, peak = attend(
            acc, total, peak, q, k_ptrs, v_ptrs, stride_token, unmasked, start_m + BLOCK_M, offs_m,
            offs_n, scale, BLOCK_N, True,
        )  # fmt: skip
    out = acc / total[:, None]
    out_ptrs = out_ptr + base + offs_m[:, None] * stride_token + offs_d[None, :]
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty))


@triton.jit
def embedding_kernel(tokens, table, out, n_rows, width, BLOCK: tl.constexpr):
    row = tl.load(tokens + tl.program_id(0))
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    values = tl.load(table + row * width + columns, mask=inside)
    tl.store(out + tl.program_id(0) * width + columns, values, mask=inside)


@triton.jit
def gather_kernel(index, table, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(table + tl.load(index + at, mask=inside), mask=inside), mask=inside)


@triton.jit
def empty_kernel(a, b, c, n, m, BLOCK: tl.constexpr):
    pass
