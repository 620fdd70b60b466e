"""Affine forms of integer tiles, and exact sums and multiples of them.

The algebra above (`index`, `comparisons`) asks here whether an operation can stay symbolic, and
settles results that would not fit their type onto wrapping tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects.arith import wrap
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.tiles.program_bases import Base
from tkdebug.interpreter.tiles.values import AffineTile, IntTile, TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.state import EvaluatorState


class AffineForms:
    """Affine forms, for one evaluator."""

    def __init__(self, evaluator: EvaluatorState) -> None:
        self.ev = evaluator

    def affine(self, value: TileValue, shape: tuple[int, ...]) -> AffineTile | None:
        """`value` as an affine tile, or None when it is not an integer tile or too dense."""
        if isinstance(value, AffineTile):
            return value
        if isinstance(value, int):
            return AffineTile(value, None, (0,) * len(shape), shape)
        if isinstance(value, torch.Tensor) and value.dtype is not torch.bool:
            return AffineTile(0, Base(value.to(torch.int64)), (0,) * len(shape), shape)
        return None

    def _symbolic(self, a: TileValue, b: TileValue, shape: tuple[int, ...]) -> bool:
        """Whether an operation on a and b should stay symbolic."""
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
                return self.ev.materialize(_in_int64(tile)).to(self.ev.int_dtypes[bits])
        return tile

    def _bits(self, op: Operation) -> int:
        return ir.element_of(op.operands[0].type).bits

    def _shape(self, op: Operation) -> tuple[int, ...]:
        return ir.shape_of(op.results[0].type)

    def _dense(
        self, op: Operation, fn: Callable[..., Tensor], a: TileValue, b: TileValue
    ) -> TileValue:
        return self.ev.map(op, fn, a, b)

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


def _in_int64(tile: AffineTile) -> AffineTile:
    """The same values modulo 2**64, of numbers that tensors take."""
    return AffineTile(
        wrap(tile.const, 64),
        tile.base,
        tuple(wrap(coef, 64) for coef in tile.coefs),
        tile.shape,
    )
