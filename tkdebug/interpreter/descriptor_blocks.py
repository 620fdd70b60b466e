"""Blocks read and written through tensor descriptors: pointer tiles and masks made on the spot."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.addresses import AddressOps
from tkdebug.interpreter.checked_access import Access, loaded_type
from tkdebug.interpreter.values import (
    AddressTile,
    AffineTile,
    Base,
    BoxMask,
    DescriptorTile,
    IntTile,
    PointerTile,
    TileValue,
)


class DescriptorBlockOps(AddressOps):
    """tt.make_tensor_descriptor, tt.descriptor_load and tt.descriptor_store."""

    def make_descriptor(self, op: Operation, base: TileValue, *rest: IntTile) -> DescriptorTile:
        """tt.make_tensor_descriptor."""
        assert isinstance(base, PointerTile | AddressTile)
        rank = len(rest) // 2
        return DescriptorTile(
            base, rest[:rank], rest[rank:], str(op.attributes.get("padding", "zero"))
        )

    def _descriptor_access(
        self, descriptor: DescriptorTile, shape: tuple[int, ...], offsets: Sequence[TileValue]
    ) -> tuple[TileValue, TileValue]:
        """Pointer tile and mask of a block: inside the descriptor's shape along every axis."""
        rank = len(shape)
        total: IntTile = 0
        mask: TileValue = 1
        for axis, extent in enumerate(shape):
            coefs = tuple(int(a == axis and extent > 1) for a in range(rank))
            start = self._tile_scalar(offsets[axis], shape)
            position = self.index.affine_add(AffineTile(0, None, coefs, shape), start, shape)
            limit = self._tile_scalar(descriptor.shape[axis], shape)
            for difference in (
                self.index.affine_add(position, self.index.negated(limit, shape), shape),
                self.index.negated(position, shape).shifted(-1),
            ):
                mask = self._and_negative(mask, difference)
            stride = descriptor.strides[axis]
            total = self._sum(total, self._times(position, stride, shape), shape)
        base = descriptor.base
        if isinstance(base, PointerTile):
            origin = self._tile_scalar(base.offset, shape)
            return PointerTile(base.buffer, self._sum(total, origin, shape)), mask
        size = base.itemsize
        scaled = self._times(self.affine_of(total, shape), size, shape)
        address = self._sum(scaled, self._tile_scalar(base.address, shape), shape)
        return AddressTile(address, base.buffers, size), mask

    def _tile_scalar(self, value: TileValue, shape: tuple[int, ...]) -> AffineTile:
        """A scalar in every element of a tile."""
        rank = len(shape)
        if isinstance(value, int):
            return AffineTile(value, None, (0,) * rank, shape)
        if isinstance(value, AffineTile):
            base = value.base
            if base is not None:
                base = base.reshaped(base.tensor.reshape(-1, *(1,) * rank))
            return AffineTile(value.const, base, (0,) * rank, shape)
        assert isinstance(value, torch.Tensor)
        tensor = value.to(torch.int64).reshape(-1, *(1,) * rank)
        return AffineTile(0, Base(tensor), (0,) * rank, shape)

    def _times(self, tile: AffineTile, factor: TileValue, shape: tuple[int, ...]) -> AffineTile:
        if isinstance(factor, int):
            base = None if tile.base is None else Base(tile.base.tensor * factor)
            return AffineTile(
                tile.const * factor, base, tuple(c * factor for c in tile.coefs), shape
            )
        dense = self.materialize(tile) * self.materialize(self._tile_scalar(factor, shape))
        return AffineTile(0, Base(dense), (0,) * len(shape), shape)

    def _and_negative(self, mask: TileValue, difference: AffineTile) -> TileValue:
        """`mask and difference < 0`."""
        low, high = difference.bounds()
        if high < 0 or (isinstance(mask, int) and not mask):
            return mask
        if low >= 0:
            return 0
        axes = [axis for axis, coef in enumerate(difference.coefs) if coef]
        base = difference.base
        piece: TileValue
        if len(axes) == 1 and (base is None or base.is_per_program):
            piece = self.index.half_line(difference, axes[0])
        else:
            piece = self.materialize(difference) < 0
        if isinstance(piece, int) or isinstance(mask, int):
            return (piece if mask else 0) if isinstance(mask, int) else (mask if piece else 0)
        if isinstance(piece, BoxMask) and isinstance(mask, BoxMask):
            return self.masks.intersect_boxes(mask, piece)
        type_ = ir.tile(difference.shape, ir.I1)
        return self.dense(mask, type_) & self.dense(piece, type_)

    def descriptor_load(
        self, op: Operation, descriptor: TileValue, *offsets: TileValue
    ) -> TileValue:
        """tt.descriptor_load."""
        assert isinstance(descriptor, DescriptorTile)
        block = loaded_type(op)
        assert isinstance(block, ir.TensorType)
        pointer, mask = self._descriptor_access(descriptor, block.shape, offsets)
        other = None
        if descriptor.padding == "nan":
            other = self.constant(block, float("nan"))
        return self.load(op, pointer, mask, other)

    def descriptor_store(
        self, op: Operation, descriptor: TileValue, value: TileValue, *offsets: TileValue
    ) -> Sequence[TileValue]:
        """tt.descriptor_store."""
        assert isinstance(descriptor, DescriptorTile)
        block = op.operands[1].type
        assert isinstance(block, ir.TensorType | ir.MemDescType)
        pointer, mask = self._descriptor_access(descriptor, block.shape, offsets)
        if isinstance(mask, int) and not mask:
            return ()
        if isinstance(pointer, AddressTile):
            self._store_addresses(op, pointer, value, mask)
            return ()
        assert isinstance(pointer, PointerTile)
        tile = self.affine_of(pointer.offset, block.shape)
        self._store_active(Access(op, "oob-store", pointer.buffer, tile, mask, None), value)
        return ()
