"""Values of which some programs have one and the others another, as after a branch."""

from __future__ import annotations

import torch
from torch import Tensor

from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.asynchronous.in_flight import blend_pending
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.memory.pointers import affine_of
from tkdebug.interpreter.memory.shared_buffers import blend_views
from tkdebug.interpreter.tile_ops.where import blend_affine, merged_addresses
from tkdebug.interpreter.tiles.values import (
    AddressTile,
    AffineTile,
    BoxTile,
    BufferView,
    DescriptorTile,
    PointerTile,
    TileValue,
)


def blend(run: Evaluator, test: Tensor, a: TileValue, b: TileValue, type_: ir.Type) -> TileValue:
    """Per program `a` where `test` (P,), else `b`."""
    if a is b or (isinstance(a, int) and isinstance(b, int) and a == b):
        return a
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
