"""Summaries of tiles as watches and prints show them, of many programs at once.

Invariant: bit by bit what `compiler.passes.tile_summaries` makes native kernels compute.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tkdebug.compiler.passes.tile_summaries import EXPONENT_BIAS, FRACTION_BITS, scale_of
from tkdebug.compiler.sites.watches import BINS, FIRST_EXPONENT
from tkdebug.interpreter.numerics import fp8
from tkdebug.watches.records import packed_bytes

_INF, _NAN = float("inf"), float("nan")


def as_numbers(tile: Tensor, element: str, is_unsigned: bool) -> Tensor:
    """Elements as fp64.

    Args:
        tile: of the torch dtype that the interpreter has for the element type.
        element: IR name of the element type.
        is_unsigned: whether integers have no sign.
    """
    if element.startswith("f8"):
        return fp8.convert(tile, element, "f64", {"f64": torch.float64}, False)
    if tile.is_floating_point():
        return tile.to(torch.float64)
    if tile.dtype == torch.bool or not is_unsigned:
        return tile.to(torch.float64)
    if tile.dtype != torch.int64:
        bits = torch.iinfo(tile.dtype).bits
        return (tile.to(torch.int64) & ((1 << bits) - 1)).to(torch.float64)
    # Half of what has the highest bit, rounded once as the lowest bit is kept.
    half = ((tile >> 1) & ((1 << 63) - 1)) | (tile & 1)
    return torch.where(tile < 0, half.to(torch.float64) * 2, tile.to(torch.float64))


def scaled(values: Tensor, exponent: Tensor) -> Tensor:
    """`values` times 2 to the power of `exponent` (int64), in two steps."""
    half = exponent >> 1
    return values * _power(half) * _power(exponent - half)


def _power(exponent: Tensor) -> Tensor:
    return ((exponent + EXPONENT_BIAS) << FRACTION_BITS).view(torch.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Summaries:
    """The summaries of a tile in several programs.

    Attributes:
        elements: of the tile.
        nan: (P,) int64, as `inf` and `zeros`.
        minimum: (P,) fp64, as `maximum` and `mean`; NaN where there is nothing.
        histogram: (P, BINS) int64.
    """

    elements: int
    nan: Tensor
    inf: Tensor
    zeros: Tensor
    minimum: Tensor
    maximum: Tensor
    mean: Tensor
    histogram: Tensor

    @staticmethod
    def of(values: Tensor) -> Summaries:
        """The summaries of (P, elements) fp64."""
        elements = values.shape[1]
        is_nan, magnitude = values.isnan(), values.abs()
        is_finite = magnitude < _INF
        # Bits of NaNs and infinities are looked at no more.
        finite = torch.where(is_finite, magnitude, 0.0)
        exponents = finite.view(torch.int64) >> FRACTION_BITS
        scale = scale_of(exponents.amax(1), elements)
        cut = scaled(torch.where(is_finite, values, 0.0), scale[:, None]).to(torch.int64)
        nan, inf = is_nan.sum(1), (magnitude == _INF).sum(1)
        is_any = nan < elements
        bins = (exponents - (EXPONENT_BIAS + FIRST_EXPONENT)).clamp(0, BINS - 1)
        histogram = torch.zeros(values.shape[0], BINS, dtype=torch.int64, device=values.device)
        histogram.scatter_add_(1, bins, (finite > 0).to(torch.int64))
        return Summaries(
            elements,
            nan,
            inf,
            (values == 0).sum(1),
            torch.where(is_any, torch.where(is_nan, _INF, values).amin(1), _NAN),
            torch.where(is_any, torch.where(is_nan, -_INF, values).amax(1), _NAN),
            mean_of(cut.sum(1), scale, elements - nan - inf),
            histogram,
        )


def mean_of(total: Tensor, scale: Tensor, count: Tensor) -> Tensor:
    """The mean of `count` elements whose scaled sum is `total`."""
    return scaled(total.to(torch.float64), -scale) / count.to(torch.float64)


def bins_of(histogram: Tensor) -> tuple[tuple[int, int], ...]:
    """The bins of (BINS,) that have elements, as records have them."""
    return tuple(
        (place + FIRST_EXPONENT, count) for place, count in enumerate(histogram.tolist()) if count
    )


def packed_tiles(values: Tensor) -> Iterator[bytes]:
    """The tiles of (P, elements) fp64 as records keep them."""
    for row in values.cpu().contiguous():
        yield packed_bytes(row.numpy().tobytes())
