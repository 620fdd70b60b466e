"""A whole program of hand-written kernels: the forward pass of a decoder of twelve layers, fp16.

    program_kernels.py [--steps 300]

Each layer is seven launches: norm, three products, attention, product, and the activation between.
Started by `bench/programs.py`; it writes the seconds of its steps into the file that the variable
PROGRAM_TIMES names, as its last act. It needs a GPU, torch and Triton or tkdebug.
"""

from __future__ import annotations

import argparse
import time

import torch
import triton
import triton.language as tl
from program_times import write_times

LAYERS, HEADS, HEAD_DIM, TOKENS = 12, 16, 64, 2048
WIDTH = HEADS * HEAD_DIM


@triton.jit
def rms_norm(x_ptr, weight_ptr, out_ptr, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x) / width + eps)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    tl.store(out_ptr + row * width + columns, (x * scale * weight).to(tl.float16), mask=inside)


@triton.jit
def linear(
    a_ptr, b_ptr, out_ptr, residual_ptr, M, N, K,
    HAS_RESIDUAL: tl.constexpr, ACTIVATE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * K + depth[None, :]
    b_ptrs = b_ptr + depth[:, None] * N + columns[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=rows[:, None] < M, other=0.0)
        b = tl.load(b_ptrs, mask=columns[None, :] < N, other=0.0)
        total = tl.dot(a, b, total)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    places = rows[:, None] * N + columns[None, :]
    if ACTIVATE:
        total = total * tl.sigmoid(total)
    if HAS_RESIDUAL:
        total += tl.load(residual_ptr + places, mask=inside, other=0.0)
    tl.store(out_ptr + places, total.to(tl.float16), mask=inside)


@triton.jit
def attention(
    q_ptr, k_ptr, v_ptr, out_ptr, scale, T, WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.program_id(1) * D + tl.arange(0, D)
    keys = tl.arange(0, BLOCK_N)
    q = tl.load(q_ptr + rows[:, None] * WIDTH + dims[None, :])
    highest = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    weight = tl.zeros((BLOCK_M,), dtype=tl.float32)
    total = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    for start in range(0, T, BLOCK_N):
        at = (start + keys)[:, None] * WIDTH + dims[None, :]
        k = tl.load(k_ptr + at)
        scores = tl.dot(q, tl.trans(k)) * scale
        new = tl.maximum(highest, tl.max(scores, 1))
        p = tl.exp(scores - new[:, None])
        shrink = tl.exp(highest - new)
        weight = weight * shrink + tl.sum(p, 1)
        v = tl.load(v_ptr + at)
        total = tl.dot(p.to(tl.float16), v, total * shrink[:, None])
        highest = new
    out = (total / weight[:, None]).to(tl.float16)
    tl.store(out_ptr + rows[:, None] * WIDTH + dims[None, :], out)


class Layer:
    """The weights of one layer."""

    def __init__(self) -> None:
        def weight(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, device="cuda", dtype=torch.float16) * shape[0] ** -0.5

        self.norm = torch.ones(WIDTH, device="cuda")
        self.q, self.k, self.v, self.out = (weight(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = weight(WIDTH, 2 * WIDTH), weight(2 * WIDTH, WIDTH)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The layer's output, of the shape of `x`: (tokens, width)."""
        y = torch.empty_like(x)
        rms_norm[(TOKENS,)](x, self.norm, y, WIDTH, 1e-6, BLOCK=WIDTH)
        q, k, v = (product(y, weight) for weight in (self.q, self.k, self.v))
        mixed = torch.empty_like(x)
        attention[(TOKENS // 128, HEADS)](
            q, k, v, mixed, HEAD_DIM**-0.5, TOKENS, WIDTH, 128, 64, HEAD_DIM, num_warps=8
        )
        x = product(mixed, self.out, x)
        return product(product(x, self.up, activate=True), self.down, x)


def product(
    a: torch.Tensor, b: torch.Tensor, residual: torch.Tensor | None = None, activate: bool = False
) -> torch.Tensor:
    """`a @ b`, its activation, and plus `residual`."""
    rows, columns = a.shape[0], b.shape[1]
    out = torch.empty(rows, columns, device="cuda", dtype=torch.float16)
    grid = (triton.cdiv(rows, 128), triton.cdiv(columns, 128))
    linear[grid](
        a, b, out, out if residual is None else residual, rows, columns, a.shape[1],
        residual is not None, activate, 128, 128, 32, num_warps=8, num_stages=4,
    )  # fmt: skip
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    layers = [Layer() for _ in range(LAYERS)]
    x = torch.randn(TOKENS, WIDTH, device="cuda", dtype=torch.float16)
    steps = []
    for _ in range(arguments.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        y = x
        for layer in layers:
            y = layer(y)
        torch.cuda.synchronize()
        steps.append(time.perf_counter() - start)
    print(f"mean {y.float().abs().mean().item():.4f} after {len(steps)} steps")
    write_times(steps)


if __name__ == "__main__":
    main()
