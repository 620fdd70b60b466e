"""The functions of NVIDIA's libdevice: overloads, symbols and what each computes.

Source: libdevice User's Guide, NVIDIA. How overloads are written, and what a meaning is, is in
`libdevice_overloads`. `fast_*` functions are computed exactly here; the GPU approximates them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tkdebug.compiler.ops import bits, rounding
from tkdebug.compiler.ops import special_functions as special
from tkdebug.compiler.ops.libdevice_overloads import Function, Meaning, overloads_of

_ROUNDINGS = {
    "rn": "to nearest even",
    "rz": "toward zero",
    "rd": "toward minus infinity",
    "ru": "toward plus infinity",
}


FUNCTIONS: dict[str, Function] = {}


def _define(
    name: str, overloads: str, doc: str, meaning: Meaning | None, predicate: bool = False
) -> None:
    FUNCTIONS[name] = Function(name, doc, overloads_of(overloads), meaning, predicate)


def _floats(name: str, count: int, doc: str, meaning: Meaning | None) -> None:
    """A function of `count` floats in single and double precision."""
    _define(name, f"{name}f({'f' * count})f {name}({'d' * count})d", doc, meaning)


def _torch(name: str, doc: str, torch_name: str | None = None, count: int = 1) -> None:
    """A function that torch has, maybe under another name."""
    path = (torch_name or name).split(".")

    def meaning(t: Any, unsigned: bool, *tensors: Any) -> Any:
        fn = t
        for part in path:
            fn = getattr(fn, part)
        return fn(*tensors)

    _floats(name, count, doc, meaning)


def _in_double(fn: Callable[..., Any]) -> Meaning:
    """`fn(torch, *tensors)` computed on doubles and rounded once."""

    def meaning(t: Any, unsigned: bool, *tensors: Any) -> Any:
        return fn(t, *(tensor.double() for tensor in tensors)).to(tensors[-1].dtype)

    return meaning


def _directed(stem: str, count: int, doc: str, fn: Callable[..., Any]) -> None:
    """`stem_rn`, `_rz`, `_rd` and `_ru` of floats."""
    for mode, words in _ROUNDINGS.items():
        if stem == "fma":
            overloads = f"fmaf_{mode}(fff)f fma_{mode}(ddd)d"
        else:
            f, d = "f" * count, "d" * count
            overloads = f"f{stem}_{mode}({f})f d{stem}_{mode}({d})d"

        def meaning(t: Any, unsigned: bool, *tensors: Any, mode: str = mode) -> Any:
            return fn(t, mode, *tensors)

        _define(f"{stem}_{mode}", overloads, f"{doc}, rounded {words}.", meaning)


def _conversions(source: str, letter: str, target: str, result: str) -> None:
    """The conversions from one type to another in all rounding modes."""
    unsigned = source.startswith("u") or target.startswith("u")
    for mode, words in _ROUNDINGS.items():
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

        name = f"{source}2{target}_{mode}"
        _define(name, f"{name}({letter}){result}", f"{source} to {target}, {words}.", meaning)


# Integers

_define(
    "clz", "clz(i)i clzll(l)i", "Zero bits above the highest one.", lambda t, u, x: bits.clz(t, x)
)
_define("popc", "popc(i)i popcll(l)i", "Number of one bits.", lambda t, u, x: bits.popc(t, x))
_define("brev", "brev(i)i brevll(l)l", "Bits in reverse order.", lambda t, u, x: bits.brev(t, x))
_define(
    "ffs",
    "ffs(i)i ffsll(l)i",
    "Position of the lowest one bit counted from 1, 0 for 0.",
    lambda t, u, x: bits.ffs(t, x),
)
_define(
    "byte_perm",
    "byte_perm(iii)i",
    "Four of the eight bytes of y:x by the nibbles of z.",
    lambda t, u, x, y, z: bits.byte_perm(t, x, y, z),
)
_define(
    "mulhi",
    "mulhi(ii)i umulhi(uu)u mul64hi(ll)l umul64hi(mm)m",
    "High half of the product.",
    bits.mulhi,
)
_define("mul24", "mul24(ii)i umul24(uu)u", "Product of the low 24 bits.", bits.mul24)
_define("sad", "sad(iiu)i usad(uuu)u", "|x - y| + z.", bits.sad)
_define(
    "hadd",
    "hadd(ii)i uhadd(uu)u",
    "(x + y) / 2 rounded down.",
    lambda t, u, x, y: bits.average(t, u, 0, x, y),
)
_define(
    "rhadd",
    "rhadd(ii)i urhadd(uu)u",
    "(x + y + 1) / 2 rounded down.",
    lambda t, u, x, y: bits.average(t, u, 1, x, y),
)
_define(
    "abs",
    "abs(i)i llabs(l)l fabsf(f)f fabs(d)d",
    "Absolute value.",
    lambda t, u, x: t.abs(x),
)

# Bit patterns


def _bits_as(torch_name: str) -> Meaning:
    return lambda t, u, x: x.view(getattr(t, torch_name))


_define("int_as_float", "int_as_float(i)f", "The bits of an int32 as fp32.", _bits_as("float32"))
_define("uint_as_float", "uint_as_float(u)f", "The bits of a uint32 as fp32.", _bits_as("float32"))
_define("float_as_int", "float_as_int(f)i", "The bits of an fp32 as int32.", _bits_as("int32"))
_define("float_as_uint", "float_as_uint(f)i", "The bits of an fp32 as int32.", _bits_as("int32"))
_define(
    "longlong_as_double",
    "longlong_as_double(l)d",
    "The bits of an int64 as fp64.",
    _bits_as("float64"),
)
_define(
    "double_as_longlong",
    "double_as_longlong(d)l",
    "The bits of an fp64 as int64.",
    _bits_as("int64"),
)
_define(
    "hiloint2double",
    "hiloint2double(ii)d",
    "The double with high word x and low word y.",
    lambda t, u, x, y: ((x.to(t.int64) << 32) | (y.to(t.int64) & 0xFFFFFFFF)).view(t.float64),
)
_define(
    "double2loint",
    "double2loint(d)i",
    "Low word of a double.",
    lambda t, u, x: x.view(t.int64).to(t.int32),
)
_define(
    "double2hiint",
    "double2hiint(d)i",
    "High word of a double.",
    lambda t, u, x: (x.view(t.int64) >> 32).to(t.int32),
)

# Rounding

_directed("add", 2, "x + y", rounding.add)
_directed("sub", 2, "x - y", rounding.sub)
_directed("mul", 2, "x * y", rounding.mul)
_directed("div", 2, "x / y", rounding.div)
_directed("rcp", 1, "1 / x", rounding.rcp)
_directed("sqrt", 1, "Square root of x", rounding.sqrt)
_directed("fma", 3, "x * y + z", rounding.fma)
_floats("fma", 3, "x * y + z, rounded once.", lambda t, u, x, y, z: rounding.fma(t, "rn", x, y, z))
_define(
    "rsqrt_rn",
    "frsqrt_rn(f)f",
    "1 / sqrt(x), to nearest even.",
    _in_double(lambda t, x: t.rsqrt(x)),
)
_conversions("double", "d", "float", "f")
for _source, _letter in (("double", "d"), ("float", "f")):
    for _target, _result in (("int", "i"), ("uint", "i"), ("ll", "l"), ("ull", "l")):
        _conversions(_source, _letter, _target, _result)
for _source, _letter in (("int", "i"), ("uint", "u"), ("ll", "l"), ("ull", "m")):
    _conversions(_source, _letter, "float", "f")
    _conversions(_source, _letter, "double", "d")


def _round_away(t: Any, unsigned: bool, x: Any) -> Any:
    whole = t.trunc(x)
    step = t.where((x - whole).abs() >= 0.5, 1.0, 0.0).to(x.dtype)
    return t.copysign(whole.abs() + step, x)


_torch("floor", "Largest whole number not above.")
_torch("ceil", "Smallest whole number not below.")
_torch("trunc", "Whole number toward zero.")
_torch("rint", "Nearest whole number, ties to even.", "round")
_torch("nearbyint", "Nearest whole number, ties to even.", "round")
_floats("round", 1, "Nearest whole number, ties away from zero.", _round_away)
_define(
    "llrint",
    "llrintf(f)l llrint(d)l",
    "Nearest int64, ties to even.",
    lambda t, u, x: rounding.to_integer(t, "rn", t.int64, False, x),
)
_define(
    "llround",
    "llroundf(f)l llround(d)l",
    "Nearest int64, ties away from zero.",
    lambda t, u, x: rounding.to_integer(t, "rz", t.int64, False, _round_away(t, u, x)),
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


_define(
    "isnan", "isnanf(f)i isnand(d)i", "Whether x is NaN, int1.", lambda t, u, x: t.isnan(x), True
)
_define(
    "isinf",
    "isinff(f)i isinfd(d)i",
    "Whether x is infinite, int1.",
    lambda t, u, x: t.isinf(x),
    True,
)
_define("finitef", "finitef(f)i", "Whether x is finite, int1.", lambda t, u, x: t.isfinite(x), True)
_define(
    "isfinited", "isfinited(d)i", "Whether x is finite, int1.", lambda t, u, x: t.isfinite(x), True
)
_define(
    "signbit",
    "signbitf(f)i signbitd(d)i",
    "1 when the sign bit is set, else 0.",
    lambda t, u, x: t.signbit(x),
)
_torch("copysign", "x with the sign of y.", count=2)
_torch("nextafter", "The float next to x toward y.", count=2)
_define("ilogb", "ilogbf(f)i ilogb(d)i", "Exponent of x as an integer.", _ilogb)
_floats("logb", 1, "Exponent of x as a float.", _logb)
for _name in ("ldexp", "scalbn"):
    _define(_name, f"{_name}f(fi)f {_name}(di)d", "x times 2 to the y.", _scale)
_floats(
    "fmod",
    2,
    "Remainder of x / y with the sign of x.",
    lambda t, u, x, y: rounding.fmod(t, x, y),
)
_floats("remainder", 2, "x - n y with n the whole number nearest to x / y.", _remainder)
_floats(
    "fdim",
    2,
    "x - y where positive, else 0.",
    lambda t, u, x, y: t.where(x <= y, 0.0, x - y),
)
_define(
    "saturatef",
    "saturatef(f)f",
    "x limited to [0, 1], NaN to 0.",
    lambda t, u, x: t.nan_to_num(x, nan=0.0).clamp(0.0, 1.0),
)


def _rcp64h(t: Any, unsigned: bool, x: Any) -> Any:
    # The low word of x counts for nothing, subnormals count as 0 (PTX ISA, rcp.approx.ftz.f64).
    def flushed(value: Any) -> Any:
        return t.where(value.abs() < 2.0**-1022, t.copysign(t.zeros_like(value), value), value)

    def high_word(value: Any) -> Any:
        return t.where(t.isnan(value), value, (value.view(t.int64) & -(1 << 32)).view(t.float64))

    return high_word(flushed(1.0 / high_word(flushed(x))))


_define(
    "rcp64h",
    "rcp64h(d)d",
    "1 / x to the accuracy of its high word; the low word is 0.",
    _rcp64h,
)

# Roots, powers, logarithms


_floats("sqrt", 1, "Square root.", lambda t, u, x: rounding.sqrt(t, "rn", x))
_torch("rsqrt", "1 / sqrt(x).")
_torch("exp", "e to the x.")
_torch("exp2", "2 to the x.")
_torch("expm1", "e to the x less 1.")
_torch("log", "Natural logarithm.")
_torch("log2", "Base-2 logarithm.")
_torch("log10", "Base-10 logarithm.")
_torch("log1p", "Natural logarithm of 1 + x.")
_floats("exp10", 1, "10 to the x.", _in_double(lambda t, x: t.pow(10.0, x)))


def _pow(t: Any, unsigned: bool, x: Any, y: Any) -> Any:
    if y.dtype != t.int32:
        return t.pow(x.double(), y.double()).to(x.dtype)
    # As libdevice: by squares, and one quotient where y < 0. Large results overflow before it.
    rest = y.to(t.int64).abs()
    power, result = x, t.ones_like(x)
    while bool((rest > 0).any()):
        result = t.where(rest & 1 == 1, result * power, result)
        power, rest = power * power, rest >> 1
    return t.where(y < 0, 1.0 / result, result)


_define(
    "pow",
    "powif(fi)f powi(di)d powf(ff)f pow(dd)d",
    "x to the y.",
    _pow,
)
_floats("cbrt", 1, "Cube root.", _in_double(special.cbrt))
_floats("rcbrt", 1, "1 / cube root.", _in_double(lambda t, x: 1.0 / special.cbrt(t, x)))
_torch("hypot", "sqrt(x x + y y).", count=2)
_floats("rhypot", 2, "1 / sqrt(x x + y y).", _in_double(lambda t, x, y: 1.0 / t.hypot(x, y)))
for _count in (3, 4):
    _name = f"norm{_count}d"
    _define(
        _name,
        f"{_name}f({'f' * _count})f {_name}({'d' * _count})d",
        f"Length of a vector of {_count} components.",
        _in_double(special.norm),
    )
    _define(
        f"r{_name}",
        f"r{_name}f({'f' * _count})f r{_name}({'d' * _count})d",
        f"1 / length of a vector of {_count} components.",
        _in_double(lambda t, *values: 1.0 / special.norm(t, *values)),
    )

# Trigonometry


for _name, _doc in (
    ("sin", "Sine of radians."),
    ("cos", "Cosine of radians."),
    ("tan", "Tangent of radians."),
    ("asin", "Arc sine."),
    ("acos", "Arc cosine."),
    ("atan", "Arc tangent."),
    ("sinh", "Hyperbolic sine."),
    ("cosh", "Hyperbolic cosine."),
    ("tanh", "Hyperbolic tangent."),
    ("asinh", "Inverse hyperbolic sine."),
    ("acosh", "Inverse hyperbolic cosine."),
    ("atanh", "Inverse hyperbolic tangent."),
):
    _torch(_name, _doc)
_torch("atan2", "Angle of the point (y, x): atan2(x, y) has y first.", count=2)
_floats("sinpi", 1, "Sine of pi x.", _in_double(special.sinpi))
_floats("cospi", 1, "Cosine of pi x.", _in_double(special.cospi))

# Special functions


_torch("erf", "Error function.")
_torch("erfc", "1 less the error function.")
_torch("erfinv", "Inverse of the error function.")
_floats("erfcx", 1, "exp(x x) erfc(x).", _in_double(special.erfcx))
_floats(
    "erfcinv",
    1,
    "Inverse of erfc.",
    _in_double(lambda t, x: -t.special.ndtri(x / 2.0) / math.sqrt(2.0)),
)
_floats(
    "normcdf", 1, "Cumulative distribution of the standard normal.", _in_double(special.normcdf)
)
_torch("normcdfinv", "Inverse of normcdf.", "special.ndtri")
_torch("lgamma", "Logarithm of the absolute value of the gamma function.")
_floats("tgamma", 1, "Gamma function.", _in_double(special.gamma))
_torch("j0", "Bessel function of the first kind, order 0.", "special.bessel_j0")
_torch("j1", "Bessel function of the first kind, order 1.", "special.bessel_j1")
_torch("y0", "Bessel function of the second kind, order 0.", "special.bessel_y0")
_torch("y1", "Bessel function of the second kind, order 1.", "special.bessel_y1")
_define("jn", "jnf(if)f jn(id)d", "Bessel function of the first kind, order x.", None)
_define("yn", "ynf(if)f yn(id)d", "Bessel function of the second kind, order x.", None)
_torch("cyl_bessel_i0", "Modified Bessel function, order 0.", "special.i0")
_torch("cyl_bessel_i1", "Modified Bessel function, order 1.", "special.i1")

# Fast approximations


def _fast(name: str, doc: str, meaning: Meaning, count: int = 1, symbol: str | None = None) -> None:
    _define(name, f"{symbol or name}({'f' * count})f", f"{doc} Approximate on the GPU.", meaning)


_fast("fast_sinf", "Sine.", lambda t, u, x: t.sin(x))
_fast("fast_cosf", "Cosine.", lambda t, u, x: t.cos(x))
_fast("fast_tanf", "Tangent.", lambda t, u, x: t.tan(x))
_fast("fast_tanhf", "Hyperbolic tangent.", lambda t, u, x: t.tanh(x), symbol="tanhf")
_fast("fast_expf", "e to the x.", lambda t, u, x: t.exp(x))
_fast("fast_exp10f", "10 to the x.", _in_double(lambda t, x: t.pow(10.0, x)))
_fast("fast_logf", "Natural logarithm.", lambda t, u, x: t.log(x))
_fast("fast_log2f", "Base-2 logarithm.", lambda t, u, x: t.log2(x))
_fast("fast_log10f", "Base-10 logarithm.", lambda t, u, x: t.log10(x))
_fast("fast_powf", "x to the y.", lambda t, u, x, y: t.pow(x, y), 2)
_fast("fast_dividef", "x / y.", lambda t, u, x, y: x / y, 2, "fast_fdividef")
