"""Gathers, histograms and flips of the whole batch."""

from __future__ import annotations

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.shapes import ShapeOps
from tkdebug.interpreter.values import TileValue


class IndexingOps(ShapeOps):
    """tt.gather, tt.histogram and tt.flip."""

    def gather(self, op: Operation, source: TileValue, index: TileValue) -> TileValue:
        """tt.gather; an index outside the axis is a fault and reads the nearest element."""
        axis = op.attributes["axis"]
        assert isinstance(axis, int)
        places = self.full(index, op.operands[1].type).to(torch.int64)
        extent = ir.shape_of(op.operands[0].type)[axis]
        bad = (places < 0) | (places >= extent)
        if bool(bad.any()):
            self._report_index(op, bad, places, axis, extent)
            places = places.clamp(0, extent - 1)

        def gathered(tile: Tensor) -> Tensor:
            count = max(tile.shape[0], places.shape[0])
            tile = tile.expand(count, *tile.shape[1:])
            return tile.gather(axis + 1, places.expand(count, *places.shape[1:]))

        return self._through_tensor(op, source, gathered)

    def _report_index(
        self, op: Operation, bad: Tensor, places: Tensor, axis: int, extent: int
    ) -> None:
        whole = bad.expand(self.programs, *bad.shape[1:])
        if self.active is not None:
            whole = whole & self.active.reshape(-1, *(1,) * (whole.dim() - 1))
        if not bool(whole.any()):
            return
        offender = self.offender(whole, places, None)
        self.faults.bad_index(op, offender, axis, extent, int(whole.sum()))

    def histogram(self, op: Operation, value: TileValue, mask: TileValue = 1) -> TileValue:
        """tt.histogram."""
        bins = op.attributes["bins"]
        assert isinstance(bins, int)
        tile = self.full(value, op.operands[0].type).to(torch.int64)
        bits = ir.element_of(op.operands[0].type).bits
        if op.attributes.get("unsigned") and bits < 64:
            tile = tile & ((1 << bits) - 1)
        counted = (tile >= 0) & (tile < bins)
        if len(op.operands) > 1:
            counted = counted & self.dense(mask, op.operands[1].type)
        count = counted.shape[0]
        # Each program's bins, and one more for what is not counted.
        places = torch.where(counted, tile, bins)
        out = torch.zeros((count, bins + 1), dtype=torch.int32, device=self.device)
        ones = torch.ones(places.shape, dtype=torch.int32, device=self.device)
        return out.scatter_add_(1, places, ones)[:, :bins]

    def flip(self, op: Operation, value: TileValue) -> TileValue:
        """tt.flip."""
        axis = op.attributes["axis"]
        assert isinstance(axis, int)

        def flipped(tile: Tensor) -> Tensor:
            return tile.flip(axis + 1)

        return self._through_tensor(op, value, flipped)
