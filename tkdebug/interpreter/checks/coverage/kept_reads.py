"""Loads of a launch, kept until it ends: their offsets as tiles and boxes, no element by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.interpreter.checks.dimension_ranges import (
    Dimensions,
    Ranges,
    counted,
    dimensions,
    ranges_of,
)
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.tiles.values import AffineTile, DescriptorTile, TileValue


@dataclass(frozen=True, slots=True)
class Read:
    """One load of the programs from `first` on, `count` of them.

    Attributes:
        tile: offsets into the buffer; None where `block` is read.
        mask: of the tile, None where it is no box: then it may cover more than is read.
        block: the descriptor, and where its block begins.
        shape: of what is read.
        active: which of the programs take part; None for all.
    """

    buffer: Buffer
    first: int
    count: int
    shape: tuple[int, ...]
    active: Tensor | None
    tile: AffineTile | None = None
    mask: TileValue | None = 1
    block: tuple[DescriptorTile, tuple[Tensor, ...]] | None = None

    @property
    def is_exact(self) -> bool:
        """Whether `ranges` has no more than was read."""
        return self.mask is not None

    def ranges(self, dims: Dimensions) -> Ranges | None:
        """What it reads along each dimension; None where that is not known."""
        if self.tile is not None:
            ranges = ranges_of(dims, self.tile, self.mask, self.count)
            return None if ranges is None else ranges.of(self.active)
        assert self.block is not None
        found = [self._along(stride, size) for stride, size in dims]
        known = [pair for pair in found if pair is not None]
        if len(known) < len(found):
            return None
        lows, highs = tuple(low for low, _ in known), tuple(high for _, high in known)
        return Ranges(lows, highs, torch.arange(self.count)).of(self.active)

    def _along(self, stride: int, size: int) -> tuple[Tensor, Tensor] | None:
        assert self.block is not None
        descriptor, starts = self.block
        if stride not in descriptor.strides or descriptor.base.places != 0:
            return None
        axis = descriptor.strides.index(stride)
        start = starts[axis].expand(self.count)
        return start.clamp(0, size), (start + self.shape[axis]).clamp(0, size)

    @property
    def begins_behind_the_end(self) -> bool:
        """Whether it is of a descriptor, and a program's block begins where that has ended."""
        if self.block is None:
            return False
        descriptor, starts = self.block
        return any(
            isinstance(size, int) and bool((start >= size).any())
            for start, size in zip(starts, descriptor.shape, strict=True)
        )

    def extent_along(self, stride: int) -> int:
        """How many lanes in a row go along the dimension of that stride; 1 where none does."""
        if self.tile is None:
            assert self.block is not None
            strides = self.block[0].strides
            return self.shape[strides.index(stride)] if stride in strides else 1
        lanes = zip(self.tile.coefs, self.shape, strict=True)
        return max((extent for coef, extent in lanes if coef == stride), default=1)


@dataclass(slots=True)
class Reading:
    """What was seen of a launch.

    Attributes:
        grid: of its programs.
        written: storages that it may write.
        numbers: the integers it was given.
        reads: by load.
        compared: both sides of the comparisons of masks.
        unknown: storages of which not all reads are known.
        kept: entries in all.
    """

    grid: tuple[int, int, int]
    written: frozenset[int]
    numbers: frozenset[int]
    reads: dict[Operation, list[Read]] = field(default_factory=dict)
    compared: dict[Operation, list[tuple[TileValue, TileValue]]] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)
    kept: int = 0

    def of_storage(self, key: int) -> list[Read]:
        """All reads of one storage."""
        reads = (read for some in self.reads.values() for read in some)
        return [read for read in reads if read.buffer.storage_key == key]


@dataclass(frozen=True, slots=True)
class Coverage:
    """How often each index along each dimension of a tensor was read.

    Attributes:
        times: by dimension, a number for each index.
    """

    dims: Dimensions
    times: list[Tensor]

    def end(self, place: int) -> int:
        """The index after the last that was read."""
        read = self.times[place].nonzero()
        return int(read[-1, 0]) + 1 if read.numel() else 0

    def elements_of_one_index(self, place: int) -> int:
        """How many elements of the tensor have one index along a dimension."""
        return math.prod(size for other, (_, size) in enumerate(self.dims) if other != place)

    @classmethod
    def of(cls, reads: list[Read]) -> Coverage | None:
        """That of reads of one tensor; None where it is not known, or they are of several."""
        buffer = reads[0].buffer
        if any(not _is_same(read.buffer, buffer) for read in reads):
            return None
        for dims in (dimensions(buffer), [(1, buffer.hull_elems)] if buffer.is_dense else None):
            times = times_read(reads, dims) if dims else None
            if dims and times is not None:
                return cls(dims, times)
        return None


def times_read(reads: list[Read], dims: Dimensions) -> list[Tensor] | None:
    """How often each index along each dimension is read; None where that is not known."""
    times = [torch.zeros(size, dtype=torch.int64) for _, size in dims]
    for read in reads:
        ranges = read.ranges(dims)
        if ranges is None:
            return None
        for place, (_, size) in enumerate(dims):
            times[place] += counted(ranges.lows[place], ranges.highs[place], size)
    return times


def _is_same(a: Buffer, b: Buffer) -> bool:
    places = (a.address, a.dims, a.itemsize), (b.address, b.dims, b.itemsize)
    return places[0] == places[1]
