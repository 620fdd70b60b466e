"""libdevice against exact arithmetic (fractions, Python's ints) and Python's math."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.dialects.libdevice import FUNCTIONS
from tkdebug.errors import CompileError, UnsupportedError
from tkdebug.interpreter.numerics import rounding
from tkdebug.language.extra import libdevice

MODES = ("rn", "rz", "rd", "ru")
SIZE = 64


@tkdebug.jit
def one(X, OUT, N: tl.constexpr, FN: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(OUT + i, getattr(libdevice, FN)(tl.load(X + i)))


@tkdebug.jit
def two(X, Y, OUT, N: tl.constexpr, FN: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(OUT + i, getattr(libdevice, FN)(tl.load(X + i), tl.load(Y + i)))


@tkdebug.jit
def three(X, Y, Z, OUT, N: tl.constexpr, FN: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(OUT + i, getattr(libdevice, FN)(tl.load(X + i), tl.load(Y + i), tl.load(Z + i)))


@tkdebug.jit
def four(X, Y, Z, W, OUT, N: tl.constexpr, FN: tl.constexpr):
    i = tl.arange(0, N)
    x, y, z, w = tl.load(X + i), tl.load(Y + i), tl.load(Z + i), tl.load(W + i)
    tl.store(OUT + i, getattr(libdevice, FN)(x, y, z, w))


def run(name, *arguments, result):
    out = torch.empty(arguments[0].shape, dtype=result)
    kernel = {1: one, 2: two, 3: three, 4: four}[len(arguments)]
    kernel[(1,)](*arguments, out, arguments[0].numel(), name)
    return out


def spread(dtype):
    """Floats of many magnitudes and both signs."""
    x = torch.randn(SIZE, dtype=torch.float64)
    return (x * torch.exp2(torch.randint(-20, 20, (SIZE,)).double())).to(dtype)


def neighbours(x, dtype):
    tensor = torch.tensor(x, dtype=dtype)
    infinity = torch.tensor(math.inf, dtype=dtype)
    return tensor.nextafter(-infinity).item(), tensor.nextafter(infinity).item()


def is_rounded(exact, got, mode, dtype):
    """Whether `got` is the fraction `exact` rounded to `dtype` in the mode."""
    below, above = neighbours(got, dtype)
    value = Fraction(got)
    if mode == "rz":
        mode = "rd" if exact >= 0 else "ru"
    if mode == "rd":
        return value <= exact < Fraction(above)
    if mode == "ru":
        return Fraction(below) < exact <= value
    error = abs(exact - value)
    if error == abs(exact - Fraction(below)) or error == abs(exact - Fraction(above)):
        return struct.unpack("<q", struct.pack("<d", got))[0] & 1 == 0 or dtype == torch.float32
    return error < abs(exact - Fraction(below)) and error < abs(exact - Fraction(above))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "rcp", "fma", "sqrt"])
def test_directed_operation_is_rounded_once(name, dtype, mode):
    x, y, z = spread(dtype), spread(dtype), spread(dtype)
    if name == "fma":
        z[: SIZE // 2] = -(x * y)[: SIZE // 2]  # nearly everything cancels
    if name == "sqrt":
        x = x.abs()
    arguments = {"rcp": (x,), "sqrt": (x,), "fma": (x, y, z)}.get(name, (x, y))
    got = run(f"{name}_{mode}", *arguments, result=dtype).tolist()
    for value, *numbers in zip(got, *(a.tolist() for a in arguments), strict=True):
        a, b, c = ([Fraction(v) for v in numbers] + [Fraction(1)] * 2)[:3]
        if name == "sqrt":
            below, above = neighbours(value, dtype)
            if mode == "rn":
                low, high = Fraction(value) + Fraction(below), Fraction(value) + Fraction(above)
                assert low * low <= 4 * a <= high * high
            elif mode == "ru":
                assert Fraction(below) ** 2 < a <= Fraction(value) ** 2
            else:
                assert Fraction(value) ** 2 <= a < Fraction(above) ** 2
            continue
        exact = {
            "add": lambda a, b, c: a + b,
            "sub": lambda a, b, c: a - b,
            "mul": lambda a, b, c: a * b,
            "div": lambda a, b, c: a / b,
            "rcp": lambda a, b, c: 1 / a,
            "fma": lambda a, b, c: a * b + c,
        }[name](a, b, c)
        assert is_rounded(exact, value, mode, dtype), (numbers, value, mode)


@pytest.mark.parametrize("mode", MODES)
def test_narrowing_is_rounded_once(mode):
    x = spread(torch.float64)
    got = run(f"double2float_{mode}", x, result=torch.float32).tolist()
    for value, number in zip(got, x.tolist(), strict=True):
        assert is_rounded(Fraction(number), value, mode, torch.float32)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("name", "dtype", "target"),
    [
        ("int2float", torch.int32, torch.float32),
        ("uint2float", torch.uint32, torch.float32),
        ("ll2float", torch.int64, torch.float32),
        ("ull2float", torch.uint64, torch.float32),
        ("ll2double", torch.int64, torch.float64),
        ("ull2double", torch.uint64, torch.float64),
    ],
)
def test_integer_to_float_is_rounded_once(name, dtype, target, mode):
    x = torch.randint(-(2**63), 2**63 - 1, (SIZE,), dtype=torch.int64)
    x = x.view(dtype) if dtype.itemsize == 8 else (x >> 32).to(dtype)
    got = run(f"{name}_{mode}", x, result=target).tolist()
    for value, number in zip(got, x.tolist(), strict=True):
        assert is_rounded(Fraction(number), value, mode, target)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("source", ["float", "double"])
@pytest.mark.parametrize(
    ("target", "low", "high"),
    [
        ("int", -(2**31), 2**31 - 1),
        ("uint", 0, 2**32 - 1),
        ("ll", -(2**63), 2**63 - 1),
        ("ull", 0, 2**64 - 1),
    ],
)
def test_float_to_integer_rounds_and_saturates(source, target, low, high, mode):
    dtype = torch.float32 if source == "float" else torch.float64
    special = torch.tensor([0.5, 1.5, -0.5, -1.5, 2.5, 1e20, -1e20, math.inf, -math.inf, 3e9])
    x = torch.cat([special.to(dtype), spread(dtype)[:54]])
    bits = 64 if target in ("ll", "ull") else 32
    result = torch.int64 if bits == 64 else torch.int32
    got = run(f"{source}2{target}_{mode}", x, result=result).tolist()
    fn = {"rn": round, "rz": math.trunc, "rd": math.floor, "ru": math.ceil}[mode]
    for value, number in zip(got, x.tolist(), strict=True):
        whole = (high if number > 0 else low) if math.isinf(number) else fn(Fraction(number))
        expected = min(max(whole, low), high)
        assert (value - expected) % 2**bits == 0, (number, value, expected)


def integers(dtype):
    special = [0, 1, -1, 2**31 - 1, -(2**31), 255, 256, 2**16]
    x = torch.randint(-(2**63), 2**63 - 1, (SIZE,), dtype=torch.int64)
    x = x >> torch.randint(0, 63, (SIZE,))
    x[: len(special)] = torch.tensor(special)
    return (x & 0xFFFFFFFF).to(dtype) if dtype.itemsize == 4 else x.view(dtype)


def unsigned(value, bits):
    return value & ((1 << bits) - 1)


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_counting(bits):
    x = integers(torch.int32 if bits == 32 else torch.int64)
    for name, expected in (
        ("popc", lambda v: bin(v).count("1")),
        ("clz", lambda v: bits - v.bit_length()),
        ("ffs", lambda v: (v & -v).bit_length()),
        ("brev", lambda v: int(f"{v:0{bits}b}"[::-1], 2)),
    ):
        result = torch.int64 if name == "brev" and bits == 64 else torch.int32
        got = run(name, x, result=result).tolist()
        for value, number in zip(got, x.tolist(), strict=True):
            want = expected(unsigned(number, bits))
            assert (value - want) % 2**bits == 0, (name, number)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint32, torch.int64, torch.uint64], ids=str)
def test_mulhi_is_the_high_half(dtype):
    x, y = integers(dtype), integers(dtype)
    bits = 8 * dtype.itemsize
    got = run("mulhi", x, y, result=dtype).tolist()
    assert got == [(a * b) >> bits for a, b in zip(x.tolist(), y.tolist(), strict=True)]


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint32], ids=str)
def test_integer_averages_and_differences(dtype):
    x, y = integers(dtype), integers(dtype)
    z = integers(torch.uint32)
    pairs = list(zip(x.tolist(), y.tolist(), strict=True))
    assert run("hadd", x, y, result=dtype).tolist() == [(a + b) >> 1 for a, b in pairs]
    assert run("rhadd", x, y, result=dtype).tolist() == [(a + b + 1) >> 1 for a, b in pairs]
    got = run("sad", x, y, z, result=dtype).tolist()
    for value, (a, b), c in zip(got, pairs, z.tolist(), strict=True):
        assert (value - abs(a - b) - c) % 2**32 == 0


def test_byte_perm_picks_bytes():
    x, y, s = (integers(torch.int32) for _ in range(3))
    got = run("byte_perm", x, y, s, result=torch.int32).tolist()
    for value, a, b, c in zip(got, x.tolist(), y.tolist(), s.tolist(), strict=True):
        source = struct.pack("<II", unsigned(a, 32), unsigned(b, 32))
        picked = bytes(source[(c >> (4 * place)) & 7] for place in range(4))
        assert unsigned(value, 32) == struct.unpack("<I", picked)[0]


def _cbrt(v):
    return math.copysign(abs(v) ** (1 / 3), v)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("name", "reference", "low", "high"),
    [
        ("tanh", math.tanh, -4, 4),
        ("rsqrt", lambda v: 1 / math.sqrt(v), 0.1, 9),
        ("erf", math.erf, -3, 3),
        ("erfc", math.erfc, -3, 3),
        ("exp", math.exp, -9, 9),
        ("exp2", lambda v: 2.0**v, -9, 9),
        ("exp10", lambda v: 10.0**v, -5, 5),
        ("expm1", math.expm1, -2, 2),
        ("log", math.log, 0.01, 99),
        ("log2", math.log2, 0.01, 99),
        ("log10", math.log10, 0.01, 99),
        ("log1p", math.log1p, -0.9, 9),
        ("sin", math.sin, -9, 9),
        ("cos", math.cos, -9, 9),
        ("tan", math.tan, -1.4, 1.4),
        ("sinpi", lambda v: math.sin(math.pi * v), -0.49, 0.49),
        ("cospi", lambda v: math.cos(math.pi * v), -0.49, 0.49),
        ("asin", math.asin, -1, 1),
        ("acos", math.acos, -1, 1),
        ("atan", math.atan, -9, 9),
        ("sinh", math.sinh, -5, 5),
        ("cosh", math.cosh, -5, 5),
        ("asinh", math.asinh, -9, 9),
        ("acosh", math.acosh, 1, 9),
        ("atanh", math.atanh, -0.9, 0.9),
        ("cbrt", _cbrt, -9, 9),
        ("rcbrt", lambda v: 1 / _cbrt(v), 0.1, 9),
        ("lgamma", math.lgamma, 0.1, 9),
        ("tgamma", math.gamma, -3.9, 9),
        ("normcdf", lambda v: 0.5 * math.erfc(-v / math.sqrt(2)), -3, 3),
        ("trunc", math.trunc, -9, 9),
        ("floor", math.floor, -9, 9),
        ("ceil", math.ceil, -9, 9),
        ("rint", round, -9, 9),
        ("logb", lambda v: math.frexp(v)[1] - 1, 0.01, 99),
    ],
)
def test_function_matches_pythons(name, reference, low, high, dtype):
    x = (torch.rand(SIZE, dtype=torch.float64) * (high - low) + low).to(dtype)
    got = run(name, x, result=dtype)
    expected = torch.tensor([reference(v) for v in x.tolist()], dtype=torch.float64)
    tolerance = 2e-6 if dtype == torch.float32 else 2e-14
    torch.testing.assert_close(got.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["erfinv", "erfcinv", "normcdfinv"])
def test_inverse_undoes_its_function(name):
    x = torch.rand(SIZE, dtype=torch.float64) * 0.8 + 0.1
    function = {"erfinv": "erf", "erfcinv": "erfc", "normcdfinv": "normcdf"}[name]
    middle = run(name, x, result=torch.float64)
    torch.testing.assert_close(run(function, middle, result=torch.float64), x)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("atan2", math.atan2),
        ("pow", lambda a, b: abs(a) ** b),
        ("fmod", math.fmod),
        ("remainder", math.remainder),
        ("copysign", math.copysign),
        ("hypot", math.hypot),
        ("rhypot", lambda a, b: 1 / math.hypot(a, b)),
        ("fdim", lambda a, b: max(a - b, 0.0)),
        ("fast_powf", lambda a, b: abs(a) ** b),
        ("fast_dividef", lambda a, b: a / b),
    ],
)
def test_function_of_two_matches_pythons(name, reference):
    x, y = torch.randn(SIZE), torch.randn(SIZE)
    if "pow" in name:
        x = x.abs()
    got = run(name, x, y, result=torch.float32)
    pairs = zip(x.tolist(), y.tolist(), strict=True)
    expected = torch.tensor([reference(a, b) for a, b in pairs])
    torch.testing.assert_close(got, expected, rtol=2e-6, atol=1e-6)


def test_powers_of_two_scale_without_overflow():
    x = torch.tensor([1.5, -1.0, 2.0**-140, 2.0**100, 1.0])
    x = torch.cat([x, torch.ones(3)])
    n = torch.tensor([3, -149, 200, -249, 128, -150, 0, 1], dtype=torch.int32)
    got = run("ldexp", x, n, result=torch.float32).tolist()
    expected = [12.0, -(2.0**-149), 2.0**60, 2.0**-149, math.inf, 0.0, 1.0, 2.0]
    assert got == expected


def test_rounding_half_away_from_zero():
    x = torch.tensor([0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 8388609.0, -0.2])
    got = run("round", x, result=torch.float32)
    assert got.tolist() == [1.0, -1.0, 2.0, 3.0, -3.0, 0.0, 8388609.0, 0.0]
    assert math.copysign(1.0, got[-1].item()) == -1.0
    assert run("llround", x, result=torch.int64).tolist() == [1, -1, 2, 3, -3, 0, 8388609, 0]


def test_classification_gives_booleans():
    @tkdebug.jit
    def kernel(X, OUT, N: tl.constexpr):
        i = tl.arange(0, N)
        x = tl.load(X + i)
        nan, inf = libdevice.isnan(x), libdevice.isinf(x)
        tl.static_assert(nan.dtype == tl.int1)
        tl.store(OUT + i, tl.where(nan, 1, tl.where(inf, 2, tl.where(libdevice.finitef(x), 3, 4))))

    out = torch.empty(4, dtype=torch.int32)
    kernel[(1,)](torch.tensor([math.nan, math.inf, -math.inf, 1.0]), out, 4)
    assert out.tolist() == [1, 2, 2, 3]


def test_bits_of_floats():
    x = torch.randn(SIZE, dtype=torch.float64)
    low = run("double2loint", x, result=torch.int32)
    high = run("double2hiint", x, result=torch.int32)
    assert torch.equal(run("hiloint2double", high, low, result=torch.float64), x)
    f = torch.randn(SIZE)
    assert torch.equal(run("float_as_int", f, result=torch.int32), f.view(torch.int32))


def test_every_function_compiles_and_all_but_two_evaluate():
    refused = set()
    for name, function in FUNCTIONS.items():
        for overload in function.overloads:
            if len(overload.arguments) > 3:
                continue
            arguments = [_ones(str(dtype)) for dtype in overload.arguments]
            try:
                run(name, *arguments, result=_ones(str(overload.result)).dtype)
            except UnsupportedError:
                refused.add(name)
    assert refused == {"jn", "yn"}


def test_function_without_a_closed_form_says_so_by_name_and_line():
    message = r"test_language_libdevice.py:\d+: libdevice.jn is not available under interpret"
    with pytest.raises(UnsupportedError, match=message):
        run("jn", torch.ones(4, dtype=torch.int32), torch.ones(4), result=torch.float32)


def _ones(name):
    dtype = {"fp32": "float32", "fp64": "float64"}.get(name, name)
    return torch.ones(4, dtype=getattr(torch, dtype))


def test_half_precision_is_refused_with_the_cast_to_write():
    with pytest.raises(CompileError, match=r"write libdevice.tanh\(tl.cast\(x, tl.float32\)\)"):
        run("tanh", torch.zeros(4, dtype=torch.float16), result=torch.float16)


def test_wrong_number_of_arguments_is_an_error():
    with pytest.raises(CompileError, match=r"libdevice\.pow takes 2 arguments, got 1"):
        run("pow", torch.zeros(4), result=torch.float32)


def test_zero_from_opposites_is_negative_only_when_rounding_down():
    x = torch.tensor([1.0])
    assert math.copysign(1.0, rounding.add(torch, "rd", x, -x).item()) == -1.0
    assert math.copysign(1.0, rounding.add(torch, "rn", x, -x).item()) == 1.0


FUNCTIONS_OF_SEVERAL = [f.name for f in FUNCTIONS.values() if len(f.overloads[0].arguments) > 1]


@pytest.mark.parametrize("name", FUNCTIONS_OF_SEVERAL)
def test_arguments_of_several_types_are_no_overload(name):
    """Types are looked up before they are promoted, as in Triton since 3.6."""
    *first, _ = FUNCTIONS[name].overloads[0].arguments
    given = (*first, dt.int64)
    assert given not in [overload.arguments for overload in FUNCTIONS[name].overloads]
    arguments = [_ones(str(each)) for each in given]
    with pytest.raises(CompileError) as caught:
        run(name, *arguments, result=torch.float64)
    got = f"got ({', '.join(map(str, given))})"
    assert f"libdevice.{name} takes ({first[0]}, " in str(caught.value)
    assert got in str(caught.value)


@tkdebug.jit
def remainder(x, y):
    return libdevice.fmod(x, y)


@tkdebug.jit
def through_helper(X, OUT, width, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(OUT + i, remainder(tl.load(X + i), width))


def test_refused_overload_names_types_cast_and_chain():
    with pytest.raises(CompileError) as caught:
        through_helper[(1,)](torch.ones(8), torch.empty(8), 7, 8)
    line = remainder.starting_line_number + 2
    called = through_helper.starting_line_number + 3
    text = str(caught.value)
    assert f"test_language_libdevice.py:{line}: libdevice.fmod takes (fp32, fp32)" in text
    assert "got (fp32, int32); write libdevice.fmod(x, tl.cast(y, tl.float32))" in text
    assert f"test_language_libdevice.py:{called} in through_helper" in text


@tkdebug.jit
def power(X, OUT, N: tl.constexpr, EXPONENT: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(OUT + i, libdevice.pow(tl.load(X + i), tl.cast(EXPONENT, X.dtype.element_ty)))


def test_cast_that_the_hint_names_makes_an_overload_of_a_constant():
    x, out = torch.rand(8, dtype=torch.float64), torch.empty(8, dtype=torch.float64)
    power[(1,)](x, out, 8, 2.0)
    assert torch.equal(out, x**2)
