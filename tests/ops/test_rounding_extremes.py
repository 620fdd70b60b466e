"""Rounding at the ends of the range: subnormals, overflow, signed zeros, against exact fractions.

Each was first seen as a difference between the interpreter and an H200.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.interpreter.numerics import libdevice as functions
from tkdebug.interpreter.numerics import rounding
from tkdebug.interpreter.numerics.libdevice import MEANINGS
from tkdebug.language.extra import libdevice

MODES = ("rn", "rz", "rd", "ru")
# (bits of significand, exponent of the last bit of subnormals, largest number)
FORMATS = {
    torch.float64: (53, -1074, torch.finfo(torch.float64).max),
    torch.float32: (24, -149, torch.finfo(torch.float32).max),
    torch.float16: (11, -24, torch.finfo(torch.float16).max),
    torch.bfloat16: (8, -133, torch.finfo(torch.bfloat16).max),
}


def rounded(exact, dtype, mode):
    """A fraction, not 0, as a number of dtype; overflow and underflow as IEEE 754 has them."""
    bits, lowest, largest = FORMATS[dtype]
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - bits + 1, lowest)
    whole, rest = divmod(size, unit)
    if mode == "rn":
        up = rest * 2 > unit or (rest * 2 == unit and whole % 2 == 1)
    else:
        up = rest > 0 and mode == ("ru" if exact > 0 else "rd")
    size = (whole + up) * unit
    if size > Fraction(largest):
        size = math.inf if mode in ("rn", "ru" if exact > 0 else "rd") else largest
    return math.copysign(float(size), 1 if exact > 0 else -1)


def extremes(dtype, seed):
    """Numbers of all exponents, many near the ends, few bits and many."""
    bits, lowest, largest = FORMATS[dtype]
    generator = torch.Generator().manual_seed(seed)
    count = 1500
    top = math.frexp(largest)[1]
    near = torch.tensor([lowest, lowest + bits // 2, lowest + bits, top // 2, top - 1, 0, 1])
    exponent = near[torch.randint(0, len(near), (count,), generator=generator)]
    anywhere = torch.randint(lowest, top, (count,), generator=generator)
    spread = torch.randint(-3, 4, (count,), generator=generator)
    exponent = torch.where(
        torch.rand(count, generator=generator) < 0.5, exponent + spread, anywhere
    )
    exponent = exponent.clamp(lowest, top - 1)
    kept = torch.randint(1, bits + 1, (count,), generator=generator)
    parts = torch.randint(2**52, 2**53, (count,), generator=generator) >> (53 - kept)
    signs = torch.randint(0, 2, (count,), generator=generator) * 2 - 1
    numbers = [
        max(min(math.ldexp(p / 2 ** (k - 1), e), largest), 2.0**lowest) * s
        for p, k, e, s in zip(*(v.tolist() for v in (parts, kept, exponent, signs)), strict=True)
    ]
    return torch.tensor(numbers, dtype=torch.float64).to(dtype).clamp(-largest, largest)


EXACT = {
    "add": (2, lambda a, b: a + b),
    "sub": (2, lambda a, b: a - b),
    "mul": (2, lambda a, b: a * b),
    "div": (2, lambda a, b: a / b),
    "rcp": (1, lambda a: 1 / a),
    "fma": (3, lambda a, b, c: a * b + c),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", EXACT)
def test_operations_round_once_at_the_ends_of_the_range(name, dtype, mode):
    check_operation(name, dtype, mode)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_fma_of_halves_rounds_once(dtype):
    check_operation("fma", dtype, "rn")


def check_operation(name, dtype, mode):
    count, exact = EXACT[name]
    operands = [extremes(dtype, seed) for seed in range(count)]
    operands = [torch.where(x == 0, 1.0, x) for x in operands]
    if name == "fma":
        # Products that nearly cancel, and sums far apart.
        product = (operands[0] * operands[1])[::3]
        operands[2][::3] = torch.where(product.isfinite() & (product != 0), -product, 1.0)
    got = getattr(rounding, name)(torch, mode, *operands).tolist()
    for value, *numbers in zip(got, *(x.tolist() for x in operands), strict=True):
        wanted = exact(*map(Fraction, numbers))
        if wanted == 0:
            zero = -0.0 if mode == "rd" else 0.0
            assert str(value) == str(zero), (numbers, value)
        else:
            assert str(value) == str(rounded(wanted, dtype, mode)), (numbers, value)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_roots_of_extremes_round_once(dtype, mode):
    x = extremes(dtype, 7).abs()
    got = rounding.sqrt(torch, mode, x)
    below, above = (got.nextafter(torch.full_like(got, end)) for end in (-math.inf, math.inf))
    for a, r, low, high in zip(*(v.tolist() for v in (x, got, below, above)), strict=True):
        exact, root = Fraction(a), Fraction(r)
        if mode == "ru":
            assert Fraction(low) ** 2 < exact <= root**2
        elif mode == "rn":
            assert (root + Fraction(low)) ** 2 <= 4 * exact <= (root + Fraction(high)) ** 2
        else:
            assert root**2 <= exact < Fraction(high) ** 2


def fused_by_ieee(x, y, z, mode):
    """x * y + z for zeros, ones, infinities and NaN; None where it takes more than that."""
    if math.isfinite(x) and math.isfinite(y):
        if math.isfinite(z) and ((x and y) or z):
            return None
        if not math.isfinite(z):
            return z
    total = x * y + z
    alike = math.copysign(1, x * y) == math.copysign(1, z) == 1
    return -0.0 if total == 0 and mode == "rd" and not alike else total


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_zeros_and_infinities_follow_ieee(dtype, mode):
    values = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, torch.finfo(dtype).max]
    triples = torch.tensor(list(itertools.product(values, repeat=3)), dtype=dtype)
    got = rounding.fma(torch, mode, *triples.unbind(1)).tolist()
    for value, numbers in zip(got, triples.tolist(), strict=True):
        wanted = fused_by_ieee(*numbers, mode)
        if wanted is not None:
            assert str(value) == str(wanted), numbers


def test_square_root_keeps_the_sign_of_zero():
    zeros = torch.tensor([-0.0, 0.0])
    for dtype in (torch.float32, torch.float64):
        assert rounding.sqrt(torch, "rn", zeros.to(dtype)).signbit().tolist() == [True, False]


@tkdebug.jit
def sums_and_roots(X, Y, Z, FMA, ROOT, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y, z = tl.load(X + i), tl.load(Y + i), tl.load(Z + i)
    tl.store(FMA + i, tl.fma(x, y, z))
    tl.store(ROOT + i, tl.sqrt_rn(x))


def test_language_keeps_signs_of_zero():
    x = torch.tensor([0.0, -0.0, 1.0, 0.0])
    y = torch.tensor([-0.0, 3.0, -0.0, 0.0])
    z = torch.tensor([-0.0, -0.0, 0.0, -0.0])
    fused, root = torch.ones(4), torch.ones(4)
    sums_and_roots[(1,)](x, y, z, fused, root, N=4)
    assert [str(v) for v in fused.tolist()] == ["-0.0", "-0.0", "0.0", "0.0"]
    assert [str(v) for v in root.tolist()] == ["0.0", "-0.0", "1.0", "0.0"]


@tkdebug.jit
def double_root(X, OUT, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(OUT + i, tl.sqrt(tl.load(X + i)))


def test_square_root_of_fp64_is_rounded_to_nearest():
    x = torch.rand(1024, dtype=torch.float64)
    out = torch.empty_like(x)
    double_root[(1,)](x, out, N=1024)
    assert out.tolist() == [math.sqrt(v) for v in x.tolist()]


def meaning(name, *arguments):
    return MEANINGS[name](torch, False, *arguments)


# Remainders


@tkdebug.jit
def remainders(X, Y, OUT, TRUNCATED, NEAREST, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(X + i), tl.load(Y + i)
    tl.store(OUT + i, x % y)
    tl.store(TRUNCATED + i, libdevice.fmod(x, y))
    tl.store(NEAREST + i, libdevice.remainder(x, y))


def remainder_or_nan(fn, x, y):
    try:
        return fn(x, y)
    except ValueError:
        return math.nan


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_remainders_are_exact_however_large_the_quotient(dtype):
    x, y = extremes(dtype, 1)[:1024], extremes(dtype, 2)[:1024]
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 2.5, 0.5, -1.5, 1.0]
    pairs = torch.tensor(list(itertools.product(special, repeat=2)), dtype=dtype)
    x[: len(pairs)], y[: len(pairs)] = pairs.unbind(1)
    out = [torch.empty_like(x) for _ in range(3)]
    remainders[(1,)](x, y, *out, N=1024)
    for a, b, *got in zip(*(v.tolist() for v in (x, y, *out)), strict=True):
        truncated = remainder_or_nan(math.fmod, a, b)
        nearest = remainder_or_nan(math.remainder, a, b)
        assert [str(v) for v in got] == [str(truncated), str(truncated), str(nearest)], (a, b)


# Powers of two and whole powers


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_scaling_by_extreme_powers_of_two(dtype):
    numbers = [0.0, -0.0, 1.5, -1.0, 2.0**-140, math.inf, math.nan, torch.finfo(dtype).max]
    powers = [0, 1, -1, 100, -149, -150, -1080, 2000, 2**30, -(2**31), 2**31 - 1]
    pairs = list(itertools.product(numbers, powers))
    x = torch.tensor([a for a, _ in pairs], dtype=dtype)
    n = torch.tensor([b for _, b in pairs], dtype=torch.int32)
    for a, b, got in zip(x.tolist(), n.tolist(), meaning("ldexp", x, n).tolist(), strict=True):
        if a == 0 or not math.isfinite(a):
            wanted = a
        else:
            wanted = rounded(Fraction(a) * Fraction(2) ** max(min(b, 3000), -3000), dtype, "rn")
        assert str(got) == str(wanted), (a, b)


def test_whole_powers_are_products_then_a_quotient():
    # 1000 ** 14 overflows fp32 before its reciprocal is taken: libdevice gives 0.
    x = torch.tensor([1000.0, 2.0, -3.0, 0.0, 2.0, 1.0])
    n = torch.tensor([-14, -3, 3, -1, 0, -(2**31)], dtype=torch.int32)
    assert meaning("pow", x, n).tolist() == [0.0, 0.125, -27.0, math.inf, 1.0, 1.0]


# Conversions


@pytest.mark.parametrize(
    ("source", "target", "wanted"),
    [
        ("float", "int", 0),
        ("float", "uint", 0),
        ("float", "ll", -(2**63)),
        ("float", "ull", -(2**63)),
        ("double", "int", -(2**31)),
        ("double", "uint", -(2**31)),
        ("double", "ll", -(2**63)),
        ("double", "ull", -(2**63)),
    ],
)
def test_nan_as_an_integer(source, target, wanted):
    x = torch.tensor([math.nan, 1.5, math.inf])
    x = x if source == "float" else x.double()
    for mode in MODES:
        got = meaning(f"{source}2{target}_{mode}", x).tolist()
        assert got[0] == wanted
        assert got[1] in (1, 2)


def test_reciprocal_of_the_high_word_sees_no_subnormals():
    x = torch.tensor([2.0**-1023, -(2.0**-1040), 2.0**1023, 4.0, math.inf], dtype=torch.float64)
    assert meaning("rcp64h", x).tolist() == [math.inf, -math.inf, 0.0, 0.25, 0.0]


# Special functions, against numbers of 60 digits (mpmath 1.3).


@pytest.mark.parametrize(
    ("name", "x", "wanted"),
    [
        ("sinpi", 1.0000000000000002, -6.975736996017263544e-16),
        ("sinpi", 0.25, 0.7071067811865475244),
        ("sinpi", -1e15, 0.0),
        ("cospi", -0.49092080868595583, 0.028519253305034376165),
        ("cospi", 2.5, 0.0),
        ("erfcx", -16.630963537570686, 2.6429195844014284277e120),
        ("normcdf", -3.90990895411106, 0.00004616545774097122582),
        ("normcdf", -30.0, 4.9067139271481870595e-198),
        ("gamma", 139.72000433293215, 2.4134167499278142559e238),
        ("gamma", -3.5, 0.27008820585226910892),
        ("gamma", 5.0, 24.0),
        ("gamma", -250.5, -0.0),
        ("gamma", 172.0, math.inf),
    ],
)
def test_special_function_keeps_its_digits(name, x, wanted):
    got = getattr(functions, name)(torch, torch.tensor([x], dtype=torch.float64)).item()
    assert got == pytest.approx(wanted, rel=2e-15, abs=0)


@tkdebug.jit
def fold(X, SUM, N: tl.constexpr):
    tl.store(SUM, tl.sum(tl.load(X + tl.arange(0, N))))


def test_sums_of_halves_round_and_overflow_at_each_addition():
    # 256 + 1 is 256 in bf16; the sum of the first two is beyond fp16's largest.
    total = torch.zeros(1, dtype=torch.bfloat16)
    fold[(1,)](torch.tensor([256.0, 256.0, 1.0, 1.0]).bfloat16(), total, N=4)
    assert total.item() == 512
    total = torch.zeros(1, dtype=torch.float16)
    fold[(1,)](torch.tensor([60000.0, -60000.0, 60000.0, -60000.0]).half(), total, N=4)
    assert math.isnan(total.item())


@tkdebug.jit
def half_product(A, B, C, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    a, b = tl.load(A + m * K + k[None, :]), tl.load(B + k[:, None] * N + n)
    c = tl.dot(a, b, tl.load(C + m * N + n), out_dtype=tl.float16)
    tl.store(C + m * N + n, c)


@pytest.mark.parametrize("rows", [16, 2])
def test_fp16_sums_round_as_tensor_cores_do(rows):
    # One in each 16 products: 2049 lies between two numbers and goes to the even one, 2048, twice.
    # Two rows are fewer than an instruction takes, and run on tensor cores all the same.
    a, b = torch.zeros(rows, 32).half(), torch.ones(32, 16).half()
    a[:, 0], a[:, 16] = 1.0, 1.0
    c = torch.full((rows, 16), 2048.0).half()
    half_product[(1,)](a, b, c, M=rows, N=16, K=32)
    assert c.unique().tolist() == [2048.0]


def test_roots_next_to_half_way_are_rounded_to_nearest():
    # Their linear estimates are half way; IEEE 754 has the largest double's root just below.
    few = torch.arange(0, 3000, dtype=torch.float64) * 2.0**-52
    largest = torch.tensor([torch.finfo(torch.float64).max], dtype=torch.float64)
    values = torch.cat([1 - few / 2, 1 + few, 4 - 2 * few, largest])
    got = rounding.sqrt(torch, "rn", values)
    assert got.tolist() == [math.sqrt(value) for value in values.tolist()]
