"""Layer normalisation, forward: a row at a time, in blocks of columns.

Three trips over the row: the mean, the variance around it, then the scaled output. Mean and
reciprocal standard deviation are kept for a backward pass.

    tkdebug run examples/layer_norm.py
"""

import torch
import triton
import triton.language as tl

DEVICE = "cuda"


@triton.heuristics({"BLOCK": lambda args: min(1024, triton.next_power_of_2(args["n_cols"]))})
@triton.jit
def layer_norm_kernel(
    x_ptr,
    out_ptr,
    weight_ptr,
    bias_ptr,
    mean_ptr,
    rstd_ptr,
    row_stride,
    n_cols,
    eps,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    x_ptr += row * row_stride
    out_ptr += row * row_stride

    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n_cols

    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        # Padding must not count: 0 is not at the mean.
        centred = tl.where(cols < n_cols, x - mean, 0.0)
        squares += centred * centred
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)

    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        weight = tl.load(weight_ptr + cols, mask=mask)
        bias = tl.load(bias_ptr + cols, mask=mask)
        x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + cols, (x - mean) * rstd * weight + bias, mask=mask)


def layer_norm(x, weight, bias, eps=1e-5):
    n_rows, n_cols = x.shape
    out = torch.empty_like(x)
    mean = torch.empty(n_rows, device=x.device)
    rstd = torch.empty(n_rows, device=x.device)
    layer_norm_kernel[(n_rows,)](x, out, weight, bias, mean, rstd, x.stride(0), n_cols, eps)
    return out, mean


def main():
    torch.manual_seed(0)
    n_rows, n_cols = 500, 1700
    x = (0.5 + 2.3 * torch.randn(n_rows, n_cols, device=DEVICE)).half()
    weight = torch.rand(n_cols, device=DEVICE)
    bias = torch.rand(n_cols, device=DEVICE)
    out, mean = layer_norm(x, weight, bias)
    reference = torch.nn.functional.layer_norm(x.float(), (n_cols,), weight, bias)
    torch.testing.assert_close(out.float(), reference, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(mean, x.float().mean(dim=1), rtol=1e-4, atol=1e-4)
    difference = (out.float() - reference).abs().max().item()
    print(f"layer_norm: ok, {n_rows}x{n_cols} fp16, maximum difference from fp32 {difference:.1e}")


if __name__ == "__main__":
    main()
