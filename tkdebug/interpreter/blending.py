"""Choices between two values: `tt.where`, and values of programs that took different branches."""

from __future__ import annotations

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.asynchronous import blend_pending
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.memory.pointers import affine_of, buffers_of, byte_addresses, itemsize_of
from tkdebug.interpreter.memory.shared_buffers import blend_views
from tkdebug.interpreter.tiles.masks import is_whole
from tkdebug.interpreter.tiles.program_bases import Base
from tkdebug.interpreter.tiles.side_by_side import SideBySide, sides_of, worlds_of
from tkdebug.interpreter.tiles.values import (
    AddressTile,
    AffineTile,
    BoxMask,
    BoxTile,
    BufferView,
    DescriptorTile,
    PointerTile,
    TileValue,
)


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
    """Choose per program between two affine tiles with equal coefficients."""
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
    """Return a box tile, `a` inside a uniform box and the fill `b` outside, or None.

    Return None where the box differs by program or covers the tile, or `b` is no fill outside.
    """
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
    """Choose element by element between two pointers into different memory."""
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


def blend(run: Evaluator, test: Tensor, a: TileValue, b: TileValue, type_: ir.Type) -> TileValue:
    """Per program `a` where `test` (P,), else `b`."""
    if a is b or (isinstance(a, int) and isinstance(b, int) and a == b):
        return a
    if isinstance(a, SideBySide) or isinstance(b, SideBySide):
        return _blend_sides(run, test, sides_of(a), sides_of(b), type_)
    if isinstance(a, DescriptorTile):
        return _blend_descriptors(run, test, a, b)
    if isinstance(a, PointerTile | AddressTile):
        return _blend_pointers(run, test, a, b, type_)
    if isinstance(a, BufferView):
        assert isinstance(b, BufferView)
        return blend_views(run, test, a, b)
    shape = ir.shape_of(type_)
    element = ir.element_of(type_)
    if isinstance(a, int | AffineTile) and isinstance(b, int | AffineTile):
        x, y = affine_of(run, a, shape), affine_of(run, b, shape)
        if x.coefs == y.coefs and element.bits > 1:
            return blend_affine(run, test, x, y)
    if isinstance(a, BoxTile) and isinstance(b, BoxTile) and a.box == b.box:
        column = test.reshape(-1, *(1,) * len(shape))
        return BoxTile(
            torch.where(column, a.data, b.data),
            a.box,
            torch.where(column, a.fill, b.fill),
            a.shape,
        )
    column = test.reshape(-1, *(1,) * len(shape))
    first, second = run.dense(a, type_), run.dense(b, type_)
    return blend_pending(run, test, first, second, torch.where(column, first, second))


def _blend_sides(
    run: Evaluator, test: Tensor, a: SideBySide, b: SideBySide, type_: ir.Type
) -> SideBySide:
    actual = blend(run, test, a.actual, b.actual, type_)
    if a.exact is None and b.exact is None:
        return SideBySide(actual)
    column = test.reshape(-1, *(1,) * len(ir.shape_of(type_)))
    worlds = {
        world: torch.where(column, a.in_world(run, type_, world), b.in_world(run, type_, world))
        for world in worlds_of(a, b)
    }
    exact = torch.where(column, a.in_fp64(run, type_), b.in_fp64(run, type_))
    return SideBySide(actual, exact, worlds)


def _blend_pointers(
    run: Evaluator, test: Tensor, a: PointerTile | AddressTile, b: TileValue, type_: ir.Type
) -> TileValue:
    assert isinstance(b, PointerTile | AddressTile)
    shape = ir.shape_of(type_)
    if isinstance(a, PointerTile) and isinstance(b, PointerTile) and a.buffer is b.buffer:
        return a.at(blend(run, test, a.offset, b.offset, ir.tile(shape, ir.I64)))
    return merged_addresses(run, test.reshape(-1, *(1,) * len(shape)), a, b, shape)


def _blend_descriptors(
    run: Evaluator, test: Tensor, a: DescriptorTile, b: TileValue
) -> DescriptorTile:
    assert isinstance(b, DescriptorTile)
    pointer = ir.PointerType(ir.I8)
    base = _blend_pointers(run, test, a.base, b.base, pointer)
    assert isinstance(base, PointerTile | AddressTile)
    return DescriptorTile(
        base,
        [blend(run, test, x, y, ir.I64) for x, y in zip(a.shape, b.shape, strict=True)],  # type: ignore[misc]
        [blend(run, test, x, y, ir.I64) for x, y in zip(a.strides, b.strides, strict=True)],  # type: ignore[misc]
        a.padding,
    )
