"""A layer of a network and its softmax, with two mistakes: `tkdebug demo` shows this, recorded.

The product's mask does not say where `b` ends, and the softmax adds up columns, not rows.

    tkdebug run --mode interpret --advise --target sm_90a examples/demo/layer.py
"""

import torch
import triton
import triton.language as tl

DEVICE = "cuda"


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


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
    ACTIVATION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    in_m = offs_m[:, None] < M
    in_n = offs_n[None, :] < N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=in_m & (offs_k[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=in_n, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if ACTIVATION == "leaky_relu":
        acc = leaky_relu(acc)

    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=in_m & in_n)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    at = rows[:, None] * n_cols + cols[None, :]
    x = tl.load(x_ptr + at)
    e = tl.exp(x - tl.max(x, axis=1)[:, None])
    total = tl.sum(e, axis=0)
    tl.store(out_ptr + at, e / total[None, :])


def matmul(a, b, activation=""):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
    strides = (*a.stride(), *b.stride(), *c.stride())
    matmul_kernel[grid](a, b, c, M, N, K, *strides, activation, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
    return c


def main():
    torch.manual_seed(0)
    x = torch.randn(300, 260, device=DEVICE, dtype=torch.float16)
    w = torch.randn(260, 500, device=DEVICE, dtype=torch.float16)
    for _ in range(4):
        layer = matmul(x, w, "leaky_relu")
    expected = torch.nn.functional.leaky_relu(x.float() @ w.float())
    torch.testing.assert_close(layer.float(), expected, rtol=1e-2, atol=2e-2)

    logits = layer[:256, :64].float().contiguous()
    shares = torch.empty_like(logits)
    softmax_kernel[(16,)](logits, shares, 64, ROWS=16, COLS=64)
    torch.testing.assert_close(shares, torch.softmax(logits, 1))


if __name__ == "__main__":
    main()
