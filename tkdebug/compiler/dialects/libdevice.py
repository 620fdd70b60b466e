"""The functions of NVIDIA's libdevice, which `tt.extern_elementwise` calls: overloads and symbols.

An overload is written `symbol(arguments)result` with one letter a type: i int32, u uint32, l int64,
m uint64, f fp32, d fp64. What each function computes is the interpreter's
(`interpreter/numerics/libdevice.py`). Source: libdevice User's Guide, NVIDIA.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tkdebug.compiler import dtypes as dt

_TYPES = {
    "i": dt.int32,
    "u": dt.uint32,
    "l": dt.int64,
    "m": dt.uint64,
    "f": dt.float32,
    "d": dt.float64,
}


@dataclass(frozen=True, slots=True)
class Overload:
    """One argument list of a function.

    Attributes:
        symbol: its name in libdevice.
        is_unsigned: whether its integers, also those of signed type, are read unsigned.
    """

    symbol: str
    arguments: tuple[dt.dtype, ...]
    result: dt.dtype
    is_unsigned: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """One function of `tl.extra.libdevice`.

    Attributes:
        is_predicate: whether it gives int1.
        is_real: whether it is a function of real numbers, so that a float format only rounds its
            result.
        native_only: whether the interpreter cannot compute it: it compiles, but an interpreted
            kernel that reaches it fails with an error that names it.
    """

    name: str
    doc: str
    overloads: tuple[Overload, ...]
    is_predicate: bool = False
    is_real: bool = False
    native_only: bool = False


def _overloads(text: str) -> tuple[Overload, ...]:
    """The overloads that `text` writes, with blanks between them."""
    found = []
    for overload in text.split():
        match = re.fullmatch(r"(\w+)\((\w+)\)(\w)", overload)
        assert match is not None, overload
        symbol, arguments, result = match.groups()
        found.append(
            Overload(
                f"__nv_{symbol}",
                tuple(_TYPES[letter] for letter in arguments),
                _TYPES[result],
                re.search("uint|ull", symbol) is not None,
            )
        )
    return tuple(found)


_ROUNDINGS = {
    "rn": "to nearest even",
    "rz": "toward zero",
    "rd": "toward minus infinity",
    "ru": "toward plus infinity",
}


FUNCTIONS: dict[str, Function] = {}


def _define(name: str, overloads: str, doc: str, **facts: bool) -> None:
    FUNCTIONS[name] = Function(name, doc, _overloads(overloads), **facts)


def _floats(name: str, count: int, doc: str) -> None:
    """A function of `count` real numbers in single and double precision."""
    _define(name, f"{name}f({'f' * count})f {name}({'d' * count})d", doc, is_real=True)


def _directed(stem: str, count: int, doc: str) -> None:
    """`stem_rn`, `_rz`, `_rd` and `_ru` of floats."""
    for mode, words in _ROUNDINGS.items():
        if stem == "fma":
            overloads = f"fmaf_{mode}(fff)f fma_{mode}(ddd)d"
        else:
            f, d = "f" * count, "d" * count
            overloads = f"f{stem}_{mode}({f})f d{stem}_{mode}({d})d"
        _define(f"{stem}_{mode}", overloads, f"{doc}, rounded {words}.", is_real=True)


def _conversions(source: str, letter: str, target: str, result: str) -> None:
    """The conversions from one type to another in all rounding modes."""
    for mode, words in _ROUNDINGS.items():
        if target == "double" and source in ("int", "uint") and mode != "rn":
            continue  # exact
        name = f"{source}2{target}_{mode}"
        _define(name, f"{name}({letter}){result}", f"{source} to {target}, {words}.")


def _fast(name: str, count: int, doc: str, symbol: str | None = None) -> None:
    """A function of `count` fp32s that the GPU approximates."""
    overload = f"{symbol or name}({'f' * count})f"
    _define(name, overload, f"{doc} Approximate on the GPU.", is_real=True)


# Integers

_define("clz", "clz(i)i clzll(l)i", "Zero bits above the highest one.")
_define("popc", "popc(i)i popcll(l)i", "Number of one bits.")
_define("brev", "brev(i)i brevll(l)l", "Bits in reverse order.")
_define("ffs", "ffs(i)i ffsll(l)i", "Position of the lowest one bit counted from 1, 0 for 0.")
_define("byte_perm", "byte_perm(iii)i", "Four of the eight bytes of y:x by the nibbles of z.")
_define("mulhi", "mulhi(ii)i umulhi(uu)u mul64hi(ll)l umul64hi(mm)m", "High half of the product.")
_define("mul24", "mul24(ii)i umul24(uu)u", "Product of the low 24 bits.")
_define("sad", "sad(iiu)i usad(uuu)u", "|x - y| + z.")
_define("hadd", "hadd(ii)i uhadd(uu)u", "(x + y) / 2 rounded down.")
_define("rhadd", "rhadd(ii)i urhadd(uu)u", "(x + y + 1) / 2 rounded down.")
_define("abs", "abs(i)i llabs(l)l fabsf(f)f fabs(d)d", "Absolute value.")

# Bit patterns

_define("int_as_float", "int_as_float(i)f", "The bits of an int32 as fp32.")
_define("uint_as_float", "uint_as_float(u)f", "The bits of a uint32 as fp32.")
_define("float_as_int", "float_as_int(f)i", "The bits of an fp32 as int32.")
_define("float_as_uint", "float_as_uint(f)i", "The bits of an fp32 as int32.")
_define("longlong_as_double", "longlong_as_double(l)d", "The bits of an int64 as fp64.")
_define("double_as_longlong", "double_as_longlong(d)l", "The bits of an fp64 as int64.")
_define("hiloint2double", "hiloint2double(ii)d", "The double with high word x and low word y.")
_define("double2loint", "double2loint(d)i", "Low word of a double.")
_define("double2hiint", "double2hiint(d)i", "High word of a double.")

# Rounding

_directed("add", 2, "x + y")
_directed("sub", 2, "x - y")
_directed("mul", 2, "x * y")
_directed("div", 2, "x / y")
_directed("rcp", 1, "1 / x")
_directed("sqrt", 1, "Square root of x")
_directed("fma", 3, "x * y + z")
_floats("fma", 3, "x * y + z, rounded once.")
_define("rsqrt_rn", "frsqrt_rn(f)f", "1 / sqrt(x), to nearest even.")
_conversions("double", "d", "float", "f")
for _source, _letter in (("double", "d"), ("float", "f")):
    for _target, _result in (("int", "i"), ("uint", "i"), ("ll", "l"), ("ull", "l")):
        _conversions(_source, _letter, _target, _result)
for _source, _letter in (("int", "i"), ("uint", "u"), ("ll", "l"), ("ull", "m")):
    _conversions(_source, _letter, "float", "f")
    _conversions(_source, _letter, "double", "d")

_floats("floor", 1, "Largest whole number not above.")
_floats("ceil", 1, "Smallest whole number not below.")
_floats("trunc", 1, "Whole number toward zero.")
_floats("rint", 1, "Nearest whole number, ties to even.")
_floats("nearbyint", 1, "Nearest whole number, ties to even.")
_floats("round", 1, "Nearest whole number, ties away from zero.")
_define("llrint", "llrintf(f)l llrint(d)l", "Nearest int64, ties to even.")
_define("llround", "llroundf(f)l llround(d)l", "Nearest int64, ties away from zero.")

# Parts of floats

_define("isnan", "isnanf(f)i isnand(d)i", "Whether x is NaN, int1.", is_predicate=True)
_define("isinf", "isinff(f)i isinfd(d)i", "Whether x is infinite, int1.", is_predicate=True)
_define("finitef", "finitef(f)i", "Whether x is finite, int1.", is_predicate=True)
_define("isfinited", "isfinited(d)i", "Whether x is finite, int1.", is_predicate=True)
_define("signbit", "signbitf(f)i signbitd(d)i", "1 when the sign bit is set, else 0.")
_floats("copysign", 2, "x with the sign of y.")
_define("nextafter", "nextafterf(ff)f nextafter(dd)d", "The float next to x toward y.")
_define("ilogb", "ilogbf(f)i ilogb(d)i", "Exponent of x as an integer.")
_floats("logb", 1, "Exponent of x as a float.")
for _name in ("ldexp", "scalbn"):
    _define(_name, f"{_name}f(fi)f {_name}(di)d", "x times 2 to the y.")
_floats("fmod", 2, "Remainder of x / y with the sign of x.")
_floats("remainder", 2, "x - n y with n the whole number nearest to x / y.")
_floats("fdim", 2, "x - y where positive, else 0.")
_define("saturatef", "saturatef(f)f", "x limited to [0, 1], NaN to 0.")

_define("rcp64h", "rcp64h(d)d", "1 / x to the accuracy of its high word; the low word is 0.")

# Roots, powers, logarithms

_floats("sqrt", 1, "Square root.")
_floats("rsqrt", 1, "1 / sqrt(x).")
_floats("exp", 1, "e to the x.")
_floats("exp2", 1, "2 to the x.")
_floats("expm1", 1, "e to the x less 1.")
_floats("log", 1, "Natural logarithm.")
_floats("log2", 1, "Base-2 logarithm.")
_floats("log10", 1, "Base-10 logarithm.")
_floats("log1p", 1, "Natural logarithm of 1 + x.")
_floats("exp10", 1, "10 to the x.")

_define("pow", "powif(fi)f powi(di)d powf(ff)f pow(dd)d", "x to the y.", is_real=True)
_floats("cbrt", 1, "Cube root.")
_floats("rcbrt", 1, "1 / cube root.")
_floats("hypot", 2, "sqrt(x x + y y).")
_floats("rhypot", 2, "1 / sqrt(x x + y y).")
for _count in (3, 4):
    _name = f"norm{_count}d"
    _define(
        _name,
        f"{_name}f({'f' * _count})f {_name}({'d' * _count})d",
        f"Length of a vector of {_count} components.",
    )
    _define(
        f"r{_name}",
        f"r{_name}f({'f' * _count})f r{_name}({'d' * _count})d",
        f"1 / length of a vector of {_count} components.",
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
    _floats(_name, 1, _doc)
_floats("atan2", 2, "Angle of the point (y, x): atan2(x, y) has y first.")
_floats("sinpi", 1, "Sine of pi x.")
_floats("cospi", 1, "Cosine of pi x.")

# Special functions

_floats("erf", 1, "Error function.")
_floats("erfc", 1, "1 less the error function.")
_floats("erfinv", 1, "Inverse of the error function.")
_floats("erfcx", 1, "exp(x x) erfc(x).")
_floats("erfcinv", 1, "Inverse of erfc.")
_floats("normcdf", 1, "Cumulative distribution of the standard normal.")
_floats("normcdfinv", 1, "Inverse of normcdf.")
_floats("lgamma", 1, "Logarithm of the absolute value of the gamma function.")
_floats("tgamma", 1, "Gamma function.")
_floats("j0", 1, "Bessel function of the first kind, order 0.")
_floats("j1", 1, "Bessel function of the first kind, order 1.")
_floats("y0", 1, "Bessel function of the second kind, order 0.")
_floats("y1", 1, "Bessel function of the second kind, order 1.")
_define("jn", "jnf(if)f jn(id)d", "Bessel function of the first kind, order x.", native_only=True)
_define("yn", "ynf(if)f yn(id)d", "Bessel function of the second kind, order x.", native_only=True)
_floats("cyl_bessel_i0", 1, "Modified Bessel function, order 0.")
_floats("cyl_bessel_i1", 1, "Modified Bessel function, order 1.")

# Fast approximations

_fast("fast_sinf", 1, "Sine.")
_fast("fast_cosf", 1, "Cosine.")
_fast("fast_tanf", 1, "Tangent.")
_fast("fast_tanhf", 1, "Hyperbolic tangent.", symbol="tanhf")
_fast("fast_expf", 1, "e to the x.")
_fast("fast_exp10f", 1, "10 to the x.")
_fast("fast_logf", 1, "Natural logarithm.")
_fast("fast_log2f", 1, "Base-2 logarithm.")
_fast("fast_log10f", 1, "Base-10 logarithm.")
_fast("fast_powf", 2, "x to the y.")
_fast("fast_dividef", 2, "x / y.", symbol="fast_fdividef")
