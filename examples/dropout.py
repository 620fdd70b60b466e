"""Dropout from a seed: the mask is computed again wherever it is needed, and never stored.

Philox gives each element a random number from the seed and the element's own offset, so that the
result does not depend on how elements are divided into blocks.

    tkdebug run examples/dropout.py
"""

import torch
import triton
import triton.language as tl

DEVICE = "cuda"


@triton.jit
def dropout_kernel(x_ptr, out_ptr, n, p, seed, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    keep = tl.rand(seed, offs) > p
    tl.store(out_ptr + offs, tl.where(keep, x / (1 - p), 0.0), mask=mask)


def dropout(x, p, seed, block=1024):
    out = torch.empty_like(x)
    n = x.numel()
    dropout_kernel[(triton.cdiv(n, block),)](x, out, n, p, seed, BLOCK=block)
    return out


def main():
    torch.manual_seed(0)
    n, p = 100_000, 0.3
    x = torch.rand(n, device=DEVICE) + 1
    out = dropout(x, p, seed=123)
    kept = out != 0
    torch.testing.assert_close(out[kept], x[kept] / (1 - p))
    assert torch.equal(out, dropout(x, p, seed=123, block=256)), "dropout: the blocking shows"
    assert not torch.equal(out, dropout(x, p, seed=512)), "dropout: two seeds, one mask"
    share = kept.float().mean().item()
    # Five standard deviations of a mean of n draws.
    allowed = 5 * (p * (1 - p) / n) ** 0.5
    assert abs(share - (1 - p)) < allowed, f"dropout: kept {share}, expected {1 - p} +- {allowed}"
    print(f"dropout: ok, kept {share:.4f} of {n} elements, expected {1 - p:.4f}")


if __name__ == "__main__":
    main()
