"""Masks as boxes: an interval of positions along each axis, per program where need be."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.interpreter.tiles.forms import TileForms
from tkdebug.interpreter.tiles.values import Bound, Box, BoxMask, TileValue


class MaskAlgebra:
    """Builds, intersects and measures box masks, for one evaluator."""

    def __init__(self, forms: TileForms) -> None:
        self._forms = forms

    def make(
        self, bounds: tuple[tuple[Bound, Bound], ...], shape: tuple[int, ...]
    ) -> BoxMask | int:
        """The mask of `bounds`; 1 when it covers everything, 0 when it is empty everywhere."""
        settled = []
        for (low, high), extent in zip(bounds, shape, strict=True):
            low = self._settle_low(low)
            high = self._settle_high(high, extent)
            if isinstance(low, int) and isinstance(high, int) and low >= high:
                return 0
            settled.append((low, high))
        if all(low == 0 and high == extent for (low, high), extent in _ints(settled, shape)):
            return 1
        return BoxMask(tuple(settled), shape)

    def _settle_low(self, low: Bound) -> Bound:
        if not isinstance(low, int):
            smallest, largest = (int(v) for v in low.aminmax())
            if largest > 0 and smallest != largest:
                return low
            low = largest
        return max(low, 0)

    def _settle_high(self, high: Bound, extent: int) -> Bound:
        if not isinstance(high, int):
            smallest, largest = (int(v) for v in high.aminmax())
            if smallest < extent and smallest != largest:
                return high
            high = smallest
        return min(high, extent)

    def intersect(self, op: Operation, a: TileValue, b: TileValue) -> TileValue:
        """`a and b` for i1 tiles."""
        for this, other in ((a, b), (b, a)):
            if isinstance(this, int):
                return other if this else 0
        if isinstance(a, BoxMask) and isinstance(b, BoxMask):
            return self.intersect_boxes(a, b)
        for this, other in ((a, b), (b, a)):
            if isinstance(this, BoxMask) and isinstance(other, torch.Tensor):
                if other.numel() == other.shape[0]:
                    return self._only_where(this, other.reshape(-1))
        return self._forms.map(op, torch.logical_and, a, b)

    def intersect_boxes(self, a: BoxMask, b: BoxMask) -> BoxMask | int:
        """The positions in both boxes."""
        bounds = tuple(
            (self._larger(low1, low2), self._smaller(high1, high2))
            for (low1, high1), (low2, high2) in zip(a.bounds, b.bounds, strict=True)
        )
        return self.make(bounds, a.shape)

    def _only_where(self, mask: BoxMask, programs: Tensor) -> BoxMask | int:
        (low, high), *rest = mask.bounds
        high = torch.where(programs, high, 0)
        return self.make(((low, high), *rest), mask.shape)

    def _larger(self, a: Bound, b: Bound) -> Bound:
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        if isinstance(a, int):
            a, b = b, a
        assert not isinstance(a, int)
        if isinstance(b, int):
            return a.clamp(min=b)
        return torch.maximum(a, b)

    def _smaller(self, a: Bound, b: Bound) -> Bound:
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        if isinstance(a, int):
            a, b = b, a
        assert not isinstance(a, int)
        if isinstance(b, int):
            return a.clamp(max=b)
        return torch.minimum(a, b)

    def expand_dims(self, mask: BoxMask, axis: int) -> BoxMask:
        """A new axis of extent 1."""
        bounds = (*mask.bounds[:axis], (0, 1), *mask.bounds[axis:])
        return BoxMask(bounds, (*mask.shape[:axis], 1, *mask.shape[axis:]))

    def broadcast(self, mask: BoxMask, shape: tuple[int, ...]) -> BoxMask | int:
        """Axes of extent 1 repeated."""
        bounds: list[tuple[Bound, Bound]] = []
        for (low, high), have, want in zip(mask.bounds, mask.shape, shape, strict=True):
            if have == want:
                bounds.append((low, high))
                continue
            # An axis of extent 1 is in or out as a whole.
            scaled_high = min(high, 1) * want if isinstance(high, int) else high.clamp(0, 1) * want
            scaled_low = min(low, 1) * want if isinstance(low, int) else low.clamp(0, 1) * want
            bounds.append((scaled_low, scaled_high))
        return self.make(tuple(bounds), shape)

    def full_programs(self, mask: BoxMask, programs: int) -> Tensor:
        """Return the programs in which the mask is true everywhere, (P,) bool."""
        full = torch.ones(programs, dtype=torch.bool, device=self._forms.device)
        for (low, high), extent in zip(mask.bounds, mask.shape, strict=True):
            if not isinstance(low, int) or low > 0:
                full &= torch.as_tensor(low <= 0, device=self._forms.device)
            if not isinstance(high, int) or high < extent:
                full &= torch.as_tensor(high >= extent, device=self._forms.device)
        return full

    def select_programs(self, mask: TileValue, index: Any) -> TileValue:
        """The mask of some programs only, 0 if there are none (`index`: a slice or a tensor)."""
        if isinstance(mask, BoxMask):
            bounds = tuple(
                tuple(b if isinstance(b, int) else _take(b, index) for b in pair)
                for pair in mask.bounds
            )
            if any(not isinstance(b, int) and not b.numel() for pair in bounds for b in pair):
                return 0
            return self.make(bounds, mask.shape)  # type: ignore[arg-type]
        if isinstance(mask, torch.Tensor):
            return _take(mask, index)
        return mask


def _take(value: Tensor, index: Any) -> Tensor:
    return value if value.shape[0] == 1 else value[index]


def _ints(
    bounds: list[tuple[Bound, Bound]], shape: tuple[int, ...]
) -> list[tuple[tuple[Any, Any], int]]:
    """Return pairs of bounds and extents; bounds that are tensors are -1, unequal to any extent."""
    plain = [
        (low if isinstance(low, int) else -1, high if isinstance(high, int) else -1)
        for low, high in bounds
    ]
    return list(zip(plain, shape, strict=True))


def is_whole(box: Box, shape: tuple[int, ...]) -> bool:
    """Whether the box covers the tile."""
    return all(pair == (0, extent) for pair, extent in zip(box, shape, strict=True))
