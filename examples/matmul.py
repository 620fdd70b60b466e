"""Tiled matrix product with an activation, in fp16 with fp32 sums.

Programs are numbered in groups of a few rows of tiles, so that those running at the same time
share what they read from `b`. The activation is a device function, chosen at compile time.

    tkdebug run examples/matmul.py
"""

import torch
import triton
import triton.language as tl

DEVICE = "cuda"


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.jit
def grouped_tile(pid, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    programs_in_group = GROUP_M * tiles_n
    first_m = (pid // programs_in_group) * GROUP_M
    # The last group may have fewer rows of tiles.
    rows = min(tiles_m - first_m, GROUP_M)
    tile_m = first_m + (pid % programs_in_group) % rows
    tile_n = (pid % programs_in_group) // rows
    return tile_m, tile_n


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8}, num_warps=4),
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8}, num_warps=8),
    ],
    key=["M", "N", "K"],
)
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
    GROUP_M: tl.constexpr,
):
    pid = tl.program_id(0)
    tile_m, tile_n = grouped_tile(pid, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    offs_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    in_m = offs_m[:, None] < M
    in_n = offs_n[None, :] < N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=in_m & (offs_k[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=in_n & (offs_k[:, None] < K - k), other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if ACTIVATION == "leaky_relu":
        acc = leaky_relu(acc)

    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=in_m & in_n)


def matmul(a, b, activation=""):
    assert a.shape[1] == b.shape[0], f"shapes {tuple(a.shape)} and {tuple(b.shape)} do not fit"
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), activation)
    return c


def main():
    torch.manual_seed(0)
    a = torch.randn(300, 260, device=DEVICE, dtype=torch.float16)
    b = torch.randn(260, 500, device=DEVICE, dtype=torch.float16)
    reference = a.float() @ b.float()
    plain = matmul(a, b)
    activated = matmul(a, b, activation="leaky_relu")
    torch.testing.assert_close(plain.float(), reference, rtol=1e-2, atol=2e-2)
    torch.testing.assert_close(
        activated.float(), torch.nn.functional.leaky_relu(reference), rtol=1e-2, atol=2e-2
    )
    difference = (plain.float() - reference).abs().max().item()
    print(f"matmul: ok, 300x260 by 260x500 fp16, maximum difference from fp32 {difference:.1e}")


if __name__ == "__main__":
    main()
