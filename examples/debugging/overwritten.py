"""A matrix product. Wrong: each round overwrites the accumulator."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, N, K, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + i[:, None] * K + k[None, :])
        b = tl.load(b_ptr + k[:, None] * N + j[None, :])
        acc = tl.dot(a, b)
    tl.store(c_ptr + i[:, None] * N + j[None, :], acc)


torch.manual_seed(0)
a, b = torch.randn(32, 48, device="cuda"), torch.randn(48, 32, device="cuda")
c = torch.empty(32, 32, device="cuda")
matmul[(2, 2)](a, b, c, 32, 48, BLOCK=16)
torch.testing.assert_close(c, a @ b, rtol=1e-3, atol=1e-3)
