"""A matrix product. Wrong: the strides of `b` are swapped, which a square matrix hides."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, K, sam, sak, sbk, sbn, scm, scn, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + i[:, None] * sam + k[None, :] * sak)
        b = tl.load(b_ptr + k[:, None] * sbn + j[None, :] * sbk)
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + i[:, None] * scm + j[None, :] * scn, acc)


torch.manual_seed(0)
a, b = torch.randn(2, 32, 32, device="cuda")
c = torch.empty(32, 32, device="cuda")
matmul[(2, 2)](a, b, c, 32, *a.stride(), *b.stride(), *c.stride(), BLOCK=16)
torch.testing.assert_close(c, a @ b, rtol=1e-3, atol=1e-3)
