"""Vector addition: each program adds one block of two vectors.

The last block reaches past the end of the vectors; the mask keeps its loads and its store inside.

    tkdebug run examples/vector_add.py
"""

import torch
import triton
import triton.language as tl

DEVICE = "cuda"


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def add(x, y):
    out = torch.empty_like(x)
    n = out.numel()
    add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=1024)
    return out


def main():
    torch.manual_seed(0)
    n = 98_432
    x = torch.rand(n, device=DEVICE)
    y = torch.rand(n, device=DEVICE)
    difference = (add(x, y) - (x + y)).abs().max().item()
    assert difference == 0, f"vector_add: differs from torch by up to {difference}"
    print(f"vector_add: ok, {n} elements, maximum difference from torch {difference:g}")


if __name__ == "__main__":
    main()
