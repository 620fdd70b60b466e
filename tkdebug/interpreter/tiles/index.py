"""The algebra of integer tiles: arithmetic that keeps affine tiles affine.

Every method takes the op (for its types) and operand values, and returns a value of the result's
type. Values that cannot stay symbolic are computed on torch tensors at the type's width, wrapping.
A comparison of a tile that varies along one axis is a box mask; a comparison whose outcome the
ranges decide is a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith
from tkdebug.compiler.dialects.arith import truncated_division, unsigned, wrap
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.tiles.forms import TileForms
from tkdebug.interpreter.tiles.masks import MaskAlgebra
from tkdebug.interpreter.tiles.program_bases import Base
from tkdebug.interpreter.tiles.values import AffineTile, Bound, BoxMask, BoxTile, IntTile, TileValue

_TORCH_NAMES = {
    "eq": "eq",
    "ne": "ne",
    "slt": "lt",
    "sle": "le",
    "sgt": "gt",
    "sge": "ge",
}


class IndexAlgebra:
    """Integer ops on tile values, for one evaluator."""

    def __init__(self, forms: TileForms, masks: MaskAlgebra) -> None:
        self._forms = forms
        self._masks = masks

    # Affine forms, and exact sums and multiples of them

    def affine(self, value: TileValue, shape: tuple[int, ...]) -> AffineTile | None:
        """Return `value` as an affine tile, or None if it is no integer tile."""
        if isinstance(value, AffineTile):
            return value
        if isinstance(value, int):
            return AffineTile(value, None, (0,) * len(shape), shape)
        if isinstance(value, torch.Tensor) and value.dtype is not torch.bool:
            return AffineTile(0, Base(value.to(torch.int64)), (0,) * len(shape), shape)
        return None

    def _symbolic(self, a: TileValue, b: TileValue, shape: tuple[int, ...]) -> bool:
        """Whether an operation on a and b should stay symbolic: neither is too dense."""
        return self._is_small(a, b) and self._is_small(b, a)

    def _is_small(self, value: TileValue, other: TileValue) -> bool:
        if isinstance(value, int | AffineTile):
            return True
        if not isinstance(value, torch.Tensor) or value.dtype is torch.bool:
            return False
        if value.numel() == value.shape[0]:
            return True
        # A denser tensor joins an affine tile only along axes that it does not span itself.
        return isinstance(other, AffineTile) and any(
            coef and extent == 1 for coef, extent in zip(other.coefs, value.shape[1:], strict=True)
        )

    def settle(self, tile: AffineTile, bits: int) -> IntTile:
        """`tile` if its values fit `bits`, an int if constant, else wrapped on tensors."""
        if tile.base is None and tile.is_scalar_like:
            return wrap(tile.const, bits)
        limit = 1 << (bits - 1)
        low, high = tile.bounds()
        if low < -limit or high >= limit:
            low, high = tile.bounds(exact=True)
            if low < -limit or high >= limit:
                return self._forms.materialize(_in_int64(tile)).to(self._forms.int_dtypes[bits])
        return tile

    def _bits(self, op: Operation) -> int:
        return ir.element_of(op.operands[0].type).bits

    def _shape(self, op: Operation) -> tuple[int, ...]:
        return ir.shape_of(op.results[0].type)

    def _dense(
        self, op: Operation, fn: Callable[..., Tensor], a: TileValue, b: TileValue
    ) -> TileValue:
        return self._forms.map(op, fn, a, b)

    def affine_add(self, a: TileValue, b: TileValue, shape: tuple[int, ...]) -> AffineTile:
        """Exact sum of two integer tiles that are affine or small."""
        x, y = self.affine(a, shape), self.affine(b, shape)
        assert x is not None
        assert y is not None
        coefs = tuple(p + q for p, q in zip(x.coefs, y.coefs, strict=True))
        return AffineTile(x.const + y.const, self._add_bases(x.base, y.base), coefs, shape)

    def _add_bases(self, a: Base | None, b: Base | None) -> Base | None:
        if a is None or b is None:
            return a if b is None else b
        return a.plus(b)

    def negated(self, value: TileValue, shape: tuple[int, ...]) -> AffineTile:
        """Exact negation of an integer tile that is affine or small."""
        return self.scaled(self.affine(value, shape), -1)

    def scaled(self, tile: AffineTile | None, factor: int) -> AffineTile:
        """Exact product with a constant."""
        assert tile is not None
        base = None if tile.base is None or factor == 0 else tile.base.times(factor)
        return AffineTile(
            tile.const * factor, base, tuple(coef * factor for coef in tile.coefs), tile.shape
        )

    def _non_negative(self, value: TileValue) -> bool:
        if isinstance(value, int):
            return value >= 0
        return isinstance(value, AffineTile) and value.bounds(exact=True)[0] >= 0

    # Sums and products

    def add(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """Sum."""
        bits, shape = self._bits(op), self._shape(op)
        if isinstance(a, int) and isinstance(b, int):
            return wrap(a + b, bits)
        if bits == 1:
            return self._dense(op, torch.logical_xor, a, b)
        if self._symbolic(a, b, shape):
            return self.settle(self.affine_add(a, b, shape), bits)
        return self._dense(op, torch.add, a, b)

    def sub(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """Difference."""
        bits, shape = self._bits(op), self._shape(op)
        if isinstance(a, int) and isinstance(b, int):
            return wrap(a - b, bits)
        if bits == 1:
            return self._dense(op, torch.logical_xor, a, b)
        if self._symbolic(a, b, shape):
            return self.settle(self.affine_add(a, self.negated(b, shape), shape), bits)
        return self._dense(op, torch.sub, a, b)

    def mul(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """Product."""
        bits, shape = self._bits(op), self._shape(op)
        if isinstance(a, int) and isinstance(b, int):
            return wrap(a * b, bits)
        if bits == 1:
            return self._dense(op, torch.logical_and, a, b)
        if isinstance(a, int):
            a, b = b, a
        if isinstance(b, int) and self._symbolic(a, b, shape):
            return self.settle(self.scaled(self.affine(a, shape), b), bits)
        if self._symbolic(a, b, shape):
            x, y = self.affine(a, shape), self.affine(b, shape)
            assert x is not None
            assert y is not None
            if x.is_scalar_like and y.is_scalar_like:
                return self._small(op, lambda p, q: p * q, x, y)
        return self._dense(op, torch.mul, a, b)

    def _small(
        self,
        op: Operation,
        fn: Callable[[Tensor, Tensor], Tensor],
        x: AffineTile,
        y: AffineTile,
        bounds: tuple[int, int] | None = None,
    ) -> IntTile:
        """`fn` on the int64 values of two tiles without coefficients."""
        result = fn(self._values(x), self._values(y))
        tile = AffineTile(0, Base(result, bounds), (0,) * len(x.shape), x.shape)
        return self.settle(tile, self._bits(op))

    def _values(self, tile: AffineTile) -> Tensor:
        if tile.base is None:
            return self._forms.int64_scalar(tile.const, len(tile.shape))
        return tile.base.tensor + tile.const if tile.const else tile.base.tensor

    # Division

    def divsi(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """Signed quotient toward zero; 0 if the divisor is 0 (undefined on the GPU)."""
        bits, shape = self._bits(op), self._shape(op)
        if isinstance(a, int) and isinstance(b, int):
            return wrap(truncated_division(a, b), bits)
        if isinstance(b, int) and b == 1:
            return a
        if isinstance(b, int) and isinstance(a, AffineTile) and b > 0:
            low, high = a.bounds()
            if 0 <= low and high < b:
                return 0
            exact = self._exact_quotient(a, b)
            if exact is not None and low >= 0:
                return exact
        small = self._small_pair(a, b, shape)
        if small is not None:
            return self._small(op, self._divide, *small)
        return self._dense(op, self._divide, a, b)

    def _exact_quotient(self, tile: AffineTile, divisor: int) -> IntTile | None:
        """Return the quotient of a non-negative tile if the divisor divides all of its parts.

        Return None otherwise, or if the tile has a base.
        """
        if tile.base is not None or tile.const % divisor:
            return None
        if any(coef % divisor for coef in tile.coefs):
            return None
        coefs = tuple(coef // divisor for coef in tile.coefs)
        return AffineTile(tile.const // divisor, None, coefs, tile.shape)

    def _divide(self, x: Tensor, y: Tensor) -> Tensor:
        unsafe = (y == 0) | (y == -1)
        if not bool(unsafe.any()):
            return torch.div(x, y, rounding_mode="trunc")
        # The CPU traps on a zero divisor, and on the least integer divided by -1.
        quotient = torch.div(x, torch.where(unsafe, 1, y), rounding_mode="trunc")
        return torch.where(y == 0, 0, torch.where(unsafe, -x, quotient)).to(x.dtype)

    def _remainder(self, x: Tensor, y: Tensor) -> Tensor:
        unsafe = (y == 0) | (y == -1)
        if not bool(unsafe.any()):
            return torch.fmod(x, y)
        rest = torch.fmod(x, torch.where(unsafe, 1, y))
        return torch.where(y == 0, x, rest).to(x.dtype)

    def _small_pair(
        self, a: TileValue, b: TileValue, shape: tuple[int, ...]
    ) -> tuple[AffineTile, AffineTile] | None:
        """Both operands, if they have no coefficients and are worth keeping as bases, or None."""
        if not (self._is_small(a, b) and self._is_small(b, a)):
            return None
        x, y = self.affine(a, shape), self.affine(b, shape)
        if x is None or y is None or not (x.is_scalar_like and y.is_scalar_like):
            return None
        return x, y

    def remsi(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """Signed remainder with the sign of the dividend."""
        bits, shape = self._bits(op), self._shape(op)
        if isinstance(a, int) and isinstance(b, int):
            return wrap(a - truncated_division(a, b) * b, bits)
        if isinstance(b, int) and isinstance(a, AffineTile) and b > 0:
            low, high = a.bounds(exact=True)
            if 0 <= low and high < b:
                return a
        small = self._small_pair(a, b, shape)
        if small is not None:
            bounds = None
            if isinstance(b, int) and b > 0:
                bounds = (0 if small[0].bounds()[0] >= 0 else 1 - b, b - 1)
            return self._small(op, self._remainder, *small, bounds=bounds)
        return self._dense(op, self._remainder, a, b)

    def divui(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """Unsigned quotient."""
        bits = self._bits(op)
        if isinstance(a, int) and isinstance(b, int):
            return wrap(truncated_division(unsigned(a, bits), unsigned(b, bits)), bits)
        if self._non_negative(a) and self._non_negative(b):
            return self.divsi(op, a, b)
        return self._dense(op, lambda x, y: self._unsigned_divide(x, y, bits)[0], a, b)

    def remui(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """Unsigned remainder."""
        bits = self._bits(op)
        if isinstance(a, int) and isinstance(b, int):
            x, y = unsigned(a, bits), unsigned(b, bits)
            return wrap(x - truncated_division(x, y) * y, bits)
        if self._non_negative(a) and self._non_negative(b):
            return self.remsi(op, a, b)
        return self._dense(op, lambda x, y: self._unsigned_divide(x, y, bits)[1], a, b)

    def _unsigned_divide(self, x: Tensor, y: Tensor, bits: int) -> tuple[Tensor, Tensor]:
        if bits < 64:
            mask = (1 << bits) - 1
            p, q = x.to(torch.int64) & mask, y.to(torch.int64) & mask
            return self._divide(p, q).to(x.dtype), self._remainder(p, q).to(x.dtype)
        # Hacker's Delight 9-3: halve, divide, double, correct by one.
        safe = torch.where(y == 0, 1, y)
        half = torch.div((x >> 1) & (2**63 - 1), safe, rounding_mode="trunc") << 1
        rest = x - half * safe
        too_small = self._unsigned_at_least(rest, safe)
        quotient = torch.where(
            safe < 0, self._unsigned_at_least(x, safe).long(), half + too_small.long()
        )
        quotient = torch.where(y == 0, 0, quotient)
        return quotient, x - quotient * y

    def _unsigned_at_least(self, x: Tensor, y: Tensor) -> Tensor:
        flip = -(2**63)
        return (x ^ flip) >= (y ^ flip)

    # Bits

    def and_(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """Bitwise and; on masks, the intersection."""
        if isinstance(a, int) and isinstance(b, int):
            return a & b
        if self._bits(op) == 1:
            return self._masks.intersect(op, a, b)
        return self._bitwise(op, torch.bitwise_and, a, b)

    def or_(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """Bitwise or."""
        if isinstance(a, int) and isinstance(b, int):
            return a | b
        if self._bits(op) == 1:
            for this, other in ((a, b), (b, a)):
                if isinstance(this, int):
                    return 1 if this else other
        return self._bitwise(op, torch.bitwise_or, a, b)

    def xor(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """Bitwise exclusive or."""
        if isinstance(a, int) and isinstance(b, int):
            return wrap(a ^ b, self._bits(op))
        return self._bitwise(op, torch.bitwise_xor, a, b)

    def _bitwise(
        self, op: Operation, fn: Callable[[Tensor, Tensor], Tensor], a: TileValue, b: TileValue
    ) -> TileValue:
        small = self._small_pair(a, b, self._shape(op))
        if small is not None and self._bits(op) > 1:
            return self._small(op, fn, *small)
        return self._dense(op, fn, a, b)

    def shli(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """Shift left; 0 when the amount reaches the width."""
        bits = self._bits(op)
        if isinstance(b, int):
            if not 0 <= b < bits:
                return 0
            if isinstance(a, int):
                return wrap(a << b, bits)
            if isinstance(a, AffineTile):
                return self.mul(op, a, 1 << b)

        def shift(x: Tensor, y: Tensor) -> Tensor:
            inside = (y >= 0) & (y < bits)
            return torch.where(inside, x << torch.where(inside, y, 0), 0).to(x.dtype)

        return self._dense(op, shift, a, b)

    def shrsi(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """Arithmetic shift right; copies of the sign when the amount is not below the width."""
        bits = self._bits(op)
        # Amounts are unsigned: -1 is beyond the width.
        if isinstance(b, int):
            b = b if 0 <= b < bits else bits - 1
            if isinstance(a, int):
                return a >> b

        def shift(x: Tensor, y: Tensor) -> Tensor:
            return x >> torch.where((y >= 0) & (y < bits), y, bits - 1)

        small = self._small_pair(a, b, self._shape(op))
        if small is not None:
            return self._small(op, shift, *small)
        return self._dense(op, shift, a, b)

    def shrui(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """Logical shift right; 0 when the amount reaches the width."""
        bits = self._bits(op)
        if isinstance(a, int) and isinstance(b, int):
            return wrap(unsigned(a, bits) >> b, bits) if 0 <= b < bits else 0
        if self._non_negative(a) and isinstance(b, int) and 0 <= b < bits:
            return self.shrsi(op, a, b)

        def shift(x: Tensor, y: Tensor) -> Tensor:
            inside = (y >= 0) & (y < bits)
            amount = torch.where(inside, y, 0)
            # Shift arithmetically, then clear the copies of the sign bit.
            ones = torch.full_like(x, -1)
            keep = torch.where(amount == 0, ones, ~(ones << (bits - amount).clamp(max=bits - 1)))
            return torch.where(inside, (x >> amount) & keep, 0).to(x.dtype)

        return self._dense(op, shift, a, b)

    # Extrema

    def minsi(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """Signed minimum."""
        return self._extremum(op, min, torch.minimum, a, b)

    def maxsi(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """Signed maximum."""
        return self._extremum(op, max, torch.maximum, a, b)

    def _extremum(
        self,
        op: Operation,
        choose: Callable[[int, int], int],
        fn: Callable[[Tensor, Tensor], Tensor],
        a: TileValue,
        b: TileValue,
    ) -> TileValue:
        if isinstance(a, int) and isinstance(b, int):
            return choose(a, b)
        shape = self._shape(op)
        if self._symbolic(a, b, shape):
            x, y = self.affine(a, shape), self.affine(b, shape)
            assert x is not None
            assert y is not None
            (low1, high1), (low2, high2) = x.bounds(), y.bounds()
            if high1 <= low2:
                return a if choose is min else b
            if high2 <= low1:
                return b if choose is min else a
            if x.is_scalar_like and y.is_scalar_like:
                bounds = (choose(low1, low2), choose(high1, high2))
                return self._small(op, fn, x, y, bounds)
        return self._dense(op, fn, a, b)

    def minui(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """Unsigned minimum."""
        if self._non_negative(a) and self._non_negative(b):
            return self.minsi(op, a, b)
        return self._unsigned_extremum(op, torch.minimum, a, b)

    def maxui(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """Unsigned maximum."""
        if self._non_negative(a) and self._non_negative(b):
            return self.maxsi(op, a, b)
        return self._unsigned_extremum(op, torch.maximum, a, b)

    def _unsigned_extremum(
        self, op: Operation, fn: Callable[[Tensor, Tensor], Tensor], a: TileValue, b: TileValue
    ) -> TileValue:
        bits = self._bits(op)
        if bits == 1:
            logical = torch.logical_and if fn is torch.minimum else torch.logical_or
            return self._dense(op, logical, a, b)
        flip = -(1 << (bits - 1))
        return self._dense(op, lambda x, y: fn(x ^ flip, y ^ flip) ^ flip, a, b)

    def mulhiui(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """High half of the unsigned product."""
        bits = self._bits(op)
        if isinstance(a, int) and isinstance(b, int):
            return wrap((unsigned(a, bits) * unsigned(b, bits)) >> bits, bits)
        if bits == 32:
            return self._dense(op, self._mulhi32, a, b)
        return self._dense(op, self._mulhi64, a, b)

    def _mulhi32(self, x: Tensor, y: Tensor) -> Tensor:
        mask = (1 << 32) - 1
        p, q = x.long() & mask, y.long() & mask
        # p * q may exceed 63 bits: the shift is arithmetic, and the cast keeps 32 bits.
        return ((p * q) >> 32).to(x.dtype)

    def _mulhi64(self, x: Tensor, y: Tensor) -> Tensor:
        mask = (1 << 32) - 1
        xl, xh = x & mask, (x >> 32) & mask
        yl, yh = y & mask, (y >> 32) & mask
        low = xl * yl
        mid1 = xh * yl + ((low >> 32) & mask)
        mid2 = xl * yh + (mid1 & mask)
        return xh * yh + ((mid1 >> 32) & mask) + ((mid2 >> 32) & mask)

    # Comparisons: intervals of positions wherever one side is affine

    def compare(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """The comparison named by the op's predicate; an i1 tile."""
        comparison = arith.CmpI(op)
        predicate, bits, shape = comparison.predicate, self._bits(op), self._shape(op)
        if isinstance(a, BoxMask):
            a = self._forms.dense(a, comparison.lhs.type)
        if isinstance(b, BoxMask):
            b = self._forms.dense(b, comparison.rhs.type)
        if predicate[0] == "u":
            if not (self._non_negative(a) and self._non_negative(b)):
                return self._compare_unsigned(op, predicate, a, b, bits)
            predicate = "s" + predicate[1:]
        if bits > 1 and not isinstance(a, BoxTile) and not isinstance(b, BoxTile):
            if self._symbolic(a, b, shape):
                return self._compare_symbolic(op, predicate, a, b, shape)
        return self._dense(op, getattr(torch, _TORCH_NAMES[predicate]), a, b)

    def _compare_unsigned(
        self, op: Operation, predicate: str, a: TileValue, b: TileValue, bits: int
    ) -> TileValue:
        fn = getattr(torch, _TORCH_NAMES["s" + predicate[1:]])
        if bits == 1:
            return self._dense(op, lambda x, y: fn(x.byte(), y.byte()), a, b)
        flip = -(1 << (bits - 1))
        return self._dense(op, lambda x, y: fn(x ^ flip, y ^ flip), a, b)

    def _compare_symbolic(
        self, op: Operation, predicate: str, a: TileValue, b: TileValue, shape: tuple[int, ...]
    ) -> TileValue:
        difference = self.affine_add(a, self.negated(b, shape), shape)
        if predicate in ("sgt", "sge"):
            difference = self.scaled(difference, -1)
        if predicate in ("sle", "sge"):
            difference = difference.shifted(-1)
        low, high = difference.bounds()
        if low < -(1 << 63) or high >= 1 << 63:
            # The difference of two 64-bit numbers may not fit 64 bits.
            return self._dense(op, getattr(torch, _TORCH_NAMES[predicate]), a, b)
        if predicate in ("eq", "ne"):
            return self._compare_equal(op, predicate, difference, a, b)
        # From here the question is: difference < 0?
        if high < 0:
            return 1
        if low >= 0:
            return 0
        axes = [axis for axis, coef in enumerate(difference.coefs) if coef]
        base = difference.base
        if not axes:
            assert base is not None
            low, high = base.exact_bounds
            if high + difference.const < 0:
                return 1
            if low + difference.const >= 0:
                return 0
            return base.tensor < -difference.const
        if len(axes) == 1 and (base is None or base.is_per_program):
            return self.half_line(difference, axes[0])
        fn = getattr(torch, _TORCH_NAMES[predicate])
        return self._dense(op, fn, a, b)

    def half_line(self, difference: AffineTile, axis: int) -> TileValue:
        """The mask difference < 0 of a tile that varies along one axis only."""
        coef = difference.coefs[axis]
        start: Bound = difference.const
        if difference.base is not None:
            start = difference.base.tensor.reshape(-1) + difference.const
        bounds: list[tuple[Bound, Bound]] = [(0, extent) for extent in difference.shape]
        extent = difference.shape[axis]
        if coef > 0:  # position < -start / coef
            bounds[axis] = (0, self._floor_div(-start + (coef - 1), coef))
        else:  # position > start / -coef
            bounds[axis] = (self._floor_div(start, -coef) + 1, extent)
        return self._masks.make(tuple(bounds), difference.shape)

    def _floor_div(self, value: Bound, divisor: int) -> Any:
        if isinstance(value, int):
            return value // divisor
        return value if divisor == 1 else torch.div(value, divisor, rounding_mode="floor")

    def _compare_equal(
        self,
        op: Operation,
        predicate: str,
        difference: AffineTile,
        a: TileValue,
        b: TileValue,
    ) -> TileValue:
        low, high = difference.bounds()
        if low > 0 or high < 0:
            return 0 if predicate == "eq" else 1
        axes = [axis for axis, coef in enumerate(difference.coefs) if coef]
        base = difference.base
        if not axes:
            if base is None:
                return int((difference.const == 0) == (predicate == "eq"))
            equal = base.tensor == -difference.const
            return equal if predicate == "eq" else ~equal
        is_line = len(axes) == 1 and (base is None or base.is_per_program)
        if is_line and predicate == "eq" and abs(difference.coefs[axes[0]]) == 1:
            sign = difference.coefs[axes[0]]
            place: Any = (
                difference.const if base is None else (base.tensor.reshape(-1) + difference.const)
            )
            place = -sign * place
            bounds: list[tuple[Bound, Bound]] = [(0, extent) for extent in difference.shape]
            bounds[axes[0]] = (place, place + 1)
            return self._masks.make(tuple(bounds), difference.shape)
        return self._dense(op, getattr(torch, predicate), a, b)


def _in_int64(tile: AffineTile) -> AffineTile:
    """Return a tile with the same values modulo 2**64, whose numbers fit int64."""
    return AffineTile(
        wrap(tile.const, 64),
        tile.base,
        tuple(wrap(coef, 64) for coef in tile.coefs),
        tile.shape,
    )
