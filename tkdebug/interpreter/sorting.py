"""Sorting of the whole batch along the last axis."""

from __future__ import annotations

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.fp8 import convert
from tkdebug.interpreter.state import EvaluatorState
from tkdebug.interpreter.values import TileValue


class SortingOps(EvaluatorState):
    """tt.sort, tt.topk and tt.bitonic_merge."""

    def sort(self, op: Operation, value: TileValue) -> TileValue:
        """tt.sort: NaN counts as the largest."""
        keys = self._keys(op, self.full(value, op.operands[0].type))
        keys = keys.sort(dim=-1, descending=bool(op.attributes.get("descending"))).values
        return self._unkeyed(op, keys)

    def topk(self, op: Operation, value: TileValue) -> TileValue:
        """tt.topk: NaN counts as the largest."""
        k = op.attributes["k"]
        assert isinstance(k, int)
        keys = self._keys(op, self.full(value, op.operands[0].type))
        is_largest = bool(op.attributes.get("descending"))
        return self._unkeyed(op, keys.topk(k, dim=-1, largest=is_largest).values)

    def bitonic_merge(self, op: Operation, value: TileValue) -> TileValue:
        """tt.bitonic_merge: the network itself, so that any input gives what the GPU gives."""
        keys = self._keys(op, self.full(value, op.operands[0].type))
        shape = keys.shape
        distance = shape[-1] // 2
        while distance:
            pairs = keys.reshape(*shape[:-1], -1, 2, distance)
            left, right = pairs[..., 0, :], pairs[..., 1, :]
            swap = left < right if op.attributes.get("descending") else left > right
            pair = (torch.where(swap, right, left), torch.where(swap, left, right))
            keys = torch.stack(pair, dim=-2).reshape(shape)
            distance //= 2
        return self._unkeyed(op, keys)

    def _keys(self, op: Operation, tile: Tensor) -> Tensor:
        """`tile` as numbers that torch orders as the language does."""
        element = ir.element_of(op.operands[0].type)
        assert isinstance(element, ir.ScalarType)
        if element.is_float and element.bits == 8:
            return convert(tile, element.name, "f32", self.dtypes, False)
        if tile.dtype == torch.bool:
            return tile.to(torch.uint8)
        if op.attributes.get("unsigned"):
            return tile ^ -(1 << (element.bits - 1))
        return tile

    def _unkeyed(self, op: Operation, keys: Tensor) -> Tensor:
        element = ir.element_of(op.operands[0].type)
        assert isinstance(element, ir.ScalarType)
        if element.is_float and element.bits == 8:
            return convert(keys, "f32", element.name, self.dtypes, False)
        if element.bits == 1:
            return keys.to(torch.bool)
        if op.attributes.get("unsigned"):
            return keys ^ -(1 << (element.bits - 1))
        return keys
