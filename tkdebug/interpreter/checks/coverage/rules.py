"""Rules that find inputs that a launch left unread, or read twice.

A launch's loads are kept until it ends: their offsets as tiles and boxes, not single elements. Each
rule wants two independent witnesses: the elements that were read, and something in the kernel that
says how many it means, such as a mask's bound or the number of elements as an argument. A gap is
only reported where both agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.interpreter.checks.coverage.load_facts import Limit, LoadFacts, Walk
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
        tile: offsets into the buffer; None if `block` is read.
        mask: the mask of the tile, None if it is no box: then it may cover more than is read.
        block: the descriptor, and where its block begins.
        shape: the shape of what is read.
        active: the programs that take part; None for all.
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
        """Whether `ranges` has exactly the elements that were read."""
        return self.mask is not None

    def ranges(self, dims: Dimensions) -> Ranges | None:
        """Return the ranges that it reads along each dimension, or None if they are not known."""
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
        start = starts[axis].cpu().expand(self.count)
        return start.clamp(0, size), (start + self.shape[axis]).clamp(0, size)

    @property
    def begins_behind_the_end(self) -> bool:
        """Whether a program's block begins after the end of its descriptor."""
        if self.block is None:
            return False
        descriptor, starts = self.block
        return any(
            isinstance(size, int) and bool((start >= size).any())
            for start, size in zip(starts, descriptor.shape, strict=True)
        )

    def extent_along(self, stride: int) -> int:
        """Return the number of lanes along the dimension of a stride; 1 if there are none."""
        if self.tile is None:
            assert self.block is not None
            strides = self.block[0].strides
            return self.shape[strides.index(stride)] if stride in strides else 1
        lanes = zip(self.tile.coefs, self.shape, strict=True)
        return max((extent for coef, extent in lanes if coef == stride), default=1)


@dataclass(slots=True)
class Reading:
    """The reads of a launch, and the comparisons of its masks.

    Attributes:
        grid: the grid of its programs.
        written: storages that it may write.
        numbers: the launch's integer arguments.
        reads: the reads, by load.
        compared: both sides of the comparisons of masks.
        unknown: storages some of whose reads are not known.
        kept: the number of all entries.
    """

    grid: tuple[int, int, int]
    written: frozenset[int]
    numbers: frozenset[int]
    reads: dict[Operation, list[Read]] = field(default_factory=dict)
    compared: dict[Operation, list[tuple[TileValue, TileValue]]] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)
    kept: int = 0

    def of_storage(self, key: int) -> list[Read]:
        """Return all reads of one storage."""
        reads = (read for some in self.reads.values() for read in some)
        return [read for read in reads if read.buffer.storage_key == key]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Counts of the reads of each index along each dimension of a tensor.

    Attributes:
        times: by dimension, a number for each index.
    """

    dims: Dimensions
    times: list[Tensor]

    def end(self, place: int) -> int:
        """Return the index after the last one that was read."""
        read = self.times[place].nonzero()
        return int(read[-1, 0]) + 1 if read.numel() else 0

    def elements_of_one_index(self, place: int) -> int:
        """Return the number of the tensor's elements with one index along a dimension."""
        return math.prod(size for other, (_, size) in enumerate(self.dims) if other != place)

    @classmethod
    def of(cls, reads: list[Read]) -> Coverage | None:
        """Return the coverage of one tensor's reads, or None if unknown or of several tensors."""
        buffer = reads[0].buffer
        if any(not _is_same(read.buffer, buffer) for read in reads):
            return None
        for dims in (dimensions(buffer), [(1, buffer.hull_elems)] if buffer.is_dense else None):
            times = times_read(reads, dims) if dims else None
            if dims and times is not None:
                return cls(dims, times)
        return None


def times_read(reads: list[Read], dims: Dimensions) -> list[Tensor] | None:
    """Count the reads of each index along each dimension; None if not known, or too many."""
    if any(size > _LARGEST_DIMENSION for _, size in dims):
        return None
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


Rule = Literal["tail", "mask", "part", "overlap", "block", "repeated"]
# Smaller tiles are windows (of a pooling, of a patch) as often as blocks.
_SMALLEST_BLOCK = 8
# Smaller dimensions have parts of their own, and a part of one is no less than one of so many.
_SMALLEST_DIMENSION, _LEAST_SHARE = 4, 4
# Indices along a dimension up to which each one's reads are counted: numbers of 8 bytes.
_LARGEST_DIMENSION = 1 << 25
# Parts times indices up to which a split is looked at.
_LARGEST_SPLIT = 1 << 24


@dataclass(frozen=True, slots=True)
class Gap:
    """Indices along one dimension of a tensor that were not read, or were read twice.

    Attributes:
        load: the op that should have read them.
        rule: the rule that found it; "overlap" for indices that were read twice.
        dimension: the dimension of the tensor, None if its elements are read in order.
        first: the first such index.
        count: the number of such indices, of `size`.
        behind: the number of elements with one index.
        stride: the stride of the dimension.
        walk: for rule "tail", what moves along the dimension: "loop", "grid" or "tile".
    """

    load: Operation
    buffer: Buffer
    rule: Rule
    dimension: int | None
    first: int
    count: int
    size: int
    behind: int
    stride: int
    walk: Walk


class Gaps:
    """The rules, for one launch that has ended."""

    def __init__(self, reading: Reading, loads: Mapping[Operation, LoadFacts]) -> None:
        self._reading = reading
        self._loads = loads
        self._known: dict[int, Coverage | None] = {}

    def find(self) -> Iterator[Gap]:
        """Yield at most one gap of each tensor."""
        known = set(self._reading.unknown)
        for op, reads in self._reading.reads.items():
            keys = {read.buffer.storage_key for read in reads}
            if len(keys) > 1 or not keys.isdisjoint(known):
                continue
            found = self._of_load(self._loads[op], reads)
            if found is not None:
                known |= keys
                yield found

    def _of_load(self, facts: LoadFacts, reads: list[Read]) -> Gap | None:
        found = None
        if facts.is_plain and not facts.starts_anywhere:
            found = (
                self._below_a_bound(facts, reads)
                or self._tail_of_loop(facts, reads)
                or self._off_by_one(facts, reads)
            )
        elif facts.is_alike and not facts.starts_anywhere:
            found = self._tail_of_loop(facts, reads)
        found = found or self._split(facts, reads) or self._beside_blocks(facts, reads)
        return found or self._repeated(facts, reads)

    # A bound that no program reaches

    def _below_a_bound(self, facts: LoadFacts, reads: list[Read]) -> Gap | None:
        """Find a gap between the last index of all programs and the bound of the mask."""
        for limit in facts.limits:
            missed = 0 if limit.starts_anywhere else self._missed(limit)
            found = self._tail(facts, reads, missed, limit.walk) if missed else None
            if found is not None:
                return found
        return None

    def _missed(self, limit: Limit) -> int:
        """Return the distance from the highest index of all programs to the mask's bound, less 1.

        It is 0 if some program reaches the bound, or if that is not known.
        """
        closest: int | None = None
        # The last iteration of a loop is the likeliest to reach it.
        for sides in reversed(self._reading.compared.get(limit.op, [])):
            difference = _difference(sides[limit.index], sides[1 - limit.index])
            if difference is None or difference.high + limit.shift >= -1:
                return 0
            highest = difference.high + limit.shift
            closest = highest if closest is None else max(closest, highest)
        return 0 if closest is None else -1 - closest

    def _tail(self, facts: LoadFacts, reads: list[Read], missed: int, walk: Walk) -> Gap | None:
        """Return the gap at the end of a dimension that is read in blocks, `missed` indices long.

        Return None if no dimension fits.
        """
        coverage = self._coverage(reads[0].buffer)
        if coverage is None:
            return None
        for place, (stride, size) in enumerate(coverage.dims):
            block = reads[0].extent_along(stride)
            if size - coverage.end(place) != missed or missed > block or block < _SMALLEST_BLOCK:
                continue
            if _is_even(reads, coverage.dims, place, size - missed):
                unread = coverage.times[place] == 0
                return _gap(facts.op, reads[0].buffer, coverage, place, unread, "tail", walk)
        return None

    # A loop whose blocks do not divide what it goes along

    def _tail_of_loop(self, facts: LoadFacts, reads: list[Read]) -> Gap | None:
        if not facts.adds_up_in_loop or len(reads) < 2:
            return None
        buffer = reads[0].buffer
        for place, (stride, size) in enumerate(buffer.dims):
            block = reads[0].extent_along(stride)
            if block < _SMALLEST_BLOCK or not size % block or size not in self._reading.numbers:
                continue
            if _reaches_end(reads[-1], place):
                continue  # as most do, in the last round: no need to look at all of them
            coverage = self._coverage(buffer)
            if coverage is None or (stride, size) not in coverage.dims:
                continue
            place = coverage.dims.index((stride, size))
            whole = size - size % block
            if coverage.end(place) == whole and _moves(reads, coverage.dims, place):
                if _is_even(reads, coverage.dims, place, whole):
                    unread = coverage.times[place] == 0
                    return _gap(facts.op, buffer, coverage, place, unread, "tail", "loop")
        return None

    # A mask that ends one too early

    def _off_by_one(self, facts: LoadFacts, reads: list[Read]) -> Gap | None:
        short_by = max((limit.short_by for limit in facts.limits), default=0)
        coverage = self._coverage(reads[0].buffer) if short_by and facts.is_reduced else None
        for place, (stride, size) in enumerate(coverage.dims if coverage is not None else ()):
            assert coverage is not None
            whole = size - short_by
            if size not in self._reading.numbers or coverage.end(place) != whole:
                continue
            if reads[0].extent_along(stride) > 1 and _is_even(reads, coverage.dims, place, whole):
                unread = coverage.times[place] == 0
                return _gap(facts.op, reads[0].buffer, coverage, place, unread, "mask")
        return None

    # Programs that add up parts of one dimension

    def _split(self, facts: LoadFacts, reads: list[Read]) -> Gap | None:
        axes = [axis for axis in facts.adds_to if self._reading.grid[axis] > 1]
        if not axes or not all(read.is_exact for read in reads):
            return None
        coverage = self._coverage(reads[0].buffer)
        if coverage is None:
            return None
        places = ((axis, place) for axis in axes for place in range(len(coverage.dims)))
        found = (self._split_along(facts, reads, coverage, *at) for at in places)
        return next((gap for gap in found if gap is not None), None)

    def _split_along(
        self, facts: LoadFacts, reads: list[Read], coverage: Coverage, axis: int, place: int
    ) -> Gap | None:
        each = self._by_part(reads, axis, coverage.dims, place)
        if each is None or bool((each > 1).any()) or bool((each == each[0]).all()):
            return None
        times, buffer, size = each.sum(0), reads[0].buffer, coverage.dims[place][1]
        twice, once = times == 2, times == 1
        if int(times.max()) == 2 and int(once.sum()) > int(twice.sum()):
            return _gap(facts.op, buffer, coverage, place, twice, "overlap")
        unread = (times == 0) & (coverage.times[place] == 0)
        part = int(each.sum(1).max())
        is_meant = size in self._reading.numbers and not facts.starts_anywhere
        if is_meant and int(times.max()) == 1 and 0 < int(unread.sum()) <= part:
            return _gap(facts.op, buffer, coverage, place, unread, "part")
        return None

    def _by_part(self, reads: list[Read], axis: int, dims: Dimensions, place: int) -> Tensor | None:
        """Count the reads of each index by each program of one row along a grid axis."""
        x, y, _ = self._reading.grid
        parts, size = self._reading.grid[axis], dims[place][1]
        if parts * size > _LARGEST_SPLIT:
            return None
        below = (1, x, x * y)[axis]
        out = torch.zeros(parts, size, dtype=torch.int64)
        for read in reads:
            ranges = read.ranges(dims)
            if ranges is None:
                return None
            programs = ranges.programs + read.first
            # The first program along the other axes stands for all of them.
            mine = (programs % below == 0) & (programs // (below * parts) == 0)
            entries = (programs // below, ranges.lows[place], ranges.highs[place])
            for part, low, high in zip(*(each[mine].tolist() for each in entries), strict=True):
                out[part % parts, low:high] += 1
        return out

    # Blocks that lie outside of the tensor while others of it are not read

    def _beside_blocks(self, facts: LoadFacts, reads: list[Read]) -> Gap | None:
        if not facts.is_block or facts.starts_anywhere or not self._goes_beyond(facts, reads):
            return None
        coverage = self._coverage(reads[0].buffer)
        bounds = self._bounds(facts, reads)
        for place, (stride, size) in enumerate(coverage.dims if coverage is not None else ()):
            assert coverage is not None
            block = reads[0].extent_along(stride)
            unread = coverage.times[place] == 0
            # The block pointer's tensor may be a part of the real one.
            if size not in bounds:
                continue
            if block > 1 and int(unread.sum()) >= block:
                return _gap(facts.op, reads[0].buffer, coverage, place, unread, "block")
        return None

    def _goes_beyond(self, facts: LoadFacts, reads: list[Read]) -> bool:
        """Whether a tile is certainly past its mask's bound, or a block past its descriptor."""
        for limit in facts.limits:
            for sides in self._reading.compared.get(limit.op, []):
                difference = _difference(sides[limit.index], sides[1 - limit.index])
                if difference is not None and difference.low_of_last + limit.shift >= 0:
                    return True
        return any(read.begins_behind_the_end for read in reads)

    # Reads as many as the tensor has elements, of a part of them

    def _repeated(self, facts: LoadFacts, reads: list[Read]) -> Gap | None:
        """Find a dimension of which much is unread, though there are enough reads to cover it.

        Halves, caches and windows are left out on purpose, with fewer reads, or because the kernel
        was given a number that says how much is meant.
        """
        if not facts.is_plain or facts.starts_anywhere or not all(read.is_exact for read in reads):
            return None
        if all(_reaches_end(reads[-1], place) for place in range(len(reads[0].buffer.dims))):
            return None  # as nearly all do: no need to look at the others
        coverage = self._coverage(reads[0].buffer)
        if coverage is None or len(self._reading.of_storage(reads[0].buffer.storage_key)) > len(
            reads
        ):
            return None
        for place, (_, size) in enumerate(coverage.dims):
            times = coverage.times[place]
            unread, total = times == 0, int(times.sum())
            is_much = _LEAST_SHARE * int(unread.sum()) >= size and size >= _SMALLEST_DIMENSION
            if not is_much or not total or total % size:
                continue
            if _longest_run(unread) < max(2, size // 8) or not _goes_along(reads, coverage, place):
                continue
            if self._is_meant_whole(facts, reads, coverage, place):
                return _gap(facts.op, reads[0].buffer, coverage, place, unread, "repeated")
        return None

    def _is_meant_whole(
        self, facts: LoadFacts, reads: list[Read], coverage: Coverage, place: int
    ) -> bool:
        """Whether the mask, the arguments or uneven reads show that all of a dimension is meant."""
        stride, size = coverage.dims[place]
        limits = (limit for limit in facts.limits if not limit.starts_anywhere)
        if any(self._missed(limit) for limit in limits) and size in self._bounds(facts, reads):
            return True
        block, end = reads[0].extent_along(stride), coverage.end(place)
        numbers = {number for number in self._reading.numbers if number > 0}
        known = numbers | {a * b for a in numbers for b in numbers}
        if 2 * end == size or any(end - block < number <= end for number in known):
            return False
        times = coverage.times[place]
        read = times[times > 0]
        is_uneven = int(read.max()) >= 2 * int(read.min())
        return is_uneven or _repeats_itself(reads, coverage, place)

    def _bounds(self, facts: LoadFacts, reads: list[Read]) -> set[TileValue]:
        """The sizes that the blocks are checked against."""
        found: set[object] = set()
        for read in reads:
            found.update(() if read.block is None else read.block[0].shape)
        for limit in facts.limits:
            for sides in self._reading.compared.get(limit.op, [])[:1]:
                found.add(sides[1 - limit.index])
        return {size for size in found if isinstance(size, int)}

    def _coverage(self, buffer: Buffer) -> Coverage | None:
        """Return the counts of a tensor's reads, or None if they are not known."""
        key = buffer.storage_key
        if key not in self._known:
            self._known[key] = Coverage.of(self._reading.of_storage(key))
        return self._known[key]


def _gap(
    op: Operation,
    buffer: Buffer,
    coverage: Coverage,
    place: int,
    found: Tensor,
    rule: Rule,
    walk: Walk = "grid",
) -> Gap:
    stride, size = coverage.dims[place]
    strides = list(zip(buffer.tensor.stride(), buffer.shape, strict=True))
    dimension = strides.index((stride, size)) if (stride, size) in strides else None
    return Gap(
        op,
        buffer,
        rule,
        dimension,
        int(found.nonzero()[0, 0]),
        int(found.sum()),
        size,
        coverage.elements_of_one_index(place),
        stride,
        walk,
    )


@dataclass(frozen=True, slots=True)
class _Difference:
    """The maximum of index - bound, and its minimum in the program that is farthest."""

    high: int
    low_of_last: int


def _difference(index: TileValue, bound: TileValue) -> _Difference | None:
    """Return the difference of two numbers or affine tiles; None for others."""
    const, base, spreads = 0, None, []
    for value, sign in ((index, 1), (bound, -1)):
        if isinstance(value, int):
            const += sign * value
        elif isinstance(value, AffineTile):
            const += sign * value.const
            reaches = zip(value.coefs, value.shape, strict=True)
            spreads.append([sign * coef * (extent - 1) for coef, extent in reaches])
            if value.base is not None:
                part = sign * value.base.tensor
                base = part if base is None else base + part
        else:
            return None
    steps = [sum(axis) for axis in zip(*spreads, strict=True)]
    far = const + (0 if base is None else int(base.max()))
    return _Difference(
        far + sum(max(step, 0) for step in steps), far + sum(min(step, 0) for step in steps)
    )


def _reaches_end(read: Read, place: int) -> bool:
    """Whether a read goes to the end of a dimension of its tensor."""
    dims = read.buffer.dims
    ranges = read.ranges(dims)
    return ranges is not None and bool((ranges.highs[place] == dims[place][1]).any())


def _moves(reads: list[Read], dims: Dimensions, place: int) -> bool:
    """Whether the first and the last read begin at different indices; False if unknown."""
    first, last = reads[0].ranges(dims), reads[-1].ranges(dims)
    if first is None or last is None:
        return False
    return not torch.equal(first.lows[place], last.lows[place])


def _longest_run(chosen: Tensor) -> int:
    """Return the length of the longest run of chosen indices."""
    edges = torch.nn.functional.pad(chosen.to(torch.int8), (1, 1)).diff().nonzero().reshape(-1)
    return int((edges[1::2] - edges[::2]).max())


def _goes_along(reads: list[Read], coverage: Coverage, place: int) -> bool:
    """Whether programs or iterations begin at different indices of a dimension."""
    starts = [read.ranges(coverage.dims) for read in reads]
    lows = torch.cat([found.lows[place] for found in starts if found is not None])
    return bool((lows != lows[0]).any())


def _repeats_itself(reads: list[Read], coverage: Coverage, place: int) -> bool:
    """Whether one program by itself reads as often as its part has indices, but not all."""
    size = coverage.dims[place][1]
    times, lows = torch.zeros(size, dtype=torch.int64), []
    for read in reads:
        found = read.ranges(coverage.dims) if read.first == reads[0].first else None
        if found is None or not found.programs.numel():
            continue
        mine = found.programs == found.programs[0]
        lows.append(found.lows[place][mine])
        times += counted(lows[-1], found.highs[place][mine], size)
    starts = torch.cat(lows)
    total, distinct = int(times.sum()), int((times > 0).sum())
    is_part = size % total == 0 or total % size == 0
    lacks_much = _LEAST_SHARE * distinct <= (_LEAST_SHARE - 1) * min(total, size)
    return is_part and lacks_much and bool((starts != starts[0]).any())


def _is_even(reads: list[Read], dims: Dimensions, place: int, end: int) -> bool:
    """Whether all indices below `end` are read, and equally often."""
    times = times_read(reads, dims)
    if times is None:
        return False
    read = times[place][:end]
    return int(read[0]) > 0 and bool((read == read[0]).all())
