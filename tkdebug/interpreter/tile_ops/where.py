"""tt.where: values and pointers chosen from two by a condition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.memory.pointers import buffers_of, byte_addresses, itemsize_of
from tkdebug.interpreter.tiles.masks import is_whole
from tkdebug.interpreter.tiles.program_bases import Base
from tkdebug.interpreter.tiles.values import (
    AddressTile,
    AffineTile,
    BoxMask,
    BoxTile,
    PointerTile,
    TileValue,
)

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator


def select(
    run: Evaluator, view: arith.Select, condition: TileValue, a: TileValue, b: TileValue
) -> TileValue:
    """arith.select."""
    if isinstance(condition, int):
        return a if condition else b
    if isinstance(a, PointerTile | AddressTile) or isinstance(b, PointerTile | AddressTile):
        return _select_pointers(run, view, condition, a, b)
    if isinstance(condition, BoxMask):
        boxed = _select_box(run, view, condition, a, b)
        if boxed is not None:
            return boxed
    rank = len(ir.shape_of(view.result.type))
    if isinstance(condition, torch.Tensor) and rank > condition.dim() - 1:
        condition = condition.reshape(-1, *(1,) * rank)
    is_mask = ir.element_of(view.result.type) == ir.I1
    if isinstance(condition, torch.Tensor) and not is_mask and _blendable(a, b, condition):
        return blend_affine(run, condition, a, b)  # type: ignore[arg-type]
    return run.map(view.op, torch.where, condition, a, b)


def _blendable(a: TileValue, b: TileValue, condition: Tensor) -> bool:
    if not (isinstance(a, int | AffineTile) and isinstance(b, int | AffineTile)):
        return False
    if isinstance(a, int) and isinstance(b, int) and condition.dtype is torch.bool:
        return condition.numel() == condition.shape[0] and condition.dim() == 1
    if condition.numel() != condition.shape[0]:
        return False
    return _coefs(a, b) == _coefs(b, a)


def blend_affine(
    run: Evaluator, condition: Tensor, a: int | AffineTile, b: int | AffineTile
) -> AffineTile:
    """Per program one of two affine tiles with equal coefficients."""
    coefs = _coefs(a, b)
    shape = a.shape if isinstance(a, AffineTile) else b.shape if isinstance(b, AffineTile) else ()
    values, bounds = [], []
    for tile in (a, b):
        if isinstance(tile, int):
            values.append(run.int64_scalar(tile, len(shape)))
            bounds.append((tile, tile))
            continue
        base = (
            run.int64_scalar(0, len(shape)) if tile.base is None else tile.base.tensor
        ) + tile.const
        low, high = (0, 0) if tile.base is None else tile.base.bounds
        values.append(base)
        bounds.append((low + tile.const, high + tile.const))
    column = condition.reshape(-1, *(1,) * len(shape))
    tensor = torch.where(column, values[0], values[1])
    hull = (min(bounds[0][0], bounds[1][0]), max(bounds[0][1], bounds[1][1]))
    return AffineTile(0, Base(tensor, hull), coefs, shape)


def _select_box(
    run: Evaluator, view: arith.Select, condition: BoxMask, a: TileValue, b: TileValue
) -> TileValue | None:
    """`a` inside a uniform box and a fill outside, when b is one there."""
    box = condition.uniform_box
    if box is None or is_whole(box, condition.shape):
        return None
    if isinstance(b, BoxTile):
        if b.box != box:
            return None
        fill = b.fill
    else:
        fill = run.dense(b, view.false_value.type)
        for axis, pair in enumerate(box):
            if pair != (0, condition.shape[axis]) and fill.shape[axis + 1] > 1:
                return None
    return BoxTile(run.crop(a, view.true_value.type, box), box, fill, condition.shape)


def _select_pointers(
    run: Evaluator, view: arith.Select, condition: TileValue, a: TileValue, b: TileValue
) -> TileValue:
    assert isinstance(a, PointerTile | AddressTile)
    assert isinstance(b, PointerTile | AddressTile)
    shape = ir.shape_of(view.result.type)
    test = run.dense(condition, view.condition.type)
    if test.dim() - 1 < len(shape):
        test = test.reshape(-1, *(1,) * len(shape))
    if isinstance(a, PointerTile) and isinstance(b, PointerTile) and a.buffer is b.buffer:
        index = ir.tile(shape, ir.I64)
        chosen = torch.where(test, run.dense(a.offset, index), run.dense(b.offset, index))
        return PointerTile(a.buffer, chosen)
    return merged_addresses(run, test, a, b, shape)


def merged_addresses(
    run: Evaluator,
    test: Tensor,
    a: PointerTile | AddressTile,
    b: PointerTile | AddressTile,
    shape: tuple[int, ...],
) -> AddressTile:
    """Element by element one of two pointers into different memory."""
    index = ir.tile(shape, ir.I64)
    address = torch.where(
        test,
        run.dense(byte_addresses(a), index),
        run.dense(byte_addresses(b), index),
    )
    return AddressTile(address, (*buffers_of(a), *buffers_of(b)), itemsize_of(a))


def _coefs(a: int | AffineTile, like: int | AffineTile) -> tuple[int, ...]:
    if isinstance(a, AffineTile):
        return a.coefs
    return (0,) * (len(like.coefs) if isinstance(like, AffineTile) else 0)
