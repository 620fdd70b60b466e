"""Special functions on doubles, where torch has none or one that loses digits.

Every function takes the torch module first, then tensors of doubles. Invariant: within a few
units of the last place, but near zeros of the function.
"""

from __future__ import annotations

import math
from typing import Any

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
    # What the sum lost, first order in it.
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
