"""Records of watched values, and summaries of tiles as watches and prints show them.

Invariant: summaries are bit by bit what `compiler.passes.tile_summaries` makes native kernels
compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tkdebug.compiler.passes.tile_summaries import EXPONENT_BIAS, FRACTION_BITS, scale_of
from tkdebug.compiler.sites.checks import CheckPlan
from tkdebug.compiler.sites.watches import (
    BINS,
    FIRST_EXPONENT,
    HEADER_WORDS,
    SUMMARY_WORDS,
    WORD_BYTES,
    Space,
    WatchSite,
    Word,
    is_logged,
    spaces,
)
from tkdebug.interpreter.numerics import fp8
from tkdebug.interpreter.tiles.forms import ELEMENT_DTYPES
from tkdebug.watches.records import WatchCount, WatchedValue, packed_bytes

_INF, _NAN = float("inf"), float("nan")


def as_numbers(tile: Tensor, element: str, is_unsigned: bool) -> Tensor:
    """Elements as fp64.

    Args:
        tile: a tile of the torch dtype that the interpreter has for the element type.
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
        elements: the number of the tile's elements.
        nan: (P,) int64, as `inf` and `zeros`.
        minimum: (P,) fp64, as `maximum` and `mean`; NaN if there is nothing.
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
    """Return the non-empty bins of a (BINS,) histogram, as records have them."""
    return tuple(
        (place + FIRST_EXPONENT, count) for place, count in enumerate(histogram.tolist()) if count
    )


def packed_tiles(values: Tensor) -> Iterator[bytes]:
    """The tiles of (P, elements) fp64 as records keep them."""
    for row in values.cpu().contiguous():
        yield packed_bytes(row.numpy().tobytes())


@dataclass(frozen=True, slots=True)
class WatchedLaunch:
    """A launch that is watched.

    Attributes:
        kernel: the kernel's name.
        launch_id: its number in the process.
        grid: programs along x, y, z.
    """

    kernel: str
    launch_id: int
    grid: tuple[int, int, int]

    def program_at(self, linear: int) -> tuple[int, int, int]:
        """(x, y, z) of a program."""
        x, y, _ = self.grid
        return linear % x, linear // x % y, linear // (x * y)


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """Values that a launch recorded at a site for a plugin.

    Attributes:
        programs: (N,) int64, numbers of programs.
        visits: (N,) the number of earlier visits of each program.
        values: (N, elements) fp64.
        seen: the number of values, with those that did not fit.
    """

    site: WatchSite
    programs: Tensor
    visits: Tensor
    values: Tensor
    seen: int


@dataclass(frozen=True, slots=True)
class Seen:
    """The watched values of a launch.

    Attributes:
        values: the values by program and time.
        counts: by watch, the number of values, and how many of them are here.
        captured: values that plugins wanted.
    """

    values: tuple[WatchedValue, ...]
    counts: tuple[WatchCount, ...]
    captured: tuple[Captured, ...] = ()


def seen_natively(
    plan: CheckPlan,
    launch: WatchedLaunch,
    counters: Sequence[int],
    records: Callable[[int, int], bytes],
) -> Seen:
    """Read the watched values of a native launch.

    Args:
        plan: the plan of its kernel.
        launch: the launch.
        counters: the counters of each site.
        records: gives bytes of the records, from a first one on so many.
    """
    values: list[list[WatchedValue]] = []
    captured: list[Captured] = []
    for site, space in zip(plan.watches, spaces(plan.watches, plan.watch_bytes), strict=True):
        count = min(counters[site.number], space.capacity)
        values.append([])
        if not count or is_logged(site):
            continue
        rows = _rows(site, space, count, records)
        if site.plugin:
            programs, visits = rows[:, Word.PROGRAM], rows[:, Word.ITERATION]
            elements = _elements(site, rows[:, HEADER_WORDS:].contiguous())
            captured.append(Captured(site, programs, visits, elements, counters[site.number]))
        else:
            values[-1] += _recorded(launch, site, rows)
    return in_order(launch, plan.watches, values, counters, captured)


def in_order(
    launch: WatchedLaunch,
    sites: Sequence[WatchSite],
    values: Sequence[Sequence[WatchedValue]],
    seen: Sequence[int],
    captured: Sequence[Captured],
) -> Seen:
    """Return the watched values of a launch in the order in which they were seen."""
    found = sorted((v for each in values for v in each), key=lambda value: value.order)
    counts = (
        WatchCount(site.watch, launch.kernel, launch.launch_id, count, len(kept))
        for site, kept, count in zip(sites, values, seen, strict=True)
        if not site.plugin
    )
    return Seen(tuple(found), tuple(counts), tuple(captured))


def values_of(
    launch: WatchedLaunch,
    site: WatchSite,
    programs: Tensor,
    visits: Tensor,
    summaries: Summaries,
    values: Tensor | None,
) -> Iterator[WatchedValue]:
    """A record for each program, from (P,) and (P, elements)."""
    tiles = packed_tiles(values) if site.is_whole and values is not None else iter(())
    counts = torch.stack((programs, visits, summaries.nan, summaries.inf, summaries.zeros), 1)
    # No zero is negative: which one is found first depends on the order.
    numbers = torch.stack((summaries.minimum, summaries.maximum, summaries.mean), 1) + 0.0
    for (program, visit, nan, inf, zeros), (minimum, maximum, mean), histogram in zip(
        counts.tolist(), numbers.tolist(), summaries.histogram, strict=True
    ):
        yield WatchedValue(
            site.watch,
            launch.kernel,
            site.name,
            site.type,
            site.frames,
            launch.launch_id,
            launch.program_at(program),
            visit,
            site.shape,
            nan,
            inf,
            zeros,
            minimum,
            maximum,
            mean,
            bins_of(histogram),
            next(tiles, b""),
        )


def _rows(
    site: WatchSite, space: Space, count: int, records: Callable[[int, int], bytes]
) -> Tensor:
    """Return the words of the first `count` records of a site, int64."""
    size = count * site.record_words * WORD_BYTES
    data = bytearray(records(space.first_word * WORD_BYTES, size))
    return torch.frombuffer(data, dtype=torch.int64).reshape(count, site.record_words)


def _recorded(launch: WatchedLaunch, site: WatchSite, rows: Tensor) -> Iterator[WatchedValue]:
    """The values of a site's records."""
    programs, visits = rows[:, Word.PROGRAM], rows[:, Word.ITERATION]
    if site.is_whole:
        values = _elements(site, rows[:, HEADER_WORDS:].contiguous())
        summaries = Summaries.of(values)
    else:
        values, summaries = None, _summaries(site, rows)
    yield from values_of(launch, site, programs, visits, summaries, values)


def _elements(site: WatchSite, words: Tensor) -> Tensor:
    """The elements of whole tiles as fp64."""
    size = site.elements * site.element_bytes
    assert words.shape[1] * WORD_BYTES >= size
    data = words.view(torch.uint8)[:, :size].contiguous()
    dtype = torch.uint8 if site.element == "i1" else ELEMENT_DTYPES[site.element]
    return as_numbers(data.view(dtype), site.element, site.is_unsigned)


def _summaries(site: WatchSite, rows: Tensor) -> Summaries:
    nan, inf = rows[:, Word.NAN], rows[:, Word.INF]
    is_any = nan < site.elements
    least, most = (
        torch.where(is_any, rows[:, word].contiguous().view(torch.float64), float("nan"))
        for word in (Word.MINIMUM, Word.MAXIMUM)
    )
    mean = mean_of(rows[:, Word.SUM], rows[:, Word.SCALE], site.elements - nan - inf)
    histogram = rows[:, SUMMARY_WORDS : SUMMARY_WORDS + BINS]
    zeros = rows[:, Word.ZEROS]
    return Summaries(site.elements, nan, inf, zeros, least, most, mean, histogram)
