import triton
import triton.language as tl


@triton.jit
def inner(x):
    return tl.exp(x) * 2


@triton.jit
def outer(x):
    y = inner(x)
    return tl.sqrt(y)


@triton.jit
def kern(x_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < n)
    a = outer(x)
    tl.store(x_ptr + i, a, mask=i < n)
