"""The kernels of `bench/debugger.py`; lines to stop at end in `# at NAME`."""

from pathlib import Path

import triton
import triton.language as tl


def line(name: str) -> tuple[str, int]:
    """File and number of the line that ends in `# at NAME`."""
    texts = Path(__file__).read_text(encoding="utf-8").splitlines()
    return __file__, next(n for n, text in enumerate(texts, 1) if text.endswith(f"# at {name}"))


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
        scores = tl.dot(q, k) * scale_log2  # at scores
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
def matmul_kernel(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, N, BLOCK):
        k = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + i[:, None] * N + k[None, :])
        b = tl.load(b_ptr + k[:, None] * N + j[None, :])
        acc = tl.dot(a, b, acc)  # at product
    tl.store(c_ptr + i[:, None] * N + j[None, :], acc)


@triton.jit
def locked_kernel(lock_ptr, count_ptr):
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    count = tl.load(count_ptr)  # at count
    tl.store(count_ptr, count + 1)
    tl.atomic_xchg(lock_ptr, 0)
