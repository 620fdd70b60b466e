"""Sorting of the whole batch along the last axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.numerics.fp8 import convert
from tkdebug.interpreter.tiles.values import TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator


def sort(run: Evaluator, view: tt.Sort, value: TileValue) -> TileValue:
    """tt.sort: NaN counts as the largest."""
    keys = _keys(run, view, run.full(value, view.source.type))
    keys = keys.sort(dim=-1, descending=view.descending).values
    return _unkeyed(run, view, keys)


def topk(run: Evaluator, view: tt.TopK, value: TileValue) -> TileValue:
    """tt.topk: NaN counts as the largest."""
    keys = _keys(run, view, run.full(value, view.source.type))
    return _unkeyed(run, view, keys.topk(view.k, dim=-1, largest=view.descending).values)


def bitonic_merge(run: Evaluator, view: tt.BitonicMerge, value: TileValue) -> TileValue:
    """tt.bitonic_merge: the network itself, so that any input gives what the GPU gives."""
    keys = _keys(run, view, run.full(value, view.source.type))
    shape = keys.shape
    distance = shape[-1] // 2
    while distance:
        pairs = keys.reshape(*shape[:-1], -1, 2, distance)
        left, right = pairs[..., 0, :], pairs[..., 1, :]
        swap = left < right if view.descending else left > right
        pair = (torch.where(swap, right, left), torch.where(swap, left, right))
        keys = torch.stack(pair, dim=-2).reshape(shape)
        distance //= 2
    return _unkeyed(run, view, keys)


def _keys(run: Evaluator, view: tt.Sorting, tile: Tensor) -> Tensor:
    """`tile` as numbers that torch orders as the language does."""
    element = ir.element_of(view.source.type)
    assert isinstance(element, ir.ScalarType)
    if element.is_float and element.bits == 8:
        return convert(tile, element.name, "f32", run.dtypes, False)
    if tile.dtype == torch.bool:
        return tile.to(torch.uint8)
    if view.unsigned:
        return tile ^ -(1 << (element.bits - 1))
    return tile


def _unkeyed(run: Evaluator, view: tt.Sorting, keys: Tensor) -> Tensor:
    element = ir.element_of(view.source.type)
    assert isinstance(element, ir.ScalarType)
    if element.is_float and element.bits == 8:
        return convert(keys, "f32", element.name, run.dtypes, False)
    if element.bits == 1:
        return keys.to(torch.bool)
    if view.unsigned:
        return keys ^ -(1 << (element.bits - 1))
    return keys
