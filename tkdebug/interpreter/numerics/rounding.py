"""IEEE 754 operations in all four rounding modes, elementwise on torch tensors.

A result is first made as an exact pair `high + low` of doubles by error-free transformations
(Dekker 1971; Knuth, TAOCP 4.2.2; Boldo and Melquiond, Emulation of FMA, 2008), then rounded once.
For doubles the pair is made of significands, and the power of two comes back with the rounding:
so no part of it overflows or underflows, and subnormal results are rounded at their own last bit.
Modes are `rn` (nearest even), `rz` (toward zero), `rd` (down), `ru` (up). Every function takes the
torch module first. Invariant: one rounding per result.
"""

from __future__ import annotations

import math
from typing import Any

Pair = tuple[Any, Any]
_SPLITTER = 134217729.0  # 2**27 + 1 halves the 53 bits of a double
_LOW_WORD = 0xFFFFFFFF


def two_sum(a: Any, b: Any) -> Pair:
    """`a + b` rounded, and the rounding error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(t: Any, a: Any, b: Any) -> Pair:
    """`a * b` of doubles rounded, and the rounding error."""
    product = a * b

    def split(x: Any) -> Pair:
        scaled = x * _SPLITTER
        high = scaled - (scaled - x)
        return high, x - high

    (ah, al), (bh, bl) = split(a), split(b)
    low = ((ah * bh - product) + ah * bl + al * bh) + al * bl
    return product, _finite(t, low)


def _finite(t: Any, low: Any) -> Any:
    """Return a rounding error, or 0 if it is not finite (from an overflow or an infinity)."""
    return t.where(t.isfinite(low), low, 0.0)


def _total(t: Any, high: Any, low: Any) -> Pair:
    """Return the pair normalised; a zero keeps its sign, an infinity stays."""
    low = _finite(t, low)
    total, lost = two_sum(high, low)
    return t.where(low == 0, high, total), _finite(t, lost)


def _round_to_odd(t: Any, high: Any, low: Any) -> Any:
    """Round the pair to odd: an inexact result is a double whose last bit is 1."""
    total, lost = _total(t, high, low)
    is_even = (total.view(t.int64) & 1) == 0
    toward = t.where(lost > 0, float("inf"), float("-inf")).to(total.dtype)
    return t.where((lost != 0) & is_even & t.isfinite(total), t.nextafter(total, toward), total)


def _directed(t: Any, nearest: Any, lost: Any, mode: str) -> Any:
    """`nearest` moved by one place where the mode asks for it; exact = nearest + lost."""
    down = t.full_like(nearest, float("-inf"))
    match mode:
        case "rn":
            return nearest
        case "rd":
            return t.where(lost < 0, t.nextafter(nearest, down), nearest)
        case "ru":
            return t.where(lost > 0, t.nextafter(nearest, -down), nearest)
        case _:
            away = ((lost < 0) & (nearest > 0)) | ((lost > 0) & (nearest < 0))
            return t.where(away, t.nextafter(nearest, t.zeros_like(nearest)), nearest)


def _odd_single(t: Any, x: Any) -> Any:
    """Round a double to odd in fp32, so that a second rounding, to fewer bits, acts as one."""
    nearest = x.to(t.float32)
    cut = _directed(t, nearest, x - nearest.double(), "rz")
    sticky = (cut.view(t.int32) | 1).view(t.float32)
    return t.where((cut.double() != x) & t.isfinite(x), sticky, cut)


def rounded(t: Any, pair: Pair, dtype: Any, mode: str) -> Any:
    """Round an exact pair of doubles, in the range of `dtype`, to one number of it."""
    if dtype == t.float64:
        return _directed(t, *_total(t, *pair), mode)
    odd = _round_to_odd(t, *pair)
    nearest = odd.to(dtype) if dtype == t.float32 else _odd_single(t, odd).to(dtype)
    return _directed(t, nearest, odd - nearest.double(), mode)


# Doubles: significands in [1/2, 1), exponents apart.


def _parts(t: Any, x: Any) -> Pair:
    """Significand and exponent (int64); 0's exponent is far below all others."""
    parts = t.frexp(x)
    return parts.mantissa, t.where(x == 0, -5000, parts.exponent.to(t.int64))


def times_power(t: Any, x: Any, exponent: Any) -> Any:
    """`x` times 2 to the `exponent`, a tensor of int64; rounded once if the result is tiny."""
    first = exponent.clamp(-2040, 2040) >> 1
    second = exponent.clamp(-2040, 2040) - first
    return x * ((first + 1023) << 52).view(t.float64) * ((second + 1023) << 52).view(t.float64)


def _rounded_double(t: Any, pair: Pair, exponent: Any, mode: str) -> Any:
    """The pair times 2 to the `exponent` as one double."""
    high, low = _total(t, *pair)
    nearest = _directed(t, high, low, mode)
    large = times_power(t, nearest, exponent)
    # Rounding toward the other side stops at the largest number (IEEE 754, 7.4).
    stays = {"rn": high != high, "rz": high == high, "rd": high > 0, "ru": high < 0}[mode]
    largest = t.finfo(t.float64).max
    large = t.where(large.isinf() & stays, large.clamp(-largest, largest), large)
    top = t.frexp(high).exponent.to(t.int64)
    small = _rounded_subnormal(t, high, low, t.maximum(exponent + 1074, -60 - top), mode)
    result = t.where(top + exponent <= -1021, small, large)
    return t.where(t.isfinite(high) & (high != 0), result, high)


def _rounded_subnormal(t: Any, high: Any, low: Any, exponent: Any, mode: str) -> Any:
    """The pair times 2 to the `exponent`, rounded to a whole number of units of 2**-1074."""
    units, rest = times_power(t, high, exponent), times_power(t, low, exponent)
    below = t.floor(units)
    below = t.where((below == units) & (rest < 0), below - 1, below)
    part = units - below
    match mode:
        case "rn":
            half = (part - 0.5) + rest
            up = (half > 0) | ((half == 0) & (t.fmod(below, 2.0) != 0))
        case "rd":
            up = high != high
        case "ru":
            up = part + rest > 0
        case _:
            up = (part + rest > 0) & (high < 0)
    whole_units = below + up.double()
    return t.copysign(times_power(t, whole_units, t.full_like(exponent, -1074)), high)


def _sum_of_doubles(t: Any, pair: Pair, exponent: Any, c: Any) -> tuple[Pair, Any]:
    """A pair times 2 to the `exponent`, plus c, as another pair and exponent: all finite."""
    c_high, c_exponent = _parts(t, c)
    common = t.maximum(exponent, c_exponent)
    # A part 2**300 below decides ties and directions, whatever its exact size.
    shift = (exponent - common).clamp(min=-300)
    product_high, product_low = (times_power(t, part, shift) for part in pair)
    c_high = times_power(t, c_high, (c_exponent - common).clamp(min=-300))
    sum_high, sum_low = two_sum(c_high, product_low)
    high, middle = two_sum(product_high, sum_high)
    return (high, _round_to_odd(t, sum_low, middle)), common


def _zero_sign(t: Any, mode: str, result: Any, is_zero: Any, negative: Any) -> Any:
    """The sign of numbers that cancel: -0 when rounding down, else 0 (IEEE 754, 6.3)."""
    return t.where(is_zero & negative, -0.0, result) if mode == "rd" else result


def add(t: Any, mode: str, a: Any, b: Any) -> Any:
    """A + b."""
    if a.dtype == t.float64:
        significand, exponent = _parts(t, a)
        pair, exponent = _sum_of_doubles(t, (significand, t.zeros_like(significand)), exponent, b)
        total = _rounded_double(t, pair, exponent, mode)
        plain = ~t.isfinite(a) | ~t.isfinite(b) | ((a == 0) & (b == 0))
        total = t.where(plain, a + b, total)
    else:
        total = rounded(t, two_sum(a.double(), b.double()), a.dtype, mode)
        total = t.where((a == 0) & (b == 0), a + b, total)
    return _zero_sign(t, mode, total, total == 0, t.signbit(a) | t.signbit(b))


def sub(t: Any, mode: str, a: Any, b: Any) -> Any:
    """A - b."""
    return add(t, mode, a, -b)


def mul(t: Any, mode: str, a: Any, b: Any) -> Any:
    """A * b."""
    if a.dtype != t.float64:
        product = a.double() * b.double()
        return rounded(t, (product, t.zeros_like(product)), a.dtype, mode)
    (x, x_exponent), (y, y_exponent) = _parts(t, a), _parts(t, b)
    product = _rounded_double(t, two_product(t, x, y), x_exponent + y_exponent, mode)
    plain = ~t.isfinite(a) | ~t.isfinite(b) | (a == 0) | (b == 0)
    return t.where(plain, a * b, product)


def div(t: Any, mode: str, a: Any, b: Any) -> Any:
    """A / b."""
    if a.dtype != t.float64:
        return rounded(t, _quotient(t, a.double(), b.double()), a.dtype, mode)
    (x, x_exponent), (y, y_exponent) = _parts(t, a), _parts(t, b)
    quotient = _rounded_double(t, _quotient(t, x, y), x_exponent - y_exponent, mode)
    plain = ~t.isfinite(a) | ~t.isfinite(b) | (a == 0) | (b == 0)
    return t.where(plain, a / b, quotient)


def _quotient(t: Any, x: Any, y: Any) -> Pair:
    quotient = x / y
    high, low = two_product(t, quotient, y)
    return quotient, _finite(t, ((x - high) - low) / y)


def rcp(t: Any, mode: str, a: Any) -> Any:
    """1 / a."""
    return div(t, mode, t.ones_like(a), a)


def sqrt(t: Any, mode: str, a: Any) -> Any:
    """The square root of a."""
    if a.dtype != t.float64:
        return rounded(t, _root(t, a.double()), a.dtype, mode)
    significand, exponent = _parts(t, a)
    half = exponent >> 1
    pair = _root(t, times_power(t, significand, exponent - 2 * half))
    return t.where(t.isfinite(a) & (a > 0), _rounded_double(t, pair, half, mode), t.sqrt(a))


def _root(t: Any, x: Any) -> Pair:
    root = t.sqrt(x)
    high, low = two_product(t, root, root)
    lacking = (x - high) - low
    rest = lacking / (2.0 * root)
    # A root is never half way between two numbers. Where the linear step says so, which is a power
    # of two, the difference of the squares, exact then, gives the side.
    beyond = (lacking - 2.0 * root * rest) - rest * rest
    beside = t.nextafter(rest, t.copysign(t.full_like(rest, math.inf), beyond))
    at_half = (t.frexp(rest).mantissa.abs() == 0.5) & (beyond != 0)
    return root, _finite(t, t.where(at_half, beside, rest))


def fma(t: Any, mode: str, a: Any, b: Any, c: Any) -> Any:
    """A * b + c, rounded once."""
    a, b, c = t.broadcast_tensors(a, b, c)
    negative = (t.signbit(a) ^ t.signbit(b)) | t.signbit(c)
    if a.dtype != t.float64:
        product, term = a.double() * b.double(), c.double()
        exact = product + term
        total = rounded(t, two_sum(product, term), a.dtype, mode)
        # Two zeros of one sign keep it.
        total = t.where((product == 0) & (term == 0), exact.to(a.dtype), total)
        return _zero_sign(t, mode, total, exact == 0, negative)
    (x, x_exponent), (y, y_exponent) = _parts(t, a), _parts(t, b)
    pair, exponent = _sum_of_doubles(t, two_product(t, x, y), x_exponent + y_exponent, c)
    total = t.where(t.isfinite(c), _rounded_double(t, pair, exponent, mode), c)
    plain = ~t.isfinite(a) | ~t.isfinite(b) | (a == 0) | (b == 0)
    total = t.where(plain, a * b + c, total)
    is_zero = t.where(plain, total == 0, pair[0] + pair[1] == 0)
    return _zero_sign(t, mode, total, is_zero, negative)


def fmod(t: Any, a: Any, b: Any) -> Any:
    """The remainder of a / b with the sign of a, exact (IEEE 754's truncating remainder)."""
    # torch's is NaN where a / b overflows; remainders of multiples of b come first.
    wide, step = a.double(), t.full(b.shape, 700, dtype=t.int64, device=b.device)
    for steps in (2, 1, 0):
        divisor = times_power(t, b.double(), step * steps)
        wide = t.where(divisor.isinf() & t.isfinite(b), wide, t.fmod(wide, divisor))
    return wide.to(a.dtype)


def narrow(t: Any, mode: str, a: Any) -> Any:
    """A double as fp32."""
    return rounded(t, (a, t.zeros_like(a)), t.float32, mode)


def from_integer(t: Any, mode: str, dtype: Any, unsigned: bool, a: Any) -> Any:
    """A 32- or 64-bit integer as a float of `dtype`."""
    if a.dtype == t.int32:
        wide = a.to(t.int64)
        exact = (wide & _LOW_WORD if unsigned else wide).double()
        return rounded(t, (exact, t.zeros_like(exact)), dtype, mode)
    high = a >> 32
    high = (high & _LOW_WORD if unsigned else high).double() * 2.0**32
    return rounded(t, two_sum(high, (a & _LOW_WORD).double()), dtype, mode)


def whole(t: Any, mode: str, a: Any) -> Any:
    """A float rounded to a whole number, still a float."""
    return {"rn": t.round, "rz": t.trunc, "rd": t.floor, "ru": t.ceil}[mode](a)


def to_integer(t: Any, mode: str, dtype: Any, unsigned: bool, a: Any) -> Any:
    """A float as an integer of torch `dtype` (int16, int32 or int64), saturating.

    NaN gives 0 from at most 32 bits to at most 32, else the highest bit alone (PTX ISA, cvt).
    """
    info = t.iinfo(dtype)
    invalid = 0.0
    if a.dtype == t.float64 or info.bits == 64:
        invalid = 2.0 ** (info.bits - 1) if unsigned else float(info.min)
    # Conversion to int64 truncates.
    value = a.double() if mode == "rz" else whole(t, mode, a.double())
    return _saturated(t, value.nan_to_num(invalid), dtype, unsigned)


def _saturated(t: Any, value: Any, dtype: Any, unsigned: bool) -> Any:
    """A whole double as the nearest integer of torch `dtype`, maybe read as unsigned."""
    info = t.iinfo(dtype)
    if info.bits < 64:
        low, high = (0, 2**info.bits - 1) if unsigned else (info.min, info.max)
        return value.clamp(low, high).to(t.int64).to(dtype)
    largest = 2.0**63 - 1024  # the largest double below 2**63
    if not unsigned:
        inside = value.clamp(-(2.0**63), largest).to(t.int64)
        return t.where(value >= 2.0**63, 2**63 - 1, inside)
    value = value.clamp(min=0.0)
    below = value.clamp(max=largest).to(t.int64)
    above = (value - 2.0**63).clamp(0.0, largest).to(t.int64) ^ -(2**63)
    return t.where(value >= 2.0**64, -1, t.where(value >= 2.0**63, above, below))
