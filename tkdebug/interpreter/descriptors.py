"""Gathers, scatters and reductions through tensor descriptors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.atomics import AtomicOps
from tkdebug.interpreter.checked_access import Access
from tkdebug.interpreter.descriptor_blocks import DescriptorBlockOps
from tkdebug.interpreter.values import (
    AddressTile,
    AffineTile,
    Base,
    DescriptorTile,
    PointerTile,
    TileValue,
)


class DescriptorOps(DescriptorBlockOps, AtomicOps):
    """tt.descriptor_gather, tt.descriptor_scatter and tt.descriptor_reduce."""

    def descriptor_gather(
        self, op: Operation, descriptor: TileValue, rows: TileValue, column: TileValue
    ) -> TileValue:
        """tt.descriptor_gather."""
        assert isinstance(descriptor, DescriptorTile)
        shape = ir.shape_of(op.result.type)
        pointer, mask = self._row_access(descriptor, shape, rows, op.operands[1].type, column)
        other = None
        if descriptor.padding == "nan":
            other = self.constant(op.result.type, float("nan"))
        return self.load(op, pointer, mask, other)

    def descriptor_scatter(
        self,
        op: Operation,
        descriptor: TileValue,
        value: TileValue,
        rows: TileValue,
        column: TileValue,
    ) -> Sequence[TileValue]:
        """tt.descriptor_scatter."""
        assert isinstance(descriptor, DescriptorTile)
        shape = ir.shape_of(op.operands[1].type)
        pointer, mask = self._row_access(descriptor, shape, rows, op.operands[2].type, column)
        if isinstance(pointer, AddressTile):
            self._store_addresses(op, pointer, value, mask)
            return ()
        assert isinstance(pointer, PointerTile)
        tile = self.affine_of(pointer.offset, shape)
        self._store_active(Access(op, "oob-store", pointer.buffer, tile, mask, None), value)
        return ()

    def _row_access(
        self,
        descriptor: DescriptorTile,
        shape: tuple[int, ...],
        rows: TileValue,
        rows_type: ir.Type,
        column: TileValue,
    ) -> tuple[TileValue, Tensor]:
        """Pointers and mask of the elements of some rows, from a column on."""
        row = self.full(rows, rows_type).to(torch.int64).unsqueeze(2)
        start = self.materialize(self._tile_scalar(column, shape))
        place = start + self.positions(1, shape[1], 2)
        extents = [self.materialize(self._tile_scalar(e, shape)) for e in descriptor.shape]
        mask = (row >= 0) & (row < extents[0]) & (place >= 0) & (place < extents[1])
        strides = [self.materialize(self._tile_scalar(s, shape)) for s in descriptor.strides]
        offset = row * strides[0] + place * strides[1]
        # What the mask excludes must not disturb the proof that the rest is legal.
        offset = torch.where(mask, offset, 0)
        base = descriptor.base
        if isinstance(base, PointerTile):
            origin = self.materialize(self._tile_scalar(base.offset, shape))
            return PointerTile(base.buffer, _index_tile(offset + origin, shape)), mask
        origin = self.materialize(self._tile_scalar(base.address, shape))
        address = _index_tile(offset * base.itemsize + origin, shape)
        return AddressTile(address, base.buffers, base.itemsize), mask

    def descriptor_reduce(
        self, op: Operation, descriptor: TileValue, value: TileValue, *offsets: TileValue
    ) -> Sequence[TileValue]:
        """tt.descriptor_reduce: a combination in memory whose old values nobody sees."""
        assert isinstance(descriptor, DescriptorTile)
        block = op.operands[1].type
        assert isinstance(block, ir.TensorType)
        pointer, mask = self._descriptor_access(descriptor, block.shape, offsets)
        kind = str(op.attributes["kind"])
        stored = self.dense(value, block)
        apply = self._plain_add if kind in ("add", "fadd") else self._in_rounds(kind)
        self._atomic(op, block, pointer, mask, (stored,), apply)
        return ()


def _index_tile(offsets: Tensor, shape: tuple[int, ...]) -> AffineTile:
    return AffineTile(0, Base(offsets), (0,) * len(shape), shape)
