"""A planted bug: the load has no mask, so the last program reads past the end of `x`.

The result is right all the same, because the store is masked: on a GPU this bug stays silent until
the memory behind `x` belongs to nobody. tkdebug names the line, the program and the element, and
exits with status 3.

    tkdebug run examples/missing_mask.py
"""

import torch
import triton
import triton.language as tl

DEVICE = "cuda"


@triton.jit
def scale_kernel(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)  # mask=offs < n is missing
    tl.store(out_ptr + offs, x * factor, mask=offs < n)


def main():
    torch.manual_seed(0)
    n, block = 1000, 256
    x = torch.rand(n, device=DEVICE)
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(n, block),)](x, out, 2.0, n, BLOCK=block)
    assert torch.equal(out, 2 * x), "missing_mask: the result should be right in spite of the bug"
    print(
        "missing_mask: ok, result right; expect one fault: oob-load of x_ptr at index 1000, "
        "program (3, 0, 0), 24 elements, at the tl.load line"
    )


if __name__ == "__main__":
    main()
