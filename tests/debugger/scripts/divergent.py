import torch
import triton
import triton.language as tl


@triton.jit
def clip(x_ptr, out_ptr):
    i = tl.program_id(0)
    x = tl.load(x_ptr + i)
    if x > 0:
        y = x * 2
    else:
        y = x - 1
    tl.store(out_ptr + i, y)


x, out = torch.tensor([3.0, -1.0, 4.0, 0.0]), torch.zeros(4)
clip[(4,)](x, out)
print(out.tolist())
