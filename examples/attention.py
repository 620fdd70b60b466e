"""Flash attention, forward: scores are never written to memory.

A program owns a block of queries and walks the keys block by block with a running maximum and a
running sum for the softmax; when the maximum grows, what was summed so far is scaled down.

    tkdebug run examples/attention.py
"""

import math

import torch
import triton
import triton.language as tl

DEVICE = "cuda"
LOG2_E = math.log2(math.e)


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
    CAUSAL: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    block = tl.program_id(0)
    head_offset = tl.program_id(1).to(tl.int64) * stride_head
    offs_q = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    offs_d = tl.arange(0, HEAD_DIM)
    q_tile = head_offset + offs_q[:, None] * stride_row + offs_d[None, :]
    in_q = offs_q[:, None] < n_tokens
    q = tl.load(q_ptr + q_tile, mask=in_q, other=0.0)

    row_max = tl.full([BLOCK_Q], -float("inf"), dtype=tl.float32)
    row_sum = tl.zeros([BLOCK_Q], dtype=tl.float32)
    acc = tl.zeros([BLOCK_Q, HEAD_DIM], dtype=tl.float32)
    # A causal row looks no further than itself: later blocks of keys are left out.
    end = tl.minimum((block + 1) * BLOCK_Q, n_tokens) if CAUSAL else n_tokens
    for start in range(0, end, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        k_tile = head_offset + offs_k[None, :] * stride_row + offs_d[:, None]
        k = tl.load(k_ptr + k_tile, mask=offs_k[None, :] < n_tokens, other=0.0)
        scores = tl.dot(q, k) * scale_log2
        visible = offs_k[None, :] < n_tokens
        if CAUSAL:
            visible = visible & (offs_q[:, None] >= offs_k[None, :])
        scores = tl.where(visible, scores, -float("inf"))

        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        # exp(x) as exp2(x * log2 e): the factor is in the scale already.
        weights = tl.math.exp2(scores - new_max[:, None])
        shrink = tl.math.exp2(row_max - new_max)
        row_sum = row_sum * shrink + tl.sum(weights, axis=1)
        v_tile = head_offset + offs_k[:, None] * stride_row + offs_d[None, :]
        v = tl.load(v_ptr + v_tile, mask=offs_k[:, None] < n_tokens, other=0.0)
        acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None])
        row_max = new_max

    out = acc / row_sum[:, None]
    tl.store(out_ptr + q_tile, out.to(out_ptr.dtype.element_ty), mask=in_q)


def attention(q, k, v, causal):
    """Attention of contiguous tensors of shape (batch, heads, tokens, head_dim)."""
    batch, heads, n_tokens, head_dim = q.shape
    out = torch.empty_like(q)
    attention_kernel[lambda meta: (triton.cdiv(n_tokens, meta["BLOCK_Q"]), batch * heads)](
        q,
        k,
        v,
        out,
        LOG2_E / math.sqrt(head_dim),
        q.stride(1),
        q.stride(2),
        n_tokens,
        CAUSAL=causal,
        HEAD_DIM=head_dim,
        BLOCK_Q=64,
        BLOCK_K=32,
    )
    return out


def main():
    torch.manual_seed(0)
    shape = (2, 3, 200, 64)
    q, k, v = (torch.randn(shape, device=DEVICE, dtype=torch.float16) for _ in range(3))
    worst = 0.0
    for causal in (False, True):
        reference = torch.nn.functional.scaled_dot_product_attention(
            q.float(), k.float(), v.float(), is_causal=causal
        )
        out = attention(q, k, v, causal).float()
        torch.testing.assert_close(out, reference, rtol=1e-2, atol=1e-2)
        worst = max(worst, (out - reference).abs().max().item())
    print(f"attention: ok, {shape} fp16, plain and causal, maximum difference {worst:.1e}")


if __name__ == "__main__":
    main()
