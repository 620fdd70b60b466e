"""IEEE 754 operations in all four rounding modes, elementwise on torch tensors.

A result is first made as an exact pair `high + low` of doubles by error-free transformations
(Dekker 1971; Knuth, TAOCP 4.2.2; Boldo and Melquiond, Emulation of FMA, 2008), then rounded once.
Modes are `rn` (nearest even), `rz` (toward zero), `rd` (down), `ru` (up). Every function takes the
torch module first, since the op table does not import it. Invariant: one rounding per result.
"""

from __future__ import annotations

from typing import Any

Pair = tuple[Any, Any]
_SPLITTER = 134217729.0  # 2**27 + 1 halves the 53 bits of a double
_LOW_WORD = 0xFFFFFFFF


def two_sum(a: Any, b: Any) -> Pair:
    """`a + b` rounded, and what rounding lost."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(t: Any, a: Any, b: Any) -> Pair:
    """`a * b` of doubles rounded, and what rounding lost."""
    product = a * b

    def split(x: Any) -> Pair:
        scaled = x * _SPLITTER
        high = scaled - (scaled - x)
        return high, x - high

    (ah, al), (bh, bl) = split(a), split(b)
    low = ((ah * bh - product) + ah * bl + al * bh) + al * bl
    return product, _finite(t, low)


def _finite(t: Any, low: Any) -> Any:
    """A lost part that overflowed or came from an infinity counts as nothing."""
    return t.where(t.isfinite(low), low, 0.0)


def _round_to_odd(t: Any, high: Any, low: Any) -> Any:
    """The pair as one double whose last bit says whether anything was lost."""
    total, lost = two_sum(high, low)
    lost = _finite(t, lost)
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


def rounded(t: Any, pair: Pair, dtype: Any, mode: str) -> Any:
    """An exact pair of doubles as one number of `dtype`."""
    high, low = pair
    if dtype == t.float64:
        nearest, lost = two_sum(high, low)
        return _directed(t, nearest, _finite(t, lost), mode)
    odd = _round_to_odd(t, high, low)
    nearest = odd.to(dtype)
    return _directed(t, nearest, odd - nearest.double(), mode)


def add(t: Any, mode: str, a: Any, b: Any) -> Any:
    """A + b."""
    total = rounded(t, two_sum(a.double(), b.double()), a.dtype, mode)
    if mode != "rd":
        return total
    # Opposite numbers cancel to -0 when rounding down (IEEE 754, 6.3).
    positive = ~t.signbit(a) & ~t.signbit(b)
    return t.where((total == 0) & ~positive, -0.0, total)


def sub(t: Any, mode: str, a: Any, b: Any) -> Any:
    """A - b."""
    return add(t, mode, a, -b)


def mul(t: Any, mode: str, a: Any, b: Any) -> Any:
    """A * b."""
    if a.dtype == t.float64:
        return rounded(t, two_product(t, a, b), a.dtype, mode)
    product = a.double() * b.double()
    return rounded(t, (product, t.zeros_like(product)), a.dtype, mode)


def div(t: Any, mode: str, a: Any, b: Any) -> Any:
    """A / b."""
    x, y = a.double(), b.double()
    quotient = x / y
    high, low = two_product(t, quotient, y)
    rest = _finite(t, ((x - high) - low) / y)
    return rounded(t, (quotient, rest), a.dtype, mode)


def rcp(t: Any, mode: str, a: Any) -> Any:
    """1 / a."""
    return div(t, mode, t.ones_like(a), a)


def sqrt(t: Any, mode: str, a: Any) -> Any:
    """The square root of a."""
    x = a.double()
    root = t.sqrt(x)
    high, low = two_product(t, root, root)
    rest = _finite(t, ((x - high) - low) / (2.0 * root))
    return rounded(t, (root, rest), a.dtype, mode)


def fma(t: Any, mode: str, a: Any, b: Any, c: Any) -> Any:
    """A * b + c, rounded once."""
    if a.dtype != t.float64:
        product = a.double() * b.double()
        return rounded(t, two_sum(product, c.double()), a.dtype, mode)
    product_high, product_low = two_product(t, a, b)
    sum_high, sum_low = two_sum(c, product_low)
    high, middle = two_sum(product_high, sum_high)
    rest = _round_to_odd(t, sum_low, _finite(t, middle))
    return rounded(t, (high, rest), a.dtype, mode)


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
    """A float as an integer of torch `dtype`: saturating, NaN to 0 (PTX ISA, cvt)."""
    value = whole(t, mode, a.double())
    value = t.where(t.isnan(value), 0.0, value)
    if dtype == t.int32:
        low, high = (0.0, 2.0**32 - 1) if unsigned else (-(2.0**31), 2.0**31 - 1)
        return value.clamp(low, high).to(t.int64).to(t.int32)
    largest = 2.0**63 - 1024  # the largest double below 2**63
    if not unsigned:
        inside = value.clamp(-(2.0**63), largest).to(t.int64)
        return t.where(value >= 2.0**63, 2**63 - 1, inside)
    value = value.clamp(min=0.0)
    below = value.clamp(max=largest).to(t.int64)
    above = (value - 2.0**63).clamp(0.0, largest).to(t.int64) ^ -(2**63)
    return t.where(value >= 2.0**64, -1, t.where(value >= 2.0**63, above, below))
