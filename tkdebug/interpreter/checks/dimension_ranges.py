"""Ranges of indices that an access reaches along each dimension of its tensor.

An offset is taken apart by the tensor's strides, from the largest to the smallest. A row of lanes
that runs over the end of a dimension into the next makes the access a *flat* one: it has no ranges
along dimensions, only along the tensor's elements in order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.tiles.values import AffineTile, BoxMask, TileValue

# Base tensors larger than this, for each program, are those of gathers.
_LARGEST_BASE = 256
# (stride, size) of each, the largest stride first.
Dimensions = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Ranges:
    """The first index and the one after the last along each dimension, largest stride first.

    Each is an int64 vector of the host with one entry for each range; an entry is of one program.

    Attributes:
        programs: the place in the batch of each entry's program.
    """

    lows: tuple[Tensor, ...]
    highs: tuple[Tensor, ...]
    programs: Tensor

    def of(self, active: Tensor | None) -> Ranges:
        """Return the ranges of the active programs; `active` None means all."""
        if active is None:
            return self
        keep = active.cpu()[self.programs]
        lows, highs = (tuple(each[keep] for each in ends) for ends in (self.lows, self.highs))
        return Ranges(lows, highs, self.programs[keep])


def is_small(tile: AffineTile) -> bool:
    """Whether a tile of offsets is worth keeping until the launch ends."""
    base = tile.base
    return base is None or base.tensor.numel() <= _LARGEST_BASE * base.shape[0]


def dimensions(buffer: Buffer) -> Dimensions | None:
    """Return (stride, size) of a tensor's dimensions, or None if they are not nested."""
    reach = 0
    for stride, size in reversed(buffer.dims):
        if stride <= reach:
            return None
        reach += stride * (size - 1)
    return buffer.dims


def ranges_of(
    dims: Dimensions, tile: AffineTile, mask: TileValue | None, count: int
) -> Ranges | None:
    """Return the ranges of a tile of offsets under a mask; None if the access is flat.

    Args:
        dims: (stride, size) of the tensor, largest stride first.
        tile: offsets from its first element.
        mask: a mask of the same shape: 1 or a box; without one everything counts.
        count: the number of programs; values that are the same in all have an entry for each.

    Parts outside of the first dimension are cut off.
    """
    starts, ends, programs, spanned = _entries(tile, mask, count)
    rest = starts
    if rest.numel() == 0:
        empty = torch.zeros(0, dtype=torch.int64)
        return Ranges((empty,) * len(dims), (empty,) * len(dims), programs)
    lanes = [
        (coef, end, axis)
        for axis, (coef, end) in enumerate(zip(tile.coefs, ends, strict=True))
        if coef and axis not in spanned and tile.shape[axis] > 1
    ]
    lows: list[Tensor] = []
    highs: list[Tensor] = []
    for place, (stride, size) in enumerate(dims):
        index = rest.div(stride, rounding_mode="floor")
        rest = rest - index * stride
        low, high = index, index
        for coef, end, _ in [lane for lane in lanes if lane[0] % stride == 0]:
            reach = (coef // stride) * (end - 1)
            low, high = low + reach.clamp(max=0), high + reach.clamp(min=0)
        lanes = [lane for lane in lanes if lane[0] % stride]
        if place and (bool((low < 0).any()) or bool((high >= size).any())):
            return None
        low, high = low.clamp(min=0), high.clamp(max=size - 1)
        lows.append(low)
        highs.append(high + 1)
    return None if lanes or bool(rest.any()) else Ranges(tuple(lows), tuple(highs), programs)


def _entries(
    tile: AffineTile, mask: TileValue | None, count: int
) -> tuple[Tensor, list[Tensor], Tensor, set[int]]:
    """Return entries: offsets of first lanes, numbers of lanes by axis, programs, spanned axes.

    An axis that the tile's base spans has an entry for each lane. Lanes that a box leaves out at
    the beginning are skipped; entries without lanes are left out.
    """
    rank = len(tile.shape)
    no_base = torch.zeros((1,) * (rank + 1), dtype=torch.int64)
    tensor = no_base if tile.base is None else tile.base.tensor.cpu()
    spanned = {axis for axis in range(rank) if tensor.shape[axis + 1] > 1}
    for axis in spanned:
        steps = torch.arange(tile.shape[axis]) * tile.coefs[axis]
        tensor = tensor + steps.reshape(-1, *(1,) * (rank - axis - 1))
    bounds = mask.bounds if isinstance(mask, BoxMask) else tuple((0, n) for n in tile.shape)
    shape = (count, *tensor.shape[1:])
    start, keep = tensor.expand(shape) + tile.const, torch.ones(shape, dtype=torch.bool)
    ends: list[Tensor] = []
    for axis, pair in enumerate(bounds):
        low, high = (_column(bound, rank).clamp(0, tile.shape[axis]) for bound in pair)
        if axis in spanned:
            place = torch.arange(tile.shape[axis]).reshape(-1, *(1,) * (rank - axis - 1))
            keep = keep & (place >= low) & (place < high)
        else:
            keep = keep & (low < high)
            start = start + low * tile.coefs[axis]
        ends.append((high - low).expand(shape))
    programs = torch.arange(count).reshape(-1, *(1,) * rank).expand(shape)[keep]
    return start[keep], [end[keep] for end in ends], programs, spanned


def _column(bound: int | Tensor, rank: int) -> Tensor:
    return torch.as_tensor(bound).cpu().reshape(-1, *(1,) * rank)


def counted(lows: Tensor, highs: Tensor, size: int) -> Tensor:
    """Count the ranges that hold each index below `size`."""
    steps = torch.zeros(size + 1, dtype=torch.int64)
    ones = torch.ones_like(lows)
    steps.index_add_(0, lows.clamp(0, size), ones)
    steps.index_add_(0, highs.clamp(0, size), -ones)
    return steps.cumsum(0)[:size]
