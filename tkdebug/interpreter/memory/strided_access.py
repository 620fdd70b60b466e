"""Reads and writes through affine offsets as strided views, and through index tensors.

All offsets here were already found legal. Positions in results follow the tile's axes; an axis
along which the offsets do not move has extent 1 in the values that are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, dtype

from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.tiles.program_bases import Base, ProgramPattern, find_sorted_pattern
from tkdebug.interpreter.tiles.values import AffineTile, DeferredTile

if TYPE_CHECKING:
    from tkdebug.interpreter.tiles.forms import TileForms

# An integer type of each size in bytes.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class StridedAccess:
    """Views, gathers and scatters for one evaluator."""

    def __init__(self, forms: TileForms) -> None:
        self._forms = forms

    def read(self, buffer: Buffer, kind: dtype, tile: AffineTile) -> Tensor:
        """The elements at `tile`'s offsets, (P or 1, *shape with 1 where constant)."""
        flat = buffer.flat(kind)
        start = tile.const + buffer.storage_offset
        if tile.base is None:
            return self._view(flat, start, (0,), (1,), tile)
        if tile.base.is_per_program:
            pattern = tile.base.pattern()
            if pattern.regular:
                view = self._view(flat, start + pattern.start, pattern.steps, pattern.sizes, tile)
                if len(pattern.sizes) == 1:
                    return view
                return view.reshape(-1, *view.shape[len(pattern.sizes) :])
        return self._gather_slices(flat, start, tile.base, tile)

    def _view(
        self,
        flat: Tensor,
        start: int,
        steps: Sequence[int],
        sizes: Sequence[int],
        tile: AffineTile,
    ) -> Tensor:
        """A strided view of `flat` over program sizes and the tile's moving axes."""
        extents, strides, flips = list(sizes), list(steps), []
        for coef, extent in zip(tile.coefs, tile.shape, strict=True):
            extents.append(extent if coef else 1)
            strides.append(coef)
        for axis, (extent, stride) in enumerate(zip(extents, strides, strict=True)):
            if stride < 0:
                # as_strided takes no negative strides: start from the other end and flip.
                start += stride * (extent - 1)
                strides[axis] = -stride
                flips.append(axis)
        view = flat.as_strided(extents, strides, start)
        return view.flip(flips) if flips else view

    def _gather_slices(self, flat: Tensor, start: int, base: Base, tile: AffineTile) -> Tensor:
        """Read one strided slice for every entry of an irregular base, by a single index_select."""
        moving = [axis for axis, coef in enumerate(tile.coefs) if coef and tile.shape[axis] > 1]
        sliced = [axis for axis in moving if base.shape[axis + 1] == 1]
        entries = base.tensor
        for axis in moving:
            if axis not in sliced:
                step = tile.coefs[axis]
                entries = (
                    entries + self._forms.positions(axis, tile.shape[axis], len(tile.shape)) * step
                )
        low, high = (int(v) for v in entries.aminmax())
        slice_tile = AffineTile(
            0, None, tuple(tile.coefs[a] for a in sliced), tuple(tile.shape[a] for a in sliced)
        )
        table = self._table(flat, start + low, high - low + 1, slice_tile)
        picked = torch.index_select(table, 0, (entries - low).reshape(-1))
        flips = [place + 1 for place, axis in enumerate(sliced) if tile.coefs[axis] < 0]
        if flips:
            picked = picked.flip(flips)
        return self._unfold(picked, entries, sliced, tile)

    def _table(self, flat: Tensor, start: int, rows: int, tile: AffineTile) -> Tensor:
        """Return a view whose row i is the slice i elements after `start` (rows overlap).

        Axes with a negative coefficient are reversed in it: the caller flips them.
        """
        for coef, extent in zip(tile.coefs, tile.shape, strict=True):
            if coef < 0:
                start += coef * (extent - 1)
        strides = (1, *(abs(coef) for coef in tile.coefs))
        return flat.as_strided((rows, *tile.shape), strides, start)

    def _unfold(
        self, picked: Tensor, entries: Tensor, sliced: list[int], tile: AffineTile
    ) -> Tensor:
        """Put the picked slices' axes back among the base's axes."""
        rank = len(tile.shape)
        picked = picked.reshape(*entries.shape, *picked.shape[1:])
        order = [0]
        for axis in range(rank):
            if axis in sliced:
                order.append(1 + rank + sliced.index(axis))
            else:
                order.append(1 + axis)
        dropped = [1 + axis for axis in sliced]
        picked = picked.permute(*order, *dropped)
        return picked.reshape(picked.shape[: 1 + rank])

    def write(self, buffer: Buffer, kind: dtype, tile: AffineTile, value: Tensor) -> None:
        """Store `value` at `tile`'s offsets; among equal offsets the last program wins."""
        flat = buffer.flat(kind)
        start = tile.const + buffer.storage_offset
        # All positions of an axis that does not move write one element: the last stays.
        for axis, coef in enumerate(tile.coefs):
            still = coef == 0 and (tile.base is None or tile.base.shape[axis + 1] == 1)
            if still and value.shape[axis + 1] > 1:
                value = value.narrow(axis + 1, value.shape[axis + 1] - 1, 1)
        pattern = self._program_pattern(tile)
        same_for_all = tile.base is None or tile.base.shape[0] == 1
        if pattern is not None and same_for_all and value.shape[0] > 1:
            value = value.narrow(0, value.shape[0] - 1, 1)
        if pattern is not None and self._is_injective(pattern, tile):
            if pattern.order is not None and value.shape[0] > 1:
                value = value[pattern.order]
            view = self._view_for_write(flat, start, pattern, tile)
            if len(pattern.sizes) > 1 and value.shape[0] > 1:
                value = value.reshape(*pattern.sizes, *value.shape[1:])
            elif len(pattern.sizes) > 1:
                value = value.unsqueeze(0)
            view.copy_(value)
            return
        offsets = self._forms.materialize(tile.shifted(buffer.storage_offset))
        self.scatter(flat, offsets, value)

    def write_deferred(
        self, buffer: Buffer, kind: dtype, tile: AffineTile, value: DeferredTile
    ) -> bool:
        """Compute `value` straight into the memory at `tile`, if that is one plain view."""
        pattern = self._program_pattern(tile)
        if pattern is None or pattern.order is not None or len(pattern.sizes) > 1:
            return False
        if any(operand.dtype != kind for operand in value.operands):
            return False
        shape = tuple(
            max(extents) for extents in zip(*(v.shape for v in value.operands), strict=True)
        )
        if shape != (*pattern.sizes, *tile.shape) or not self._is_injective(pattern, tile):
            return False
        if any(
            extent > 1 and not coef for coef, extent in zip(tile.coefs, tile.shape, strict=True)
        ):
            return False  # many positions, one element
        flat = buffer.flat(kind)
        start = tile.const + buffer.storage_offset
        value.compute(self._view_for_write(flat, start, pattern, tile))
        return True

    def _view_for_write(
        self, flat: Tensor, start: int, pattern: ProgramPattern, tile: AffineTile
    ) -> Tensor:
        extents = list(pattern.sizes)
        strides = list(pattern.steps)
        for coef, extent in zip(tile.coefs, tile.shape, strict=True):
            extents.append(extent if coef else 1)
            strides.append(coef if extent > 1 else 0)
        return flat.as_strided(extents, strides, start + pattern.start)

    def _program_pattern(self, tile: AffineTile) -> ProgramPattern | None:
        if tile.base is None:
            return ProgramPattern(0, (1,), (0,))
        if not tile.base.is_per_program:
            return None
        pattern = tile.base.pattern()
        if pattern.regular and all(step > 0 for step in pattern.steps):
            return pattern
        sorted_pattern = find_sorted_pattern(tile.base.tensor.reshape(-1))
        return sorted_pattern if sorted_pattern.regular else None

    def _is_injective(self, pattern: ProgramPattern, tile: AffineTile) -> bool:
        """Whether nested strides prove that no two positions share an offset; none negative."""
        moves = [
            (step, size)
            for step, size in zip(pattern.steps, pattern.sizes, strict=True)
            if size > 1
        ]
        moves += [(c, n) for c, n in zip(tile.coefs, tile.shape, strict=True) if c and n > 1]
        reach = 0
        for step, size in sorted(moves):
            if step <= reach:
                return False
            reach += step * (size - 1)
        return True

    def scatter(self, flat: Tensor, offsets: Tensor, value: Tensor) -> None:
        """Store flat[offsets] = value in program order, so that the last of equal offsets stays."""
        shape = tuple(map(max, offsets.shape, value.shape))
        offsets, value = offsets.expand(shape), value.expand(shape)
        self.scatter_flat(flat, offsets.reshape(-1), value.reshape(-1))

    def scatter_flat(self, flat: Tensor, offsets: Tensor, value: Tensor) -> None:
        """Scatter vectors of equal length."""
        # Move bits, which takes every type: torch scatters no 8-bit floats, numpy knows no bf16.
        bits = _BITS[flat.dtype.itemsize]
        flat, value = flat.view(bits), value.view(bits)
        if flat.device.type == "cpu":
            # Ten times as fast as scatter_; numpy too lets the last of equal offsets stay.
            flat.numpy()[offsets.numpy()] = value.numpy()
        else:
            flat.scatter_(0, offsets, value)
