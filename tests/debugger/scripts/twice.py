import torch
import triton
import triton.language as tl


@triton.jit
def scaled(x, factor):
    product = x * factor
    return product


@triton.jit
def polynomial(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    a = scaled(x, 2.0)
    b = scaled(a, x)
    tl.store(out_ptr + offs, a + b)


x, out = torch.arange(4.0), torch.zeros(4)
polynomial[(1,)](x, out, BLOCK=4)
print(out.tolist())
