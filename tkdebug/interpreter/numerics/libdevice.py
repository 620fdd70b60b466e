"""The function that each of NVIDIA's libdevice computes, on torch tensors.

Source: libdevice User's Guide, NVIDIA. Overloads and symbols are declared in
`compiler.dialects.libdevice`. `fast_*` functions are computed exactly here; the GPU approximates
them. Every function takes the torch module first. Special functions on doubles, if torch has none
or one that loses digits, are within a few units of the last place, except near zeros of the
function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tkdebug.interpreter.numerics import integer_bits as bits
from tkdebug.interpreter.numerics import rounding
from tkdebug.interpreter.numerics.rounding import two_product


def _quarter_turn(t: Any, x: Any) -> tuple[Any, Any]:
    """The nearest multiple of 1/2, as a count of quarter turns in 0 to 3, and pi times the rest."""
    quarters = t.round(x * 2.0)
    # Numbers so large are whole and even.
    rest = t.where(x.abs() < 2.0**52, x - quarters / 2.0, t.where(t.isfinite(x), 0.0, x - x))
    return t.remainder(quarters, 4.0), rest * math.pi


def sinpi(t: Any, x: Any) -> Any:
    """Sine of pi x."""
    turn, rest = _quarter_turn(t, x)
    value = t.where(turn % 2 == 0, t.sin(rest), t.cos(rest))
    value = t.where(turn >= 2, -value, value)
    return t.where(value == 0, t.copysign(t.zeros_like(x), x), value)


def cospi(t: Any, x: Any) -> Any:
    """Cosine of pi x."""
    turn, rest = _quarter_turn(t, x)
    value = t.where(turn % 2 == 0, t.cos(rest), -t.sin(rest))
    value = t.where(turn >= 2, -value, value)
    return t.where(value == 0, 0.0, value)


def cbrt(t: Any, x: Any) -> Any:
    """Cube root."""
    root = t.copysign(x.abs().pow(1.0 / 3.0), x)
    # One step of Newton's method gives the last bits.
    better = root - (root * root * root - x) / (3.0 * root * root)
    return t.where(t.isfinite(better), better, root)


def norm(t: Any, *values: Any) -> Any:
    """Length of a vector."""
    total = values[0].abs()
    for value in values[1:]:
        total = t.hypot(total, value)
    return total


# Lanczos's sum for g = 6.024680040776729583740234375 (Pugh's coefficients, as CPython's
# math.gamma has them), highest power first; the denominator is x (x + 1) ... (x + 11).
_LANCZOS_G = 6.024680040776729583740234375
_LANCZOS_NUMERATOR = (
    2.506628274631000270164908177133837338626, 210.8242777515793458725097339207133627117,
    8071.672002365816210638002902272250613822, 186056.2653952234950402949897160456992822,
    2876370.628935372441225409051620849613599, 31426415.58540019438061423162831820536287,
    248874557.8620541565114603864132294232163, 1439720407.311721673663223072794912393972,
    6039542586.352028005064291644307297921070, 17921034426.03720969991975575445893111267,
    35711959237.35566804944018545154716670596, 42919803642.64909876895789904700198885093,
    23531376880.41075968857200767445163675473,
)  # fmt: skip
_LANCZOS_DENOMINATOR = (
    1.0, 66.0, 1925.0, 32670.0, 357423.0, 2637558.0, 13339535.0, 45995730.0, 105258076.0,
    150917976.0, 120543840.0, 39916800.0, 0.0,
)  # fmt: skip


def gamma(t: Any, x: Any) -> Any:
    """Gamma function."""
    size = x.abs().clamp(min=1e-20, max=200.0)
    numerator = denominator = t.zeros_like(size)
    for above, below in zip(_LANCZOS_NUMERATOR, _LANCZOS_DENOMINATOR, strict=True):
        numerator, denominator = numerator * size + above, denominator * size + below
    y = size + (_LANCZOS_G - 0.5)
    # The rounding error of the sum, to first order.
    lost = (size - (y - (_LANCZOS_G - 0.5))) * _LANCZOS_G / y
    root = t.pow(y, size / 2.0 - 0.25)
    # The power comes in two halves, which do not overflow before the product does.
    rest = numerator / denominator * t.exp(-y) * (1.0 - lost)
    positive = rest * root * root
    # gamma(x) gamma(-x) = -pi / (x sin(pi x))
    negative = -math.pi / (size * sinpi(t, size)) / rest / root / root
    value = t.where(x > 0, positive, negative)
    value = t.where(x.abs() < 1e-20, 1.0 / x, value)
    below = t.floor(x)
    zero = t.where(t.fmod(below, 2.0) == 0, 0.0, -0.0)
    value = t.where(x < -190.0, zero, value)
    pole = (x < 0) & (below == x)
    return t.where(pole, float("nan"), t.where(t.isfinite(x) | (x < 0), value, x))


def erfcx(t: Any, x: Any) -> Any:
    """Exp(x x) erfc(x)."""
    inside = x.clamp(-30.0, 30.0)
    # 2 exp(x x) - erfcx(-x) left of 0: x x must keep more bits than a double has.
    square, lost = two_product(t, inside, inside)
    left = 2.0 * (t.exp(square) * (1.0 + lost)) - t.special.erfcx(-x)
    return t.where(x < 0, left, t.special.erfcx(x))


def normcdf(t: Any, x: Any) -> Any:
    """Cumulative distribution of the standard normal."""
    # erfc(-x / sqrt(2)) / 2, with the rest of the quotient to first order: far left of 0 the
    # relative error of erfc is x x times that of its argument.
    inside = x.clamp(-39.0, 39.0)
    scaled = -inside * math.sqrt(0.5)
    _, low = two_product(t, -inside, t.full_like(x, math.sqrt(0.5)))
    # The double nearest to sqrt(1/2) is this much above it.
    rest = low + inside * 4.833646656726457e-17
    slope = t.exp(-scaled * scaled) * (2.0 / math.sqrt(math.pi))
    value = (t.special.erfc(scaled) - slope * rest) / 2.0
    return t.where(t.isnan(x), x, value)


# `(torch, unsigned, *tensors) -> tensor`
Meaning = Callable[..., Any]

_ROUNDINGS = ("rn", "rz", "rd", "ru")


# By function; those that only a GPU has are not here.
MEANINGS: dict[str, Meaning] = {}


def _torch(name: str) -> Meaning:
    """A function that torch has under this name."""
    path = name.split(".")

    def meaning(t: Any, unsigned: bool, *tensors: Any) -> Any:
        fn = t
        for part in path:
            fn = getattr(fn, part)
        return fn(*tensors)

    return meaning


def _in_double(fn: Callable[..., Any]) -> Meaning:
    """`fn(torch, *tensors)` computed on doubles and rounded once."""

    def meaning(t: Any, unsigned: bool, *tensors: Any) -> Any:
        return fn(t, *(tensor.double() for tensor in tensors)).to(tensors[-1].dtype)

    return meaning


def _directed(stem: str, fn: Callable[..., Any]) -> None:
    """Define `stem_rn`, `_rz`, `_rd` and `_ru` for floats."""
    for mode in _ROUNDINGS:

        def meaning(t: Any, unsigned: bool, *tensors: Any, mode: str = mode) -> Any:
            return fn(t, mode, *tensors)

        MEANINGS[f"{stem}_{mode}"] = meaning


def _conversions(source: str, target: str) -> None:
    """Define the conversions from one type to another in all rounding modes."""
    unsigned = source.startswith("u") or target.startswith("u")
    for mode in _ROUNDINGS:
        if target == "double" and source in ("int", "uint") and mode != "rn":
            continue  # exact

        def meaning(t: Any, _: bool, x: Any, mode: str = mode) -> Any:
            if target in ("float", "double"):
                kind = t.float32 if target == "float" else t.float64
                if source == "double":
                    return rounding.narrow(t, mode, x)
                return rounding.from_integer(t, mode, kind, unsigned, x)
            kind = t.int64 if target.endswith("ll") else t.int32
            return rounding.to_integer(t, mode, kind, unsigned, x)

        MEANINGS[f"{source}2{target}_{mode}"] = meaning


# Integers

MEANINGS["clz"] = lambda t, u, x: bits.clz(t, x)
MEANINGS["popc"] = lambda t, u, x: bits.popc(t, x)
MEANINGS["brev"] = lambda t, u, x: bits.brev(t, x)
MEANINGS["ffs"] = lambda t, u, x: bits.ffs(t, x)
MEANINGS["byte_perm"] = lambda t, u, x, y, z: bits.byte_perm(t, x, y, z)
MEANINGS["mulhi"] = bits.mulhi
MEANINGS["mul24"] = bits.mul24
MEANINGS["sad"] = bits.sad
MEANINGS["hadd"] = lambda t, u, x, y: bits.average(t, u, 0, x, y)
MEANINGS["rhadd"] = lambda t, u, x, y: bits.average(t, u, 1, x, y)
MEANINGS["abs"] = lambda t, u, x: t.abs(x)

# Bit patterns


def _bits_as(torch_name: str) -> Meaning:
    return lambda t, u, x: x.view(getattr(t, torch_name))


MEANINGS["int_as_float"] = _bits_as("float32")
MEANINGS["uint_as_float"] = _bits_as("float32")
MEANINGS["float_as_int"] = _bits_as("int32")
MEANINGS["float_as_uint"] = _bits_as("int32")
MEANINGS["longlong_as_double"] = _bits_as("float64")
MEANINGS["double_as_longlong"] = _bits_as("int64")
MEANINGS["hiloint2double"] = lambda t, u, x, y: (
    (x.to(t.int64) << 32) | (y.to(t.int64) & 0xFFFFFFFF)
).view(t.float64)
MEANINGS["double2loint"] = lambda t, u, x: x.view(t.int64).to(t.int32)
MEANINGS["double2hiint"] = lambda t, u, x: (x.view(t.int64) >> 32).to(t.int32)

# Rounding

_directed("add", rounding.add)
_directed("sub", rounding.sub)
_directed("mul", rounding.mul)
_directed("div", rounding.div)
_directed("rcp", rounding.rcp)
_directed("sqrt", rounding.sqrt)
_directed("fma", rounding.fma)
MEANINGS["fma"] = lambda t, u, x, y, z: rounding.fma(t, "rn", x, y, z)
MEANINGS["rsqrt_rn"] = _in_double(lambda t, x: t.rsqrt(x))
_conversions("double", "float")
for _source, _letter in (("double", "d"), ("float", "f")):
    for _target, _result in (("int", "i"), ("uint", "i"), ("ll", "l"), ("ull", "l")):
        _conversions(_source, _target)
for _source, _letter in (("int", "i"), ("uint", "u"), ("ll", "l"), ("ull", "m")):
    _conversions(_source, "float")
    _conversions(_source, "double")


def _round_away(t: Any, unsigned: bool, x: Any) -> Any:
    whole = t.trunc(x)
    step = t.where((x - whole).abs() >= 0.5, 1.0, 0.0).to(x.dtype)
    return t.copysign(whole.abs() + step, x)


MEANINGS["floor"] = _torch("floor")
MEANINGS["ceil"] = _torch("ceil")
MEANINGS["trunc"] = _torch("trunc")
MEANINGS["rint"] = _torch("round")
MEANINGS["nearbyint"] = _torch("round")
MEANINGS["round"] = _round_away
MEANINGS["llrint"] = lambda t, u, x: rounding.to_integer(t, "rn", t.int64, False, x)
MEANINGS["llround"] = lambda t, u, x: rounding.to_integer(
    t, "rz", t.int64, False, _round_away(t, u, x)
)

# Parts of floats


def _exponent(t: Any, x: Any) -> Any:
    return t.frexp(x).exponent - 1


def _ilogb(t: Any, unsigned: bool, x: Any) -> Any:
    low, high = -(2**31), 2**31 - 1
    exponent = t.where((x == 0) | x.isnan(), low, _exponent(t, x))
    return t.where(x.isinf(), high, exponent).to(t.int32)


def _logb(t: Any, unsigned: bool, x: Any) -> Any:
    exponent = t.where(x == 0, float("-inf"), _exponent(t, x).to(x.dtype))
    return t.where(t.isfinite(x), exponent, x.abs())


def _scale(t: Any, unsigned: bool, x: Any, n: Any) -> Any:
    # Significand and exponent apart: 0 times a huge power is 0, and a tiny result rounds once.
    parts = t.frexp(x.double())
    value = rounding.times_power(t, parts.mantissa, parts.exponent + n.to(t.int64))
    return t.where(t.isfinite(x) & (x != 0), value.to(x.dtype), x)


def _remainder(t: Any, unsigned: bool, x: Any, y: Any) -> Any:
    # x - n y with n the nearest whole number to x / y, ties to even (IEEE 754, 5.3.1).
    divisor = y.abs()
    rest = rounding.fmod(t, x.abs(), divisor * 2)
    above = rest * 2 > divisor
    once = t.where(above, rest - divisor, rest)
    rest = t.where(above & (once * 2 >= divisor), once - divisor, once)
    return t.where(t.isnan(y), y, t.where(t.signbit(x), -rest, rest))


MEANINGS["isnan"] = lambda t, u, x: t.isnan(x)
MEANINGS["isinf"] = lambda t, u, x: t.isinf(x)
MEANINGS["finitef"] = lambda t, u, x: t.isfinite(x)
MEANINGS["isfinited"] = lambda t, u, x: t.isfinite(x)
MEANINGS["signbit"] = lambda t, u, x: t.signbit(x)
MEANINGS["copysign"] = _torch("copysign")
MEANINGS["nextafter"] = _torch("nextafter")
MEANINGS["ilogb"] = _ilogb
MEANINGS["logb"] = _logb
for _name in ("ldexp", "scalbn"):
    MEANINGS[_name] = _scale
MEANINGS["fmod"] = lambda t, u, x, y: rounding.fmod(t, x, y)
MEANINGS["remainder"] = _remainder
MEANINGS["fdim"] = lambda t, u, x, y: t.where(x <= y, 0.0, x - y)
MEANINGS["saturatef"] = lambda t, u, x: t.nan_to_num(x, nan=0.0).clamp(0.0, 1.0)


def _rcp64h(t: Any, unsigned: bool, x: Any) -> Any:
    # The low word of x counts for nothing, subnormals count as 0 (PTX ISA, rcp.approx.ftz.f64).
    def flushed(value: Any) -> Any:
        return t.where(value.abs() < 2.0**-1022, t.copysign(t.zeros_like(value), value), value)

    def high_word(value: Any) -> Any:
        return t.where(t.isnan(value), value, (value.view(t.int64) & -(1 << 32)).view(t.float64))

    return high_word(flushed(1.0 / high_word(flushed(x))))


MEANINGS["rcp64h"] = _rcp64h

# Roots, powers, logarithms

MEANINGS["sqrt"] = lambda t, u, x: rounding.sqrt(t, "rn", x)
MEANINGS["rsqrt"] = _torch("rsqrt")
MEANINGS["exp"] = _torch("exp")
MEANINGS["exp2"] = _torch("exp2")
MEANINGS["expm1"] = _torch("expm1")
MEANINGS["log"] = _torch("log")
MEANINGS["log2"] = _torch("log2")
MEANINGS["log10"] = _torch("log10")
MEANINGS["log1p"] = _torch("log1p")
MEANINGS["exp10"] = _in_double(lambda t, x: t.pow(10.0, x))


def _pow(t: Any, unsigned: bool, x: Any, y: Any) -> Any:
    if y.dtype != t.int32:
        return t.pow(x.double(), y.double()).to(x.dtype)
    # By squares, as libdevice does, and one quotient where y < 0. Large results overflow before it.
    rest = y.to(t.int64).abs()
    power, result = x, t.ones_like(x)
    while bool((rest > 0).any()):
        result = t.where(rest & 1 == 1, result * power, result)
        power, rest = power * power, rest >> 1
    return t.where(y < 0, 1.0 / result, result)


MEANINGS["pow"] = _pow
MEANINGS["cbrt"] = _in_double(cbrt)
MEANINGS["rcbrt"] = _in_double(lambda t, x: 1.0 / cbrt(t, x))
MEANINGS["hypot"] = _torch("hypot")
MEANINGS["rhypot"] = _in_double(lambda t, x, y: 1.0 / t.hypot(x, y))
for _count in (3, 4):
    _name = f"norm{_count}d"
    MEANINGS[_name] = _in_double(norm)
    MEANINGS[f"r{_name}"] = _in_double(lambda t, *values: 1.0 / norm(t, *values))

# Trigonometry

for _name in "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh".split():
    MEANINGS[_name] = _torch(_name)
MEANINGS["atan2"] = _torch("atan2")
MEANINGS["sinpi"] = _in_double(sinpi)
MEANINGS["cospi"] = _in_double(cospi)

# Special functions

MEANINGS["erf"] = _torch("erf")
MEANINGS["erfc"] = _torch("erfc")
MEANINGS["erfinv"] = _torch("erfinv")
MEANINGS["erfcx"] = _in_double(erfcx)
MEANINGS["erfcinv"] = _in_double(lambda t, x: -t.special.ndtri(x / 2.0) / math.sqrt(2.0))
MEANINGS["normcdf"] = _in_double(normcdf)
MEANINGS["normcdfinv"] = _torch("special.ndtri")
MEANINGS["lgamma"] = _torch("lgamma")
MEANINGS["tgamma"] = _in_double(gamma)
MEANINGS["j0"] = _torch("special.bessel_j0")
MEANINGS["j1"] = _torch("special.bessel_j1")
MEANINGS["y0"] = _torch("special.bessel_y0")
MEANINGS["y1"] = _torch("special.bessel_y1")
MEANINGS["cyl_bessel_i0"] = _torch("special.i0")
MEANINGS["cyl_bessel_i1"] = _torch("special.i1")

# Fast approximations

MEANINGS["fast_sinf"] = lambda t, u, x: t.sin(x)
MEANINGS["fast_cosf"] = lambda t, u, x: t.cos(x)
MEANINGS["fast_tanf"] = lambda t, u, x: t.tan(x)
MEANINGS["fast_tanhf"] = lambda t, u, x: t.tanh(x)
MEANINGS["fast_expf"] = lambda t, u, x: t.exp(x)
MEANINGS["fast_exp10f"] = _in_double(lambda t, x: t.pow(10.0, x))
MEANINGS["fast_logf"] = lambda t, u, x: t.log(x)
MEANINGS["fast_log2f"] = lambda t, u, x: t.log2(x)
MEANINGS["fast_log10f"] = lambda t, u, x: t.log10(x)
MEANINGS["fast_powf"] = lambda t, u, x, y: t.pow(x, y)
MEANINGS["fast_dividef"] = lambda t, u, x, y: x / y
