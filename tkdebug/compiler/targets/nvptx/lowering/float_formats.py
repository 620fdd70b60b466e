"""The fp8 formats as data, and numbers rounded to them.

Sources: OCP 8-bit Floating Point Specification (E4M3FN, E5M2); LLVM's APFloat semantics
Float8E4M3FNUZ and Float8E5M2FNUZ (one NaN, no negative zero). E4M3B11FNUZ is upstream's fp8e4b15:
bias 15, neither NaN nor infinity, the sign kept, 1.75 the largest that conversions give.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Float8:
    """An 8-bit float: sign, exponent, mantissa.

    Attributes:
        mantissa: bits of the mantissa.
        bias: of the exponent.
        largest: bits of the largest finite number.
        nan: bits of the NaN that conversions give; None where there is none.
        has_negative_zero: false where 0x80 is the only NaN.
    """

    mantissa: int
    bias: int
    largest: int
    nan: int | None
    has_negative_zero: bool = True

    @property
    def step_exponent(self) -> int:
        """Exponent of the smallest positive number."""
        return 1 - self.bias - self.mantissa

    def encode(self, value: float) -> int:
        """Bits of the nearest number (ties to even), saturating to finite."""
        sign = 0x80 if math.copysign(1.0, value) < 0 else 0
        if math.isnan(value):
            return sign | self.largest if self.nan is None else self.nan
        if math.isinf(value):
            return sign | self.largest
        if value == 0:
            return sign if self.has_negative_zero else 0
        fraction, exponent = math.frexp(abs(value))
        step = max(exponent - self.mantissa - 1, self.step_exponent)
        steps = round(math.ldexp(fraction, exponent - step))
        bits = min(self.largest, steps + (step - self.step_exponent << self.mantissa))
        return 0 if not bits and not self.has_negative_zero else sign | bits


FORMATS: dict[str, Float8] = {
    "f8E4M3FN": Float8(3, 7, 0x7E, 0x7F),
    "f8E5M2": Float8(2, 15, 0x7B, 0x7F),
    "f8E4M3FNUZ": Float8(3, 8, 0x7F, 0x80, has_negative_zero=False),
    "f8E5M2FNUZ": Float8(2, 16, 0x7F, 0x80, has_negative_zero=False),
    "f8E4M3B11FNUZ": Float8(3, 15, 0x7E, None),
}
