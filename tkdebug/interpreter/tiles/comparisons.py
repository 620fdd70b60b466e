"""Comparisons of integer tiles: intervals of positions wherever one side is affine.

A comparison of a tile that varies along one axis is a box mask; one whose outcome the ranges
decide is a constant; the rest is computed on tensors.
"""

from __future__ import annotations

from typing import Any

import torch

from tkdebug.compiler.dialects import arith
from tkdebug.compiler.ir import Operation
from tkdebug.interpreter.tiles.affine import AffineForms
from tkdebug.interpreter.tiles.values import (
    AffineTile,
    Bound,
    BoxMask,
    BoxTile,
    TileValue,
)


class Comparisons(AffineForms):
    """arith.cmpi, for one evaluator."""

    def compare(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """The comparison named by the op's predicate; an i1 tile."""
        comparison = arith.CmpI(op)
        predicate, bits, shape = comparison.predicate, self._bits(op), self._shape(op)
        if isinstance(a, BoxMask):
            a = self.ev.dense(a, comparison.lhs.type)
        if isinstance(b, BoxMask):
            b = self.ev.dense(b, comparison.rhs.type)
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
        return self.ev.masks.make(tuple(bounds), difference.shape)

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
            return self.ev.masks.make(tuple(bounds), difference.shape)
        return self._dense(op, getattr(torch, predicate), a, b)


_TORCH_NAMES = {
    "eq": "eq",
    "ne": "ne",
    "slt": "lt",
    "sle": "le",
    "sgt": "gt",
    "sge": "ge",
}
