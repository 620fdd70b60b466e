"""Creation, shape changes and selects of tile values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter import conversions
from tkdebug.interpreter.addresses import AddressOps
from tkdebug.interpreter.masks import is_whole
from tkdebug.interpreter.values import (
    AddressTile,
    AffineTile,
    Base,
    BoxMask,
    BoxTile,
    PointerTile,
    TileValue,
)


class ShapeOps(AddressOps):
    """tt.make_range, tt.splat, tt.broadcast, tt.reshape and their kin."""

    def make_range(self, op: Operation) -> TileValue:
        """start, start + 1, … end - 1."""
        start, end = op.attributes["start"], op.attributes["end"]
        assert isinstance(start, int)
        assert isinstance(end, int)
        extent = end - start
        if extent == 1:
            return start
        return AffineTile(start, None, (1,), (extent,))

    def splat(self, op: Operation, value: TileValue) -> TileValue:
        """A scalar in every element."""
        shape = ir.shape_of(op.result.type)
        return self._respread(value, (1,) * len(shape), shape, (0,) * len(shape))

    def _respread(
        self,
        value: TileValue,
        dims: tuple[int, ...],
        shape: tuple[int, ...],
        coefs: tuple[int, ...],
    ) -> TileValue:
        """A scalar-like value under a tile shape, its tensors reshaped to (P, *dims)."""
        if isinstance(value, int):
            return value
        if isinstance(value, AffineTile):
            base = value.base
            if base is not None:
                base = base.reshaped(base.tensor.reshape(-1, *dims))
            return AffineTile(value.const, base, coefs, shape)
        if isinstance(value, PointerTile | AddressTile):
            return value.at(self._respread(value.places, dims, shape, coefs))
        assert isinstance(value, torch.Tensor), type(value)
        return value.reshape(-1, *dims)

    def expand_dims(self, op: Operation, value: TileValue) -> TileValue:
        """A new axis of extent 1."""
        axis = op.attributes["axis"]
        assert isinstance(axis, int)
        return self._expand(value, axis)

    def _expand(self, value: TileValue, axis: int) -> TileValue:
        if isinstance(value, int):
            return value
        if isinstance(value, AffineTile):
            base = value.base
            if base is not None:
                base = base.reshaped(base.tensor.unsqueeze(axis + 1))
            coefs = (*value.coefs[:axis], 0, *value.coefs[axis:])
            return AffineTile(
                value.const, base, coefs, (*value.shape[:axis], 1, *value.shape[axis:])
            )
        if isinstance(value, BoxMask):
            return self.masks.expand_dims(value, axis)
        if isinstance(value, BoxTile):
            box = (*value.box[:axis], (0, 1), *value.box[axis:])
            shape = (*value.shape[:axis], 1, *value.shape[axis:])
            return BoxTile(
                value.data.unsqueeze(axis + 1), box, value.fill.unsqueeze(axis + 1), shape
            )
        if isinstance(value, PointerTile | AddressTile):
            return value.at(self._expand(value.places, axis))
        assert isinstance(value, torch.Tensor)
        return value.unsqueeze(axis + 1)

    def broadcast(self, op: Operation, value: TileValue) -> TileValue:
        """Axes of extent 1 repeated; tensors keep the extent 1."""
        return self._broadcast(value, ir.shape_of(op.result.type))

    def _broadcast(self, value: TileValue, shape: tuple[int, ...]) -> TileValue:
        if isinstance(value, AffineTile):
            coefs = tuple(
                coef if have == want else 0
                for coef, have, want in zip(value.coefs, value.shape, shape, strict=True)
            )
            return AffineTile(value.const, value.base, coefs, shape)
        if isinstance(value, BoxMask):
            return self.masks.broadcast(value, shape)
        if isinstance(value, BoxTile):
            if any(value.shape[axis] != shape[axis] for axis in value.cropped_axes):
                return self.unbox(value)
            box = tuple(
                (0, want) if have != want else pair
                for pair, have, want in zip(value.box, value.shape, shape, strict=True)
            )
            return BoxTile(value.data, box, value.fill, shape)
        if isinstance(value, PointerTile | AddressTile):
            return value.at(self._broadcast(value.places, shape))
        return value

    def _through_tensor(self, op: Operation, value: TileValue, change: Any) -> TileValue:
        """`change` applied to the full tensor of a value; pointers through their offsets."""
        type_ = op.operands[0].type
        shape = ir.shape_of(type_)
        if isinstance(value, PointerTile | AddressTile):
            if isinstance(value.places, int):
                return value
            whole = self.full(value.places, ir.tile(shape, ir.I64))
            return value.at(change(whole.to(torch.int64)))
        if isinstance(value, int):
            return value
        return change(self.full(value, type_))  # type: ignore[no-any-return]

    def reshape(self, op: Operation, value: TileValue) -> TileValue:
        """Row-major elements under another shape."""
        shape = ir.shape_of(op.result.type)
        source = ir.shape_of(op.operands[0].type)
        if isinstance(value, AffineTile) and value.base is None:
            coefs = _reshaped_coefs(value.coefs, source, shape)
            if coefs is not None:
                return AffineTile(value.const, None, coefs, shape)
        if isinstance(value, torch.Tensor) and value.numel() == value.shape[0]:
            return value.reshape(-1, *(1,) * len(shape))
        return self._through_tensor(op, value, lambda t: t.reshape(t.shape[0], *shape))

    def transpose(self, op: Operation, value: TileValue) -> TileValue:
        """Axes permuted."""
        order = op.attributes["order"]
        assert isinstance(order, tuple)
        return self._permute(value, order)  # type: ignore[arg-type]

    def _permute(self, value: TileValue, order: tuple[int, ...]) -> TileValue:
        if isinstance(value, int):
            return value
        if isinstance(value, AffineTile):
            base = value.base
            if base is not None:
                base = base.reshaped(base.tensor.permute(0, *(axis + 1 for axis in order)))
            return AffineTile(
                value.const,
                base,
                tuple(value.coefs[axis] for axis in order),
                tuple(value.shape[axis] for axis in order),
            )
        places = (0, *(axis + 1 for axis in order))
        if isinstance(value, BoxMask):
            return BoxMask(
                tuple(value.bounds[axis] for axis in order),
                tuple(value.shape[axis] for axis in order),
            )
        if isinstance(value, BoxTile):
            return BoxTile(
                value.data.permute(places),
                tuple(value.box[axis] for axis in order),
                value.fill.permute(places),
                tuple(value.shape[axis] for axis in order),
            )
        if isinstance(value, PointerTile | AddressTile):
            return value.at(self._permute(value.places, order))
        assert isinstance(value, torch.Tensor)
        return value.permute(places)

    def _together(
        self, op: Operation, a: TileValue, b: TileValue, put: Callable[[Sequence[Tensor]], Tensor]
    ) -> TileValue:
        """`put` applied to two full tiles; pointers through their addresses."""
        type_ = op.operands[0].type
        if isinstance(a, PointerTile | AddressTile):
            assert isinstance(b, PointerTile | AddressTile)
            index = ir.tile(ir.shape_of(type_), ir.I64)
            placed = put(self._pair(self.addresses(a), self.addresses(b), index))
            return AddressTile(placed, (*_buffers(a), *_buffers(b)), _itemsize(a))
        return put(self._pair(a, b, type_))

    def _pair(self, a: TileValue, b: TileValue, type_: ir.Type) -> tuple[Tensor, Tensor]:
        x, y = self.full(a, type_), self.full(b, type_)
        count = max(x.shape[0], y.shape[0])
        return x.expand(count, *x.shape[1:]), y.expand(count, *y.shape[1:])

    def join(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """Two tiles side by side in a new last axis."""
        return self._together(op, a, b, lambda tiles: torch.stack(tuple(tiles), dim=-1))

    def split(self, op: Operation, value: TileValue) -> Sequence[TileValue]:
        """The halves along the last axis."""
        return (
            self._through_tensor(op, value, lambda tile: tile[..., 0]),
            self._through_tensor(op, value, lambda tile: tile[..., 1]),
        )

    def cat(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """One tile after the other along the first axis."""
        return self._together(op, a, b, lambda tiles: torch.cat(tuple(tiles), dim=1))

    # Selects

    def select(self, op: Operation, condition: TileValue, a: TileValue, b: TileValue) -> TileValue:
        """arith.select."""
        if isinstance(condition, int):
            return a if condition else b
        if isinstance(a, PointerTile | AddressTile) or isinstance(b, PointerTile | AddressTile):
            return self._select_pointers(op, condition, a, b)
        if isinstance(condition, BoxMask):
            boxed = self._select_box(op, condition, a, b)
            if boxed is not None:
                return boxed
        rank = len(ir.shape_of(op.result.type))
        if isinstance(condition, torch.Tensor) and rank > condition.dim() - 1:
            condition = condition.reshape(-1, *(1,) * rank)
        is_mask = ir.element_of(op.result.type) == ir.I1
        if isinstance(condition, torch.Tensor) and not is_mask and self._blendable(a, b, condition):
            return self._blend_affine(condition, a, b)  # type: ignore[arg-type]
        return self.map(op, torch.where, condition, a, b)

    def _blendable(self, a: TileValue, b: TileValue, condition: Tensor) -> bool:
        if not (isinstance(a, int | AffineTile) and isinstance(b, int | AffineTile)):
            return False
        if isinstance(a, int) and isinstance(b, int) and condition.dtype is torch.bool:
            return condition.numel() == condition.shape[0] and condition.dim() == 1
        if condition.numel() != condition.shape[0]:
            return False
        return _coefs(a, b) == _coefs(b, a)

    def _blend_affine(
        self, condition: Tensor, a: int | AffineTile, b: int | AffineTile
    ) -> AffineTile:
        """Per program one of two affine tiles with equal coefficients."""
        coefs = _coefs(a, b)
        shape = (
            a.shape if isinstance(a, AffineTile) else b.shape if isinstance(b, AffineTile) else ()
        )
        values, bounds = [], []
        for tile in (a, b):
            if isinstance(tile, int):
                values.append(self.int64_scalar(tile, len(shape)))
                bounds.append((tile, tile))
                continue
            base = (
                self.int64_scalar(0, len(shape)) if tile.base is None else tile.base.tensor
            ) + tile.const
            low, high = (0, 0) if tile.base is None else tile.base.bounds
            values.append(base)
            bounds.append((low + tile.const, high + tile.const))
        column = condition.reshape(-1, *(1,) * len(shape))
        tensor = torch.where(column, values[0], values[1])
        hull = (min(bounds[0][0], bounds[1][0]), max(bounds[0][1], bounds[1][1]))
        return AffineTile(0, Base(tensor, hull), coefs, shape)

    def _select_box(
        self, op: Operation, condition: BoxMask, a: TileValue, b: TileValue
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
            fill = self.dense(b, op.operands[2].type)
            for axis, pair in enumerate(box):
                if pair != (0, condition.shape[axis]) and fill.shape[axis + 1] > 1:
                    return None
        return BoxTile(self.crop(a, op.operands[1].type, box), box, fill, condition.shape)

    def _select_pointers(
        self, op: Operation, condition: TileValue, a: TileValue, b: TileValue
    ) -> TileValue:
        assert isinstance(a, PointerTile | AddressTile)
        assert isinstance(b, PointerTile | AddressTile)
        shape = ir.shape_of(op.result.type)
        test = self.dense(condition, op.operands[0].type)
        if test.dim() - 1 < len(shape):
            test = test.reshape(-1, *(1,) * len(shape))
        if isinstance(a, PointerTile) and isinstance(b, PointerTile) and a.buffer is b.buffer:
            index = ir.tile(shape, ir.I64)
            chosen = torch.where(test, self.dense(a.offset, index), self.dense(b.offset, index))
            return PointerTile(a.buffer, chosen)
        return self.merged_addresses(test, a, b, shape)

    def merged_addresses(
        self,
        test: Tensor,
        a: PointerTile | AddressTile,
        b: PointerTile | AddressTile,
        shape: tuple[int, ...],
    ) -> AddressTile:
        """Element by element one of two pointers into different memory."""
        index = ir.tile(shape, ir.I64)
        address = torch.where(
            test,
            self.dense(self.addresses(a), index),
            self.dense(self.addresses(b), index),
        )
        return AddressTile(address, (*_buffers(a), *_buffers(b)), _itemsize(a))

    def convert(self, op: Operation, value: TileValue) -> TileValue:
        """Elements under another type: arith's casts, tt.bitcast and their kin."""
        return conversions.CONVERSIONS[op.name](self, op, value)


def _coefs(a: int | AffineTile, like: int | AffineTile) -> tuple[int, ...]:
    if isinstance(a, AffineTile):
        return a.coefs
    return (0,) * (len(like.coefs) if isinstance(like, AffineTile) else 0)


def _itemsize(pointer: PointerTile | AddressTile) -> int:
    return pointer.buffer.itemsize if isinstance(pointer, PointerTile) else pointer.itemsize


def _buffers(pointer: PointerTile | AddressTile) -> tuple[Any, ...]:
    return (pointer.buffer,) if isinstance(pointer, PointerTile) else pointer.buffers


def _reshaped_coefs(
    coefs: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Coefficients under another shape when the tile is one run: value = c * linear position."""
    step = 0
    stride = 1
    for coef, extent in zip(reversed(coefs), reversed(source), strict=True):
        if extent > 1:
            if step == 0:
                step, stride = coef, extent
                if coef == 0:
                    return None
            elif coef != step * stride:
                return None
            else:
                stride *= extent
    out, position = [], step
    for extent in reversed(target):
        out.append(position if extent > 1 else 0)
        position *= extent
    assert math.prod(source) == math.prod(target)
    return tuple(reversed(out))
