"""A microscaled product: its kernel, the formats of operands, and numbers in them."""

from __future__ import annotations

import torch

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def scaled_kernel(
    A, AS, B, BS, C, M: tl.constexpr, N: tl.constexpr, GROUPS: tl.constexpr,
    AM: tl.constexpr, AK: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    a = tl.load(A + tl.arange(0, AM)[:, None] * AK + tl.arange(0, AK)[None, :])
    b = tl.load(B + tl.arange(0, BK)[:, None] * BN + tl.arange(0, BN)[None, :])
    a_scale = None
    b_scale = None
    if AS is not None:
        a_scale = tl.load(AS + tl.arange(0, M)[:, None] * GROUPS + tl.arange(0, GROUPS)[None, :])
    if BS is not None:
        b_scale = tl.load(BS + tl.arange(0, N)[:, None] * GROUPS + tl.arange(0, GROUPS)[None, :])
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    acc = tl.load(C + at)
    c = tl.dot_scaled(
        a, a_scale, LEFT, b, b_scale, RIGHT, acc=acc, fast_math=FAST,
        lhs_k_pack=AM == M, rhs_k_pack=BN == N,
    )  # fmt: skip
    tl.store(C + at, c)


# Format, and whether it is packed along K; only e2m1 can be packed along the other axis.
OPERANDS = (
    ("e2m1", True),
    ("e2m1", False),
    ("e4m3", True),
    ("e5m2", True),
    ("bf16", True),
    ("fp16", True),
)


M_SIZE, N_SIZE, K_SIZE = 16, 32, 64


def elements(format_, rows, columns, axis):
    if format_ in ("bf16", "fp16"):
        dtype = torch.bfloat16 if format_ == "bf16" else torch.float16
        return torch.randn(rows, columns).to(dtype)
    shape = [rows, columns]
    if format_ == "e2m1":
        shape[axis] //= 2
        return torch.randint(0, 256, shape, dtype=torch.uint8)
    # Below the codes of infinity and NaN, both signs.
    return torch.randint(0, 100, shape, dtype=torch.uint8) | (torch.randint(0, 2, shape) << 7).to(
        torch.uint8
    )


def codes(rows, low=120, high=130):
    return torch.randint(low, high, (rows, K_SIZE // 32), dtype=torch.uint8)
