"""Results of operations, against torch and exact arithmetic, and their dtypes."""

import itertools
import math
import struct
from fractions import Fraction

import numeric_kernels as kernels
import pytest
import torch

import tkdebug.language as tl
from tkdebug.errors import CompileError

LANGUAGE = {
    torch.bool: tl.int1, torch.int8: tl.int8, torch.int16: tl.int16, torch.int32: tl.int32,
    torch.int64: tl.int64, torch.uint8: tl.uint8, torch.uint16: tl.uint16,
    torch.uint32: tl.uint32, torch.uint64: tl.uint64, torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16, torch.float32: tl.float32, torch.float64: tl.float64,
    torch.float8_e4m3fn: tl.float8e4nv, torch.float8_e5m2: tl.float8e5,
}  # fmt: skip
SIGNED = [torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint8, torch.uint16, torch.uint32, torch.uint64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
WIDE = [torch.float32, torch.float64]


def short(dtype):
    return str(dtype).removeprefix("torch.")


def bits_of(dtype):
    return 1 if dtype is torch.bool else 8 * dtype.itemsize


def signed(dtype):
    return dtype in SIGNED


def wrapped(value, dtype):
    bits = bits_of(dtype)
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed(dtype) and value >> (bits - 1) else value


def ends(dtype):
    """Integers near zero and at the ends of the dtype's range."""
    bits = bits_of(dtype)
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed(dtype) else (0, 2**bits - 1)
    values = [low, low + 1, high - 1, high, 0, 1, 2, 3, 7, 100]
    if signed(dtype):
        values += [-1, -2, -7]
    return values


def tensor(values, dtype):
    if dtype is torch.uint64:
        return torch.tensor([wrapped(v, torch.int64) for v in values]).view(torch.uint64)
    return torch.tensor(values, dtype=dtype)


def numbers(values):
    if values.dtype is torch.uint64:
        return [v & (2**64 - 1) for v in values.view(torch.int64).tolist()]
    return values.tolist()


def quotient(a, b):
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


INTEGER_OPS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": quotient,
    "mod": lambda a, b: a - quotient(a, b) * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "maximum": max,
    "minimum": min,
}


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED, ids=short)
@pytest.mark.parametrize("op", INTEGER_OPS)
def test_integers_wrap_at_their_width(op, dtype):
    pairs = list(itertools.product(ends(dtype), repeat=2))
    if op in ("floordiv", "mod"):
        pairs = [(a, b) for a, b in pairs if b != 0]
    x, y = (tensor(column, dtype) for column in zip(*pairs, strict=True))
    out = torch.zeros_like(x)
    kernels.binary.interpret[(2,)](x, y, out, len(pairs), op, LANGUAGE[dtype], BLOCK=128)
    assert numbers(out) == [wrapped(INTEGER_OPS[op](a, b), dtype) for a, b in pairs]


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED, ids=short)
@pytest.mark.parametrize("op", ["shl", "shr"])
def test_shifts(op, dtype):
    pairs = list(itertools.product(ends(dtype), range(bits_of(dtype))))
    x, y = (tensor(column, dtype) for column in zip(*pairs, strict=True))
    out = torch.zeros_like(x)
    kernels.binary.interpret[(1,)](x, y, out, len(pairs), op, LANGUAGE[dtype], BLOCK=1024)
    fn = (lambda a, b: a << b) if op == "shl" else (lambda a, b: a >> b)
    assert numbers(out) == [wrapped(fn(a, b), dtype) for a, b in pairs]


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED, ids=short)
@pytest.mark.parametrize("op", ["lt", "ge", "eq"])
def test_integer_comparisons(op, dtype):
    pairs = list(itertools.product(ends(dtype), repeat=2))
    x, y = (tensor(column, dtype) for column in zip(*pairs, strict=True))
    out = torch.zeros(len(pairs), dtype=torch.bool)
    kernels.binary.interpret[(2,)](x, y, out, len(pairs), op, tl.int1, BLOCK=128)
    fn = {"lt": lambda a, b: a < b, "ge": lambda a, b: a >= b, "eq": lambda a, b: a == b}[op]
    assert out.tolist() == [fn(a, b) for a, b in pairs]


FLOAT_VALUES = [0.0, -0.0, 1.0, -1.5, 3.25, 1e-3, 300.0, 6e4, -7e-6, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("dtype", FLOATS, ids=short)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "truediv", "mod", "lt", "ge", "eq"])
def test_floats_round_after_every_operation(op, dtype):
    pairs = list(itertools.product(FLOAT_VALUES, repeat=2))
    x, y = (torch.tensor(column).to(dtype) for column in zip(*pairs, strict=True))
    wide = dtype if dtype in WIDE or op not in ("truediv", "mod") else torch.float32
    fn = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "truediv": torch.div,
          "mod": torch.fmod, "lt": torch.lt, "ge": torch.ge, "eq": torch.eq}[op]  # fmt: skip
    expected = fn(x.to(wide), y.to(wide))
    out = torch.zeros(len(pairs), dtype=expected.dtype)
    kernels.binary.interpret[(3,)](x, y, out, len(pairs), op, LANGUAGE[expected.dtype], BLOCK=64)
    torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=short)
def test_extremes_ignore_nan(dtype):
    pairs = list(itertools.product(FLOAT_VALUES, repeat=2))
    x, y = (torch.tensor(column).to(dtype) for column in zip(*pairs, strict=True))
    for op, fn in (("maximum", torch.fmax), ("minimum", torch.fmin)):
        expected = fn(x, y)
        out = torch.zeros_like(expected)
        # Their type is the language's own business: only the values are looked at.
        widened = torch.float32 if dtype in (torch.bfloat16,) else dtype
        try:
            kernels.binary.interpret[(3,)](x, y, out, len(pairs), op, LANGUAGE[dtype], BLOCK=64)
        except CompileError:
            kernels.binary.interpret[(3,)](x, y, out, len(pairs), op, LANGUAGE[widened], BLOCK=64)
        torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)


def promoted(a, b, divides=False):
    """docs: upstream's rules for two run-time operands."""
    for wide in (torch.float64, torch.float32):
        if wide in (a, b):
            return wide
    if torch.float16 in (a, b):
        return torch.float32 if divides else torch.float16
    if torch.bfloat16 in (a, b):
        return torch.bfloat16 if a == b and not divides else torch.float32
    if divides:
        return torch.float32
    if a is torch.bool and b is torch.bool:
        return torch.bool
    if signed(a) == signed(b):
        return a if bits_of(a) >= bits_of(b) else b
    unsigned_one, signed_one = (b, a) if signed(a) else (a, b)
    return unsigned_one if bits_of(unsigned_one) >= bits_of(signed_one) else signed_one


ALL = [torch.bool, *SIGNED, *UNSIGNED, *FLOATS]


@pytest.mark.parametrize("a", ALL, ids=short)
@pytest.mark.parametrize("b", ALL, ids=short)
def test_promotion_of_two_operands(a, b):
    x, y = torch.tensor([1, 0, 1, 1]).to(a), torch.tensor([1, 1, 0, 1]).to(b)
    for op in ("add", "truediv"):
        wide = promoted(a, b, divides=op == "truediv")
        mixed = not (a.is_floating_point or b.is_floating_point) and signed(a) != signed(b)
        out = torch.zeros(4, dtype=wide)
        y = y if op == "add" else torch.ones(4).to(b)
        if op == "truediv" and mixed:
            with pytest.raises(CompileError, match="different signedness"):
                kernels.binary.interpret[(1,)](x, y, out, 4, op, LANGUAGE[wide], BLOCK=4)
            continue
        kernels.binary.interpret[(1,)](x, y, out, 4, op, LANGUAGE[wide], BLOCK=4)
        if wide is torch.bool:
            continue
        expected = x.double() + y.double() if op == "add" else x.double() / y.double()
        assert out.double().tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("dtype", "number", "expected"),
    [
        (torch.float16, 1, torch.float16), (torch.float16, 2.5, torch.float16),
        (torch.bfloat16, 3, torch.bfloat16), (torch.bfloat16, 2.5, torch.bfloat16),
        (torch.float64, 2.5, torch.float64), (torch.int32, 2.5, torch.float32),
        (torch.int8, 100, torch.int8), (torch.uint8, 200, torch.uint8),
        (torch.int64, 3, torch.int64), (torch.int64, 2.5, torch.float32),
        (torch.bool, 3, torch.int32), (torch.bool, 2.5, torch.float32),
        (torch.int16, True, torch.int16),
    ],
)  # fmt: skip
def test_python_numbers_are_weak(dtype, number, expected):
    x = torch.tensor([0, 1, 1, 0]).to(dtype)
    out = torch.zeros(4, dtype=expected)
    kernels.with_number.interpret[(1,)](x, out, 4, "add", number, LANGUAGE[expected], BLOCK=4)
    assert out.double().tolist() == (x.double() + float(number)).tolist()


@pytest.mark.parametrize("number", [300, -1])
def test_number_out_of_range_is_an_error(number):
    x = torch.zeros(4, dtype=torch.uint8)
    with pytest.raises(CompileError, match="out of range"):
        kernels.with_number.interpret[(1,)](x, x, 4, "add", number, tl.uint8, BLOCK=4)


@pytest.mark.parametrize("op", ["floordiv", "mod"])
def test_division_of_mixed_signedness_is_an_error(op):
    x, y = torch.ones(4, dtype=torch.int32), torch.ones(4, dtype=torch.uint32)
    with pytest.raises(CompileError, match="sign"):
        kernels.binary.interpret[(1,)](x, y, x, 4, op, tl.int32, BLOCK=4)


def cast(x, target, rounding=None):
    out = torch.zeros(x.numel(), dtype=target)
    grid = (-(-x.numel() // 256),)
    kernels.convert.interpret[grid](x, out, x.numel(), LANGUAGE[target], rounding, BLOCK=256)
    return out


@pytest.mark.parametrize("source", SIGNED + UNSIGNED, ids=short)
@pytest.mark.parametrize("target", SIGNED + UNSIGNED, ids=short)
def test_integer_casts_wrap(source, target):
    values = ends(source)
    assert numbers(cast(tensor(values, source), target)) == [wrapped(v, target) for v in values]


@pytest.mark.parametrize("source", SIGNED + UNSIGNED + FLOATS, ids=short)
def test_casts_to_bool_compare_with_zero(source):
    values = [0, 1, 2, 100] if source in UNSIGNED else [0, 1, -2, 100]
    if source in FLOATS:
        values = [0.0, -0.0, 0.25, math.nan]
    assert cast(tensor(values, source), torch.bool).tolist() == [v != 0 for v in values]


def nearest_even(value, mantissa, lowest):
    """The exact rational `value` at `mantissa` bits, exponents not below `lowest`."""
    if value == 0:
        return Fraction(0)
    magnitude = abs(Fraction(value))
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    while Fraction(2) ** exponent > magnitude:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= magnitude:
        exponent += 1
    step = Fraction(2) ** (max(exponent, lowest) - mantissa)
    scaled = magnitude / step
    whole = scaled.numerator // scaled.denominator
    rest = scaled - whole
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2):
        whole += 1
    return math.copysign(1, value) * whole * step


FORMATS = {
    torch.float16: (10, -14, 65504.0), torch.bfloat16: (7, -126, 3.3895313892515355e38),
    torch.float32: (23, -126, 3.4028234663852886e38), torch.float8_e4m3fn: (3, -6, 448.0),
    torch.float8_e5m2: (2, -14, 57344.0),
}  # fmt: skip


def rounded(value, target, saturates):
    mantissa, lowest, largest = FORMATS[target]
    if math.isnan(value):
        return math.nan
    if math.isinf(value):
        return math.copysign(largest, value) if saturates else value
    out = float(nearest_even(value, mantissa, lowest))
    if abs(out) > largest:
        return math.copysign(largest if saturates else math.inf, value)
    return out if out else math.copysign(0.0, value)


def tricky(source, target):
    """Values of `source` halfway between, and just off halfway between, neighbours in `target`."""
    mantissa, lowest, largest = FORMATS[target]
    values = [0.0, -0.0, math.inf, -math.inf, math.nan, largest, -largest, largest * (1 + 2.0**-20)]
    for exponent in (0, 5, -3, lowest, lowest - 1, lowest - mantissa, lowest - mantissa - 1):
        for step in range(4):
            middle = math.ldexp(1 + (step + 0.5) * 2.0**-mantissa, exponent)
            values += [middle, -middle]
            for tiny in (2.0**-20, 2.0**-40, -(2.0**-20), -(2.0**-40)):
                values.append(middle * (1 + tiny))
    return torch.tensor(values, dtype=torch.float64).to(source)


def same(got, expected):
    both = zip(got, expected, strict=True)
    return [
        (g, e)
        for g, e in both
        if struct.pack("d", g) != struct.pack("d", e) and not (math.isnan(g) and math.isnan(e))
    ]


@pytest.mark.parametrize("target", FORMATS, ids=short)
@pytest.mark.parametrize("source", FLOATS, ids=short)
def test_float_casts_round_once_to_nearest_even(source, target):
    x = tricky(source, target)
    expected = [rounded(v, target, target.itemsize == 1) for v in x.double().tolist()]
    assert not same(cast(x, target).double().tolist(), expected)


@pytest.mark.parametrize("target", [torch.float16, torch.bfloat16], ids=short)
def test_float_casts_toward_zero(target):
    x = tricky(torch.float32, target)
    mantissa, lowest, largest = FORMATS[target]
    expected = []
    for value in x.double().tolist():
        if math.isnan(value) or math.isinf(value):
            expected.append(value)
            continue
        near = nearest_even(value, mantissa, lowest)
        if abs(near) > abs(Fraction(value)) or abs(near) > largest:
            # Nearest went away from zero: one step back.
            magnitude = abs(near)
            step = Fraction(2) ** -400
            near = nearest_even(magnitude - step, mantissa + 200, -1000)
            digits = math.frexp(float(abs(Fraction(value))))[1] - 1
            unit = Fraction(2) ** (max(digits, lowest) - mantissa)
            near = math.copysign(1, value) * (abs(Fraction(value)) // unit) * unit
        out = float(near)
        expected.append(math.copysign(min(abs(out), largest), value))
    assert not same(cast(x, target, "rtz").double().tolist(), expected)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=short)
@pytest.mark.parametrize("target", FLOATS, ids=short)
def test_every_8_bit_float_widens_exactly(dtype, target):
    x = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(dtype)
    expected = (
        x.double().tolist() if target is not torch.bfloat16 else x.to(target).double().tolist()
    )
    assert not same(cast(x, target).double().tolist(), expected)


@pytest.mark.parametrize("source", FLOATS, ids=short)
@pytest.mark.parametrize("target", SIGNED + UNSIGNED, ids=short)
def test_floats_truncate_to_integers(source, target):
    values = [0.0, 0.99, 1.5, 2.5, 100.7, 126.0]
    if signed(target):
        values += [-0.99, -1.5, -100.7]
    x = torch.tensor(values, dtype=torch.float64).to(source)
    assert numbers(cast(x, target)) == [math.trunc(v) for v in x.double().tolist()]


@pytest.mark.parametrize("source", WIDE, ids=short)
@pytest.mark.parametrize("target", SIGNED[1:] + UNSIGNED[1:], ids=short)
def test_floats_out_of_range_saturate(source, target):
    low, high = (ends(target)[0], ends(target)[3])
    x = torch.tensor([1e30, -1e30, math.inf, -math.inf, 2.0**63, 2.0**64, -1.0], dtype=source)
    expected = [high, low, high, low, min(2**63, high), min(2**64, high), max(-1, low)]
    assert numbers(cast(x, target)) == expected


@pytest.mark.parametrize("source", FLOATS, ids=short)
@pytest.mark.parametrize("target", [torch.int8, torch.uint8], ids=short)
def test_8_bit_integers_are_the_low_byte_of_16_bit_ones(source, target):
    values = [140.0, -116.0, 300.0, -300.0, 32768.0, 65280.0, -65280.0, math.inf, -math.inf]
    signed_ones = [-116, -116, 44, -44, -1, -1, 0, -1, 0]
    unsigned_ones = [140, 0, 44, 0, 0, 0, 0, 255, 0]
    out = numbers(cast(torch.tensor([*values, math.nan], dtype=source), target))
    assert out == [*(signed_ones if signed(target) else unsigned_ones), 0]


@pytest.mark.parametrize("source", FLOATS, ids=short)
@pytest.mark.parametrize("target", SIGNED[1:] + UNSIGNED[1:], ids=short)
def test_nan_as_an_integer_is_0_or_where_64_bits_take_part_the_highest_bit(source, target):
    highest = 2 ** (bits_of(target) - 1)
    wide = source is torch.float64 or bits_of(target) == 64
    expected = (-highest if signed(target) else highest) if wide else 0
    assert numbers(cast(torch.tensor([math.nan], dtype=source), target)) == [expected]


@pytest.mark.parametrize(
    "source", [torch.int32, torch.int64, torch.uint32, torch.uint64], ids=short
)
@pytest.mark.parametrize("target", [torch.float32, torch.float64], ids=short)
def test_integers_round_once_to_floats(source, target):
    bits = bits_of(source) - signed(source)
    values = [0, 1, 2**24 + 1, 2**24 + 3, 2**bits - 1, 2 ** (bits - 1) + 2 ** (bits - 25) + 1,
              2**bits - 2 ** (bits - 25), 2**31 - 1]  # fmt: skip
    if signed(source):
        values += [-v for v in values]
    mantissa = 23 if target is torch.float32 else 52
    expected = [float(nearest_even(v, mantissa, -126)) if v else 0.0 for v in values]
    assert cast(tensor(values, source), target).double().tolist() == expected


def test_bitcast_keeps_bits():
    x = torch.tensor([1.0, -0.0, math.inf, 1e-40])
    out = torch.zeros(4, dtype=torch.int32)
    kernels.reinterpret.interpret[(1,)](x, out, 4, tl.int32, BLOCK=4)
    assert torch.equal(out, x.view(torch.int32))


def product(a, b, out_dtype, precision="tf32", acc=False):
    m, k, n = *a.shape, b.shape[1]
    out = torch.zeros(m, n, dtype=out_dtype)
    kernels.matrix_product.interpret[(1,)](
        a, b, out, M=m, N=n, K=k, OUT=LANGUAGE[out_dtype], PRECISION=precision, WITH_ACC=acc
    )
    return out


def matrices(dtype, k=32):
    generator = torch.Generator().manual_seed(1)

    def draw(*shape):
        if dtype.is_floating_point:
            return torch.randn(shape, generator=generator).to(dtype)
        return torch.randint(-128, 128, shape, generator=generator).to(dtype)

    return draw(16, k), draw(k, 16)


@pytest.mark.parametrize("acc", [False, True])
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2], ids=short
)
def test_products_of_small_floats_accumulate_in_fp32(dtype, acc):
    a, b = matrices(dtype)
    expected = a.double() @ b.double() + acc
    torch.testing.assert_close(
        product(a, b, torch.float32, acc=acc).double(), expected, rtol=1e-6, atol=1e-5
    )


def test_product_with_fp16_result():
    a, b = matrices(torch.float16)
    expected = (a.float() @ b.float()).half()
    torch.testing.assert_close(product(a, b, torch.float16), expected, rtol=1e-3, atol=2e-3)


def test_product_in_double():
    a, b = matrices(torch.float64)
    torch.testing.assert_close(product(a, b, torch.float64), a @ b)


def test_product_of_8_bit_integers_is_exact():
    a, b = matrices(torch.int8, k=128)
    assert torch.equal(product(a, b, torch.int32), a.int() @ b.int())


def test_tf32_truncates_its_operands():
    a, b = matrices(torch.float32)

    def cut(t):
        return (t.view(torch.int32) & ~0x1FFF).view(torch.float32)

    exact = a.double() @ b.double()
    truncated = cut(a).double() @ cut(b).double()
    torch.testing.assert_close(
        product(a, b, torch.float32).double(), truncated, rtol=1e-6, atol=1e-5
    )
    torch.testing.assert_close(
        product(a, b, torch.float32, "ieee").double(), exact, rtol=1e-6, atol=1e-5
    )
    assert (truncated - exact).abs().max() > 1e-3


SUMS = {
    torch.float16: torch.float16, torch.bfloat16: torch.bfloat16, torch.float32: torch.float32,
    torch.float64: torch.float64, torch.int8: torch.int32, torch.int16: torch.int32,
    torch.int32: torch.int32, torch.int64: torch.int64, torch.uint8: torch.uint32,
    torch.uint16: torch.uint32, torch.uint32: torch.uint32, torch.bool: torch.uint32,
}  # fmt: skip


@pytest.mark.parametrize("dtype", SUMS, ids=short)
def test_sums(dtype):
    x = torch.arange(4 * 16).reshape(4, 16).remainder(7).to(dtype)
    out = torch.zeros(4, dtype=SUMS[dtype])
    kernels.reduction.interpret[(1,)](x, out, 4, 16, "sum", LANGUAGE[SUMS[dtype]])
    assert out.double().tolist() == x.double().sum(1).tolist()


EXTREMES = {
    torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float32,
    torch.float64: torch.float64, torch.int8: torch.int32, torch.int16: torch.int32,
    torch.int32: torch.int32, torch.int64: torch.int64, torch.uint8: torch.int32,
    torch.uint32: torch.uint32, torch.uint64: torch.uint64,
}  # fmt: skip


@pytest.mark.parametrize("dtype", EXTREMES, ids=short)
@pytest.mark.parametrize("op", ["max", "min", "argmax", "argmin"])
def test_extremes(op, dtype):
    rows = [[5, 3, 9, 9, 1, 1, 4, 2], [7] * 8, [0, 1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1, 0]]
    if dtype in UNSIGNED:
        rows[0][2] = rows[0][3] = 2 ** bits_of(dtype) - 1
    elif dtype in SIGNED:
        rows[0][4] = rows[0][5] = -(2 ** (bits_of(dtype) - 1))
    x = tensor([v for row in rows for v in row], dtype).reshape(4, 8)
    wide = torch.int32 if "arg" in op else EXTREMES[dtype]
    out = torch.zeros(4, dtype=wide)
    kernels.reduction.interpret[(1,)](x, out, 4, 8, op, LANGUAGE[wide])
    best = max if "max" in op else min
    if "arg" in op:
        expected = [row.index(best(row)) for row in rows]
    else:
        expected = [best(row) for row in rows]
    assert numbers(out) == expected


def test_extremes_of_rows_with_nan():
    nan, inf = math.nan, math.inf
    x = torch.tensor([[nan, 1, 5, nan], [nan] * 4, [-inf, nan, -inf, nan], [2, 3, nan, inf]])
    out = torch.zeros(4)
    kernels.reduction.interpret[(1,)](x, out, 4, 4, "max", tl.float32)
    assert not same(out.tolist(), [5.0, nan, -inf, inf])
    kernels.reduction.interpret[(1,)](x, out, 4, 4, "min", tl.float32)
    assert not same(out.tolist(), [1.0, nan, -inf, 2.0])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int32,
        torch.int8,
        torch.uint8,
        torch.int64,
    ],
    ids=short,
)
def test_scans(dtype, axis, reverse):
    x = torch.arange(8 * 16).reshape(8, 16).remainder(5).to(dtype)
    wide = {torch.int8: torch.int32, torch.uint8: torch.uint32}
    wide = wide.get(dtype, dtype)
    out = torch.zeros(8, 16, dtype=wide)
    kernels.scan.interpret[(1,)](x, out, 8, 16, axis, reverse, False, LANGUAGE[wide])
    turned = x.double().flip(axis) if reverse else x.double()
    expected = turned.cumsum(axis)
    assert torch.equal(out.double(), expected.flip(axis) if reverse else expected)


@pytest.mark.parametrize("dtype", WIDE, ids=short)
@pytest.mark.parametrize(
    "op",
    [
        "exp",
        "exp2",
        "log",
        "log2",
        "sqrt",
        "rsqrt",
        "sin",
        "cos",
        "erf",
        "floor",
        "ceil",
        "abs",
        "neg",
        "sigmoid",
    ],
)
def test_functions_of_floats(op, dtype):
    x = torch.cat(
        [
            torch.linspace(-9, 9, 100, dtype=dtype),
            torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan], dtype=dtype),
        ]
    )
    out = torch.zeros_like(x)
    kernels.unary.interpret[(4,)](x, out, x.numel(), op, BLOCK=32)
    expected = getattr(torch, op)(x)
    if op == "sqrt" and dtype == torch.float64:
        # Rounded to nearest, which torch's (MKL) is not always.
        expected = x.new_tensor([math.sqrt(v) if v >= 0 else math.nan for v in x.tolist()])
        expected = torch.where(x == 0, x, expected)
    tolerance = 0 if op in ("floor", "ceil", "abs", "neg", "sqrt") else 2e-6
    torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def test_philox_bit_for_bit():
    uniform, integers = torch.zeros(8), torch.zeros(32, dtype=torch.int32)
    kernels.random_numbers.interpret[(2,)](uniform, integers, 0, BLOCK=4)
    expected = torch.tensor([0.798092902, 0.0555175915, 0.0388988405, 0.425264418])
    assert torch.equal(uniform[:4], expected)


def philox(seed, counter):
    """Philox 4x32, 10 rounds (Salmon et al. 2011), counter in the first word, key = seed."""
    c = [counter & 0xFFFFFFFF, 0, 0, 0]
    key = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        high0, low0 = divmod(c[0] * 0xD2511F53, 1 << 32)
        high1, low1 = divmod(c[2] * 0xCD9E8D57, 1 << 32)
        c = [high1 ^ c[1] ^ key[0], low1, high0 ^ c[3] ^ key[1], low0]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**31 - 1, 2**40 + 17])
def test_philox_is_the_published_generator(seed):
    uniform, integers = torch.zeros(64), torch.zeros(256, dtype=torch.int32)
    kernels.random_numbers.interpret[(4,)](uniform, integers, seed, BLOCK=16)
    expected = [wrapped(word, torch.int32) for i in range(64) for word in philox(seed, i)]
    assert integers.tolist() == expected
    assert 0 <= uniform.min()
    assert uniform.max() < 1


def test_normal_numbers_are_normal():
    out = torch.zeros(1 << 14)
    kernels.normal_numbers.interpret[(16,)](out, 7, BLOCK=1024)
    assert abs(out.mean().item()) < 0.03
    assert abs(out.std().item() - 1) < 0.03


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint32, torch.int64, torch.uint64], ids=short)
def test_high_half_of_products(dtype):
    pairs = list(itertools.product(ends(dtype), repeat=2))
    x, y = (tensor(column, dtype) for column in zip(*pairs, strict=True))
    out = torch.zeros_like(x)
    kernels.high_product.interpret[(1,)](x, y, out, len(pairs), BLOCK=256)
    bits = bits_of(dtype)
    low = (1 << bits) - 1
    assert numbers(out) == [wrapped(((a & low) * (b & low)) >> bits, dtype) for a, b in pairs]
