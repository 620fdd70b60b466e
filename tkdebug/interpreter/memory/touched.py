"""The elements of an access to memory: one by one, as strided slabs, or as a run for each program.

Slabs and runs are made of an affine tile and a box mask (`values`), without listing elements. Both
have exactly the elements that are masked on and legal; if that needs a look at each element, there
is no such form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.interpreter.tiles.program_bases import Base, ProgramPattern, find_sorted_pattern
from tkdebug.interpreter.tiles.values import AffineTile, Bound, Box, BoxMask, TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.memory.checked_access import Access
    from tkdebug.interpreter.state import EvaluatorState


@dataclass(frozen=True, slots=True)
class Touched:
    """The elements that an op accesses, in order of programs, then of the tile.

    Attributes:
        places: offsets from the start of the allocation, in elements of `itemsize` bytes.
        programs: linear program ids.
        lanes: positions in the tile, row by row.
        shape: the shape of the tile.
    """

    places: Tensor
    programs: Tensor
    lanes: Tensor
    shape: tuple[int, ...]
    itemsize: int

    def chosen(self, where: Tensor) -> Touched:
        """Return the elements where the bool tensor `where` is true, or at those positions."""
        return replace(
            self,
            places=self.places[where],
            programs=self.programs[where],
            lanes=self.lanes[where],
        )


# How many boxes of programs an access is split into; beyond that a list of elements is as good.
_MOST_BOXES = 8


@dataclass(frozen=True, slots=True)
class Hyperslab:
    """Elements of an allocation as one strided view: axes of programs, then those of the tile.

    Attributes:
        start: the place of the first element, from the start of the allocation, in elements.
        sizes: the sizes of one or two axes of programs, then of the box along each axis of the
            tile.
        strides: in elements, one for each size, none negative; 0 if an axis does not move.
        programs: linear program ids (n,), in the order of the axes of programs.
        box: positions along each axis of the tile, the first and past the last.
        flips: axes of the tile along which the last position comes first.
    """

    start: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    programs: Tensor
    box: Box
    flips: tuple[int, ...]

    def view(self, flat: Tensor) -> Tensor:
        """The elements in `flat`, a vector of the allocation; an axis that does not move has 1.

        A value that is written to the view is written to `flat`. Positions that overlap
        (`is_injective`) are one element of memory.
        """
        sizes = [
            size if stride else 1 for size, stride in zip(self.sizes, self.strides, strict=True)
        ]
        return flat.as_strided(sizes, self.strides, self.start)

    @property
    def is_injective(self) -> bool:
        """Whether all positions are certainly different elements."""
        reach = 0
        moves = zip(self.strides, self.sizes, strict=True)
        for stride, size in sorted(move for move in moves if move[1] > 1):
            if stride <= reach:
                return False
            reach += stride * (size - 1)
        return True

    @property
    def last(self) -> int:
        """The last element, from the start of the allocation."""
        moves = zip(self.strides, self.sizes, strict=True)
        return self.start + sum(stride * (size - 1) for stride, size in moves)

    @property
    def count(self) -> int:
        """The number of positions, repeated elements included."""
        return math.prod(self.sizes)


def are_injective(slabs: Sequence[Hyperslab]) -> bool:
    """Whether all positions of the slabs are certainly different elements."""
    ordered = sorted(slabs, key=lambda slab: slab.start)
    apart = all(a.last < b.start for a, b in pairwise(ordered))
    return apart and all(slab.is_injective for slab in slabs)


@dataclass(frozen=True, slots=True)
class Intervals:
    """The one run of elements that each program touches, without gaps.

    Attributes:
        first: (n,) int64, from the start of the allocation, in elements.
        last: (n,) int64, the last element, not past it.
        programs: (n,) linear program ids, ascending; programs that touch nothing are left out.
    """

    first: Tensor
    last: Tensor
    programs: Tensor


def hyperslabs_of(run: EvaluatorState, access: Access) -> tuple[Hyperslab, ...] | None:
    """The elements of an access as strided views, or None if there is no such form."""
    slabs = []
    positions = batch_positions(run, access)
    boxes = _boxes(access, positions)
    if boxes is None:
        return None
    for chosen, box in boxes:
        tile = access.tile if chosen is None else _of_programs(access.tile, chosen)
        tile = tile.cropped(box)
        if not access.buffer.proves_legal(tile):
            return None
        rows = positions if chosen is None else positions[chosen]
        slab = _slab(tile, rows + run.first, box, access.buffer.storage_offset)
        if slab is None:
            return None
        slabs.append(slab)
    return tuple(slabs)


def intervals_of(run: EvaluatorState, access: Access) -> Intervals | None:
    """The elements of an access as one run per program; None if some have more, or gaps."""
    tile, buffer = access.tile, access.buffer
    if not buffer.is_dense or (tile.base is not None and not tile.base.is_per_program):
        return None
    found = _run_of_mask(tile, access.mask)
    if found is None:
        return None
    low, length = found
    positions = batch_positions(run, access)
    count = positions.shape[0]
    base = 0 if tile.base is None else tile.base.tensor.reshape(-1)
    first = torch.as_tensor(base + low + tile.const, device=run.device).expand(count)
    last = (first + length - 1).expand(count)
    if not isinstance(length, int) or not length:
        some = torch.as_tensor(length > 0, device=run.device).expand(count)
        first, last, positions = first[some], last[some], positions[some]
    if positions.numel() and (int(first.min()) < 0 or int(last.max()) >= buffer.hull_elems):
        return None
    offset = buffer.storage_offset
    return Intervals(first + offset, last + offset, positions + run.first)


def batch_positions(run: EvaluatorState, access: Access) -> Tensor:
    """The programs of an access, by their positions in the batch."""
    if access.programs is not None:
        return access.programs
    positions = torch.arange(run.programs, device=run.device)
    # What is the same in the whole batch has one row for all active programs.
    return positions if run.active is None else positions[run.active]


def _boxes(access: Access, positions: Tensor) -> list[tuple[Tensor | None, Box]] | None:
    """Return the boxes that the mask lets through, and the `positions` of each (None for all)."""
    mask = access.mask
    if isinstance(mask, int):
        return [(None, tuple((0, extent) for extent in access.shape))] if mask else []
    if not isinstance(mask, BoxMask):
        return None
    if mask.uniform_box is not None:
        return [(None, mask.uniform_box)]
    if math.prod(extent + 1 for extent in mask.shape) >= 1 << 31:
        return None  # two bounds of each axis have to fit into 63 bits
    boxes, which = _distinct_boxes(mask, positions)
    if len(boxes) > _MOST_BOXES:
        return None
    return [
        ((which == place).nonzero().reshape(-1), box)
        for place, box in enumerate(boxes)
        if all(low < high for low, high in box)
    ]


def _distinct_boxes(mask: BoxMask, positions: Tensor) -> tuple[list[Box], Tensor]:
    """The boxes that some program has, and the number of each program's box.

    The bounds of a box are the digits of one number: numbers are sorted in a fraction of the time
    that rows take.
    """
    extents = [extent for extent in mask.shape for _ in range(2)]
    number = torch.zeros_like(positions)
    for bound, extent in zip(chain.from_iterable(mask.bounds), extents, strict=True):
        digit = torch.as_tensor(bound, device=positions.device).reshape(-1).clamp(0, extent)
        number = number * (extent + 1) + digit
    found, which = torch.unique(number, return_inverse=True)
    boxes: list[Box] = []
    for left in found.tolist():
        digits: list[int] = []
        for extent in reversed(extents):
            left, digit = divmod(left, extent + 1)
            digits.insert(0, digit)
        boxes.append(tuple(zip(digits[::2], digits[1::2], strict=True)))
    return boxes, which


def _of_programs(tile: AffineTile, chosen: Tensor) -> AffineTile:
    if tile.base is None or tile.base.shape[0] == 1:
        return tile
    return AffineTile(tile.const, Base(tile.base.tensor[chosen]), tile.coefs, tile.shape)


def _slab(tile: AffineTile, programs: Tensor, box: Box, storage_offset: int) -> Hyperslab | None:
    """A legal tile as one view; None if its programs are not evenly spaced."""
    pattern = _pattern(tile.base, programs.shape[0])
    if pattern is None:
        return None
    if pattern.order is not None:
        programs = programs[pattern.order]
    start = tile.const + pattern.start + storage_offset
    sizes = [*pattern.sizes, *tile.shape]
    steps = [*pattern.steps, *tile.coefs]
    of_programs, flips = len(pattern.sizes), []
    for axis, (size, step) in enumerate(zip(sizes, steps, strict=True)):
        if size == 1:
            steps[axis] = 0
        elif step < 0:
            # Begin at the other end, since views have no negative strides.
            start += step * (size - 1)
            steps[axis] = -step
            if axis < of_programs:
                programs = programs.reshape(pattern.sizes).flip(axis).reshape(-1)
            else:
                flips.append(axis - of_programs)
    return Hyperslab(start, tuple(sizes), tuple(steps), programs, box, tuple(flips))


def _pattern(base: Base | None, count: int) -> ProgramPattern | None:
    if base is None:
        return ProgramPattern(0, (count,), (0,))
    if not base.is_per_program:
        return None
    if base.shape[0] == 1:
        return ProgramPattern(int(base.tensor), (count,), (0,))
    pattern = base.pattern()
    if not pattern.regular:
        pattern = find_sorted_pattern(base.tensor.reshape(-1))
    return pattern if pattern.regular else None


def _run_of_mask(tile: AffineTile, mask: TileValue) -> tuple[Bound, Bound] | None:
    """Return where the run of elements in a program's tile begins, and its length.

    Return None if the elements are no run without gaps.
    """
    box: Box | None = None
    if isinstance(mask, int):
        box = tuple((0, extent) for extent in tile.shape)
        if not mask:
            return 0, 0
    elif isinstance(mask, BoxMask):
        box = mask.uniform_box
    else:
        return None
    if box is not None:
        length = _run_length(tile, box)
        low = sum(coef * start for coef, (start, _) in zip(tile.coefs, box, strict=True))
        return None if length is None else (low, length)
    assert isinstance(mask, BoxMask)
    return _run_of_cut_mask(tile, mask)


def _run_of_cut_mask(tile: AffineTile, mask: BoxMask) -> tuple[Bound, Bound] | None:
    """Return begin and length of the run if the mask's bounds differ by program along one axis.

    That axis has the largest steps. Return None for other masks, or if there would be gaps.
    """
    outer = max(range(len(tile.shape)), key=lambda axis: abs(tile.coefs[axis]))
    step, extent = tile.coefs[outer], tile.shape[outer]
    box = [(0, size) for size in tile.shape]
    for axis, (low, high) in enumerate(mask.bounds):
        is_whole = isinstance(low, int) and isinstance(high, int) and (low, high) == box[axis]
        if axis != outer and not is_whole:
            return None
    box[outer] = (0, 1)
    inner = _run_length(tile, tuple(box))
    if inner is None or not 0 <= step <= inner:
        return None
    low, high = mask.bounds[outer]
    low = low if isinstance(low, int) else low.clamp(min=0)
    high = high if isinstance(high, int) else high.clamp(max=extent)
    width = high - low
    assert isinstance(width, Tensor)
    return low * step, torch.where(width > 0, (width - 1) * step + inner, 0)


def _run_length(tile: AffineTile, box: Box) -> int | None:
    """Return the number of elements of `box` if there is no gap between them, else None."""
    moves = sorted(
        (coef, high - low)
        for coef, (low, high) in zip(tile.coefs, box, strict=True)
        if high - low > 1
    )
    length = 1
    for coef, extent in moves:
        if coef < 0 or coef > length:
            return None
        length += coef * (extent - 1)
    return length
