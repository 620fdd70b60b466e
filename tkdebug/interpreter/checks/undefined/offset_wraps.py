"""Finds integer arithmetic whose results, past the end of their type, become offsets of pointers.

`row * stride` in int32 wraps where a tensor has more than 2**31 elements, and the access goes
elsewhere in the same tensor as often as outside it. A wrapped value is no fault by itself: hashes
wrap on purpose, and take a remainder or some bits before they address anything. So only sums,
differences and products count that reach a pointer by such alone, and by what moves elements about.
`h - h // n * n` is a remainder, and so no difference. A remainder is followed by itself: `%` keeps
the sign of its left operand, and what wrapped may have made that negative.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.tiles.values import AffineTile, BoxTile, TileValue


def may_wrap(op: Operation, operands: Sequence[TileValue], result: TileValue) -> bool:
    """Whether `result`, which `op` gave, may not be what its operands come to."""
    if isinstance(result, AffineTile):
        return False  # which never wraps
    (low, high), (low2, high2) = map(_bounds, operands)
    symbol = arith.WrappingBinary(op).sign
    if symbol == "*":
        corners = [low * low2, low * high2, high * low2, high * high2]
    elif symbol == "+":
        corners = [low + low2, high + high2]
    else:
        corners = [low - high2, high - low2]
    limit = 1 << (ir.element_of(op.result.type).bits - 1)
    return min(corners) < -limit or max(corners) >= limit


def may_be_negative(result: TileValue) -> bool:
    """Whether `result`, of a remainder, may be below 0."""
    return _bounds(result)[0] < 0


def wraps(op: Operation, left: Tensor, right: Tensor) -> Tensor:
    """Where `op` of these values leaves its type."""
    a, b = left.to(torch.int64), right.to(torch.int64)
    symbol = arith.WrappingBinary(op).sign
    if symbol == "*":
        exact = a * b
    else:
        exact = a + b if symbol == "+" else a - b
    limit = 1 << (ir.element_of(op.result.type).bits - 1)
    return (exact < -limit) | (exact >= limit)


def _bounds(tile: TileValue) -> tuple[int, int]:
    if isinstance(tile, int):
        return tile, tile
    if isinstance(tile, AffineTile):
        return tile.bounds()
    if isinstance(tile, BoxTile):
        low, high = _bounds(tile.data)
        low2, high2 = _bounds(tile.fill)
        return min(low, low2), max(high, high2)
    assert isinstance(tile, Tensor)
    if not tile.numel():
        return 0, 0
    least, most = tile.aminmax()
    return int(least), int(most)
