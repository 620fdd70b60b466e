"""Summaries of tiles as ops of the kernel, which watches record and prints show.

Everything is computed in fp64 in a fixed way, so that a summary is the same in whatever order its
elements are reduced: the mean is a sum of integers, the finite elements times a power of two that
depends on the largest of them. `interpreter.watching.records` computes the same, bit by bit.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.ops import conversion, operators, table
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.sites.watches import BINS, FIRST_EXPONENT
from tkdebug.compiler.tensor import tensor

# Constants of fp64.
EXPONENT_BIAS = 1023
FRACTION_BITS = 52
# Sums of scaled elements stay below 2 ** 62.
_SUM_BITS = 61


def scale_of(biased_exponent: Any, elements: int) -> Any:
    """The exponent of the power of two that scales elements before they are cut to integers.

    Args:
        biased_exponent: the biased exponent of the largest finite magnitude.
        elements: the number of elements that are summed up.
    """
    return EXPONENT_BIAS + _SUM_BITS - (elements - 1).bit_length() - biased_exponent


class Code:
    """Methods that emit the ops of functions and operators of the language."""

    def __init__(self, emit: Emitter) -> None:
        self.emit = emit

    def call(self, name: str, *arguments: object, **keywords: object) -> tensor:
        """Emit the ops of `tl.name(…)` and return its result."""
        found: tensor = table.LANGUAGE[name].emit(self.emit, *arguments, **keywords)
        return found

    def binary(self, name: str, left: object, right: object) -> tensor:
        """Emit the arithmetic or logical operator `name`, such as "add" or "and"."""
        return operators.binary(self.emit, name, left, right)

    def compare(self, name: str, left: object, right: object) -> tensor:
        """Emit the comparison `name`, such as "lt"."""
        return operators.compare(self.emit, name, left, right)

    def both(self, left: tensor, right: tensor) -> tensor:
        """Emit the conjunction of two conditions."""
        return self.binary("and", left, right)

    def cast(self, value: tensor, element: dt.dtype) -> tensor:
        """The value converted to numbers of another type."""
        return conversion.cast(self.emit, value, element)

    def bits(self, value: tensor, element: dt.dtype) -> tensor:
        """The value's bits as another type."""
        return conversion.cast(self.emit, value, element, bitcast=True)

    def number(self, value: float) -> tensor:
        """An fp64 constant."""
        return conversion.constant(self.emit, value, dt.float64)

    def power(self, exponent: tensor) -> tensor:
        """The power of two with an int64 exponent, fp64; it must be a normal number of fp64."""
        biased = self.binary("add", exponent, EXPONENT_BIAS)
        return self.bits(self.binary("lshift", biased, FRACTION_BITS), dt.float64)

    def scaled(self, value: tensor, exponent: tensor) -> tensor:
        """`value` times 2 ** `exponent`, in two steps: the power may be outside of fp64."""
        half = self.binary("rshift", exponent, 1)
        first = self.binary("mul", value, self.power(half))
        return self.binary("mul", first, self.power(self.binary("sub", exponent, half)))

    def exponents(self, magnitude: tensor) -> tensor:
        """The biased exponents of fp64 numbers without sign, int64."""
        return self.binary("rshift", self.bits(magnitude, dt.int64), FRACTION_BITS)


class TileSummary(Code):
    """The fields of a tile's summary, each computed when it is first asked for."""

    def __init__(self, emit: Emitter, value: tensor) -> None:
        super().__init__(emit)
        self._value = value

    @cached_property
    def elements(self) -> tensor:
        """The elements of the tile as a tile of one axis, fp64."""
        value = self._value
        element = value.type.scalar
        if isinstance(element, dt.dtype) and element.is_floating():
            # By way of fp32, which has every value of the narrower types.
            value = self.cast(value, dt.float64 if element == dt.float64 else dt.float32)
        value = self.cast(value, dt.float64)
        if not value.shape:
            return conversion.splat(self.emit, value, (1,))
        return self.call("reshape", value, (value.numel,))

    @cached_property
    def _is_nan(self) -> tensor:
        return self.compare("ne", self.elements, self.elements)

    @cached_property
    def _magnitude(self) -> tensor:
        return self.call("abs", self.elements)

    @cached_property
    def _is_inf(self) -> tensor:
        return self.compare("eq", self._magnitude, float("inf"))

    @cached_property
    def _is_finite(self) -> tensor:
        # NaNs are not less than anything.
        return self.compare("lt", self._magnitude, float("inf"))

    @cached_property
    def _finite_magnitude(self) -> tensor:
        return self.call("where", self._is_finite, self._magnitude, 0.0)

    def count(self, flags: tensor) -> tensor:
        """The number of true flags, int64."""
        return self.cast(self.call("sum", self.cast(flags, dt.int32)), dt.int64)

    @cached_property
    def nan(self) -> tensor:
        """The number of NaNs, int64."""
        return self.count(self._is_nan)

    @cached_property
    def inf(self) -> tensor:
        """The number of infinities, int64."""
        return self.count(self._is_inf)

    @cached_property
    def zeros(self) -> tensor:
        """The number of elements that are 0, int64."""
        return self.count(self.compare("eq", self.elements, 0.0))

    @cached_property
    def minimum(self) -> tensor:
        """The minimum of the elements that are not NaN, fp64; +inf if there is none."""
        return self.call("min", self.call("where", self._is_nan, float("inf"), self.elements))

    @cached_property
    def maximum(self) -> tensor:
        """The maximum of the elements that are not NaN, fp64; -inf if there is none."""
        return self.call("max", self.call("where", self._is_nan, float("-inf"), self.elements))

    def or_nan(self, extreme: tensor) -> tensor:
        """The minimum or maximum `extreme`, or NaN if all elements are NaN."""
        is_any = self.compare("lt", self.nan, self._value.numel)
        return self.call("where", is_any, extreme, float("nan"))

    @cached_property
    def scale(self) -> tensor:
        """The exponent of the power of two that scales elements before they are added up, int64."""
        largest = self.exponents(self.call("max", self._finite_magnitude))
        return self.binary("sub", scale_of(0, self._value.numel), largest)

    @cached_property
    def sum(self) -> tensor:
        """The sum of the scaled finite elements, int64."""
        finite = self.call("where", self._is_finite, self.elements, 0.0)
        return self.call("sum", self.cast(self.scaled(finite, self.scale), dt.int64))

    @cached_property
    def mean(self) -> tensor:
        """The mean of the finite elements, fp64; NaN if there is none."""
        total = self.cast(self.sum, dt.float64)
        count = self.binary("sub", self._value.numel, self.binary("add", self.nan, self.inf))
        unscaled = self.scaled(total, self.binary("sub", 0, self.scale))
        return self.binary("truediv", unscaled, self.cast(count, dt.float64))

    @cached_property
    def histogram(self) -> tensor:
        """The number of finite elements other than 0 for each bin of exponents, int64."""
        first = EXPONENT_BIAS + FIRST_EXPONENT
        bins = self.binary("sub", self.exponents(self._finite_magnitude), first)
        bins = self.call("minimum", self.call("maximum", bins, 0), BINS - 1)
        mask = self.compare("gt", self._finite_magnitude, 0.0)
        counts = self.call("histogram", self.cast(bins, dt.int32), BINS, mask)
        return self.cast(counts, dt.int64)
