"""Arithmetic on fp8, in fp32 and rounded after each op, and constants that overflow."""

import math

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.runtime.arguments.tensor_stand_ins import reinterpret

LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}


@tkdebug.jit
def binary(X, Y, Z, OP: tl.constexpr):
    i = tl.arange(0, 256)
    x, y = tl.load(X + i), tl.load(Y + i)
    if OP == "add":
        z = x + y
    elif OP == "mul":
        z = x * y
    elif OP == "fmax":
        z = tl.maximum(x, y)
    elif OP == "gt":
        z = (x > y).to(x.dtype)
    elif OP == "fma":
        z = tl.fma(x, y, x)
    else:
        z = -x
    tl.store(Z + i, z)


def rounded(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.clamp(-LARGEST[dtype], LARGEST[dtype]).to(dtype)


def operands(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Every finite value, against others of them."""
    values = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(dtype).float()
    x = torch.where(values.isfinite(), values, 1.0).to(dtype)
    return x, x[torch.randperm(256, generator=torch.Generator().manual_seed(0))]


@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("op", ["add", "mul", "fmax", "gt", "fma", "neg"])
def test_fp8_ops_round_what_fp32_gives(op, dtype):
    x, y = operands(dtype)
    z = torch.empty_like(x)
    binary.interpret[(1,)](x, y, z, op)
    a, b = x.float(), y.float()
    exact = a * b + a if op == "fma" else a.neg() if op == "neg" else getattr(torch, op)(a, b)
    assert torch.equal(z.float(), rounded(exact.float(), dtype).float())


@tkdebug.jit
def reductions(X, SUM, PREFIX, FIRST):
    x = tl.load(X + tl.arange(0, 16))
    tl.store(SUM, tl.sum(x, 0))
    tl.store(PREFIX + tl.arange(0, 16), tl.cumsum(x, 0))
    tl.store(FIRST, tl.argmax(x, 0))


@pytest.mark.parametrize("dtype", LARGEST)
def test_fp8_reductions_and_scans(dtype):
    x = torch.tensor([1.0, 2.0, 1.0, 0.0] + [0.0] * 12).to(dtype)
    total, prefix = torch.empty(1), torch.empty(16)
    first = torch.empty(1, dtype=torch.int32)
    reductions.interpret[(1,)](x, total, prefix, first)
    assert total.item() == 4.0
    assert prefix.tolist() == [1.0, 3.0] + [4.0] * 14
    assert first.item() == 1


@tkdebug.jit
def fill(Z, DTYPE: tl.constexpr, VALUE: tl.constexpr):
    tl.store(Z + tl.arange(0, 16), tl.full([16], VALUE, DTYPE).to(tl.float32))


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        (tl.float32, 1e300, math.inf),
        (tl.float32, -1e39, -math.inf),
        (tl.float16, 1e300, math.inf),
        # Between two bf16 numbers, and above the middle by less than fp32 holds.
        (tl.bfloat16, 1 + 2**-8 + 2**-30, 1 + 2**-7),
        (tl.float8e4nv, 1e300, 448.0),
        (tl.float8e5, -1e300, -57344.0),
        (tl.float8e4b15, 0.5, 0.5),
    ],
)
def test_constants_are_rounded_once_and_saturate_in_fp8(dtype, value, expected):
    z = torch.empty(16)
    fill.interpret[(1,)](z, dtype, value)
    assert z.tolist() == [expected] * 16


@tkdebug.jit
def half_of(X, Z):
    i = tl.arange(0, 16)
    tl.store(Z + i, (tl.load(X + i) * 0.5).to(tl.float32))


def test_fp8e4b15_is_multiplied_by_a_constant():
    z = torch.empty(16)
    x = torch.full((16,), 0x70, dtype=torch.int8)  # 0.5
    half_of.interpret[(1,)](reinterpret(x, tl.float8e4b15), z)
    assert z.tolist() == [0.25] * 16
