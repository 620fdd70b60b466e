"""Gathers, histograms and flips of the whole batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.tile_ops.shapes import through_tensor
from tkdebug.interpreter.tiles.values import TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator


def gather(run: Evaluator, view: tt.Gather, source: TileValue, index: TileValue) -> TileValue:
    """tt.gather; an index outside the axis is a fault and reads the nearest element."""
    axis = view.axis
    places = run.full(index, view.indices.type).to(torch.int64)
    extent = ir.shape_of(view.source.type)[axis]
    bad = (places < 0) | (places >= extent)
    if bool(bad.any()):
        _report_index(run, view.op, bad, places, axis, extent)
        places = places.clamp(0, extent - 1)

    def gathered(tile: Tensor) -> Tensor:
        count = max(tile.shape[0], places.shape[0])
        tile = tile.expand(count, *tile.shape[1:])
        return tile.gather(axis + 1, places.expand(count, *places.shape[1:]))

    return through_tensor(run, view.source.type, source, gathered)


def _report_index(
    run: Evaluator, op: Operation, bad: Tensor, places: Tensor, axis: int, extent: int
) -> None:
    whole = bad.expand(run.programs, *bad.shape[1:])
    if run.active is not None:
        whole = whole & run.active.reshape(-1, *(1,) * (whole.dim() - 1))
    if not bool(whole.any()):
        return
    offender = run.offender(whole, places, None)
    run.faults.bad_index(op, offender, axis, extent, int(whole.sum()))


def histogram(
    run: Evaluator, view: tt.Histogram, value: TileValue, mask: TileValue = 1
) -> TileValue:
    """tt.histogram."""
    bins = view.bins
    tile = run.full(value, view.source.type).to(torch.int64)
    bits = ir.element_of(view.source.type).bits
    if view.unsigned and bits < 64:
        tile = tile & ((1 << bits) - 1)
    counted = (tile >= 0) & (tile < bins)
    if view.mask is not None:
        counted = counted & run.dense(mask, view.mask.type)
    count = counted.shape[0]
    # Each program's bins, and one more for what is not counted.
    places = torch.where(counted, tile, bins)
    out = torch.zeros((count, bins + 1), dtype=torch.int32, device=run.device)
    ones = torch.ones(places.shape, dtype=torch.int32, device=run.device)
    return out.scatter_add_(1, places, ones)[:, :bins]


def flip(run: Evaluator, view: tt.Flip, value: TileValue) -> TileValue:
    """tt.flip."""
    axis = view.axis

    def flipped(tile: Tensor) -> Tensor:
        return tile.flip(axis + 1)

    return through_tensor(run, view.source.type, value, flipped)
