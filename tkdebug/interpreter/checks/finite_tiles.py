"""Which tiles are of floats, and whether one is finite, by one sum of it."""

from __future__ import annotations

from math import isfinite

from torch import Tensor

from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.numerics.nan_scan import sum_of
from tkdebug.interpreter.tiles.values import BoxTile, TileValue


def all_finite(tile: TileValue) -> bool:
    """Whether a float tile has neither Inf nor NaN; False where that takes a closer look."""
    if isinstance(tile, BoxTile):
        return all_finite(tile.data) and all_finite(tile.fill)
    if not isinstance(tile, Tensor):
        return True
    # A sum that overflows only costs the closer look.
    return isfinite(sum_of(tile))


def is_float(type_: ir.Type) -> bool:
    """Whether it is a float, or a tile of floats, of more than 8 bits."""
    if not isinstance(type_, ir.ScalarType | ir.TensorType):
        return False
    element = ir.element_of(type_)
    return isinstance(element, ir.ScalarType) and element.is_float and element.bits > 8
