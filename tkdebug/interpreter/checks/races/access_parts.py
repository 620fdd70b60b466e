"""Parts of accesses, kept until a launch ends: elements, their programs, which values changed.

A part is a strided view of the allocation if the access had that form, else a list of elements.
Both give their elements as runs, neighbours in memory that are one program's, and give details of a
run's elements when asked.

Invariant: a part holds nothing that belongs to a batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.memory.touched import Hyperslab, Touched

# Places where an access brought another value: everywhere, nowhere, or by element of the part.
Changed = bool | Tensor


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of elements: int64, one entry a run; `starts` in elements of the part's size."""

    starts: Tensor
    counts: Tensor
    programs: Tensor


@dataclass(frozen=True, slots=True)
class Details:
    """Details of single elements: positions in the tile, segments of programs, changes."""

    lanes: Tensor
    segments: Tensor
    changed: Tensor


class Part(Protocol):
    """Elements of one access."""

    @property
    def programs(self) -> Tensor:
        """The programs that accessed the elements; some may be listed more than once."""

    @property
    def changed(self) -> Changed:
        """The elements whose value the access changed, or one bool for all of them."""

    def runs(self) -> Runs:
        """Return all elements as runs."""

    def details(self, runs: Tensor, steps: Tensor) -> Details:
        """Return the details of the element `steps` after the first of each of `runs`."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The runs of a strided view's elements.

    Attributes:
        order: the order of the axes, the axes of a run last.
        starts: the starts of the runs.
        length: the length of each run.
        lanes: positions in the tile of one program's elements, in `order`.
    """

    order: tuple[int, ...]
    starts: Tensor
    length: int
    lanes: Tensor


@dataclass(frozen=True, slots=True)
class SlabPart:
    """A strided view.

    Attributes:
        shape: the shape of the tile.
        changed: a tensor of the shape of `slab.view`, or True or False.
        segments: the segments of `slab.programs`, None if all are 0.
    """

    slab: Hyperslab
    shape: tuple[int, ...]
    changed: Changed
    segments: Tensor | None
    _known: Layout | None = field(default=None, compare=False)

    @property
    def programs(self) -> Tensor:
        """The programs of the slab."""
        return self.slab.programs

    def with_layout(self, known: dict[tuple[object, ...], Layout]) -> SlabPart:
        """Return the part with its layout, taken from `known` or added to it."""
        slab = self.slab
        key = slab.start, slab.sizes, slab.strides, slab.box, slab.flips, self.shape
        if key not in known:
            known[key] = self._layout()
        return replace(self, _known=known[key])

    @property
    def program_axes(self) -> int:
        """The number of axes of the slab that are program axes."""
        return len(self.slab.sizes) - len(self.slab.box)

    def runs(self) -> Runs:
        """Return all elements as runs: axes of the tile that are contiguous form one run."""
        layout, programs = self._known or self._layout(), self.slab.programs
        each = layout.starts.shape[0] // programs.shape[0]
        counts = torch.full_like(layout.starts, layout.length)
        return Runs(layout.starts, counts, programs.repeat_interleave(each))

    def details(self, runs: Tensor, steps: Tensor) -> Details:
        """Return the details of single elements."""
        layout = self._known or self._layout()
        places = runs * layout.length + steps
        tile = math.prod(self.slab.sizes[self.program_axes :])
        segments = torch.zeros_like(places)
        if self.segments is not None:
            # Mostly those of one program, where they have any.
            own = places // tile if self.segments.shape[0] > 1 else segments
            segments = self.segments[own].long()
        changed = self.changed
        if isinstance(changed, Tensor):
            changed = changed.expand(self.slab.sizes).permute(layout.order).reshape(-1)[places]
        else:
            changed = torch.full_like(places, changed, dtype=torch.bool)
        return Details(
            layout.lanes[places % tile if self.programs.shape[0] > 1 else places], segments, changed
        )

    def _layout(self) -> Layout:
        slab, (order, inner) = self.slab, self._order()
        starts = torch.tensor([slab.start], device=slab.programs.device)
        outer = order[: len(order) - inner]
        for axis in outer:
            steps = torch.arange(slab.sizes[axis], device=starts.device) * slab.strides[axis]
            starts = (starts.reshape(-1, 1) + steps).reshape(-1)
        length = math.prod(slab.sizes[axis] for axis in order[len(order) - inner :])
        return Layout(tuple(order), starts, length, self._lanes(order))

    def _order(self) -> tuple[list[int], int]:
        """Return the axes, those within a run last, and the number of these."""
        sizes, strides, first = self.slab.sizes, self.slab.strides, self.program_axes
        tile = range(first, len(sizes))
        inner: list[int] = []
        length = 1
        for axis in sorted(tile, key=lambda axis: strides[axis]):
            if sizes[axis] > 1 and strides[axis] == length:
                length *= sizes[axis]
                inner.insert(0, axis)
        outer = [axis for axis in tile if axis not in inner]
        return [*range(first), *outer, *inner], len(inner)

    def _lanes(self, order: Sequence[int]) -> Tensor:
        """Return positions in the tile of one program's elements, by `order`."""
        lanes = torch.zeros((), dtype=torch.int64, device=self.programs.device)
        for axis, ((low, high), extent) in enumerate(zip(self.slab.box, self.shape, strict=True)):
            steps = torch.arange(low, high, device=lanes.device)
            steps = steps.flip(0) if axis in self.slab.flips else steps
            lanes = lanes.unsqueeze(-1) * extent + steps
        first = self.program_axes
        return lanes.permute([axis - first for axis in order if axis >= first]).reshape(-1)


@dataclass(frozen=True, slots=True)
class ListPart:
    """Elements one by one.

    Attributes:
        segments: the segment of each element's program, None if all are 0.
    """

    touched: Touched
    changed: Changed
    segments: Tensor | None

    @property
    def programs(self) -> Tensor:
        """The programs of the elements."""
        return self.touched.programs

    def runs(self) -> Runs:
        """Return all elements as runs."""
        places, programs = self.touched.places, self.touched.programs
        rows = self._begins()
        counts = torch.diff(rows, append=rows.new_tensor([places.shape[0]]))
        return Runs(places[rows], counts, programs[rows])

    def details(self, runs: Tensor, steps: Tensor) -> Details:
        """Return the details of single elements."""
        rows = self._begins()[runs] + steps
        segments = torch.zeros_like(rows) if self.segments is None else self.segments[rows].long()
        changed = self.changed
        if isinstance(changed, Tensor):
            changed = changed[rows]
        else:
            changed = torch.full_like(rows, changed, dtype=torch.bool)
        return Details(self.touched.lanes[rows], segments, changed)

    def _begins(self) -> Tensor:
        places, programs = self.touched.places, self.touched.programs
        breaks = torch.ones_like(places, dtype=torch.bool)
        torch.ne(places[1:] - places[:-1], 1, out=breaks[1:])
        breaks[1:] |= programs[1:] != programs[:-1]
        return breaks.nonzero().reshape(-1)


def is_alike(changed: Changed) -> bool:
    """Whether an access changed either all of its elements or none."""
    return isinstance(changed, bool) or bool(changed.all()) or not bool(changed.any())


def stored_in(access: ObservedAccess, slab: Hyperslab, first: int) -> Tensor:
    """Return the values that a store has for one of its slabs, to go with `slab.view`.

    Args:
        access: the store.
        slab: a slab of the access, without positions that overlap.
        first: the first program of the batch.
    """
    tile = access.stored_tile()
    values = tile.expand(tile.shape[0], *access.shape)
    for axis, (low, high) in enumerate(slab.box):
        if high - low < values.shape[axis + 1]:
            values = values.narrow(axis + 1, low, high - low)
    if slab.flips:
        values = values.flip([axis + 1 for axis in slab.flips])
    of_programs = slab.sizes[: len(slab.sizes) - len(slab.box)]
    if tile.shape[0] == 1:
        return values.reshape(*(1 for _ in of_programs), *values.shape[1:])
    rows = access.rows_of(slab.programs - first)
    if not _is_counting(rows, values.shape[0]):
        values = values[rows]
    return values.reshape(*of_programs, *values.shape[1:])


def _is_counting(rows: Tensor, count: int) -> bool:
    return rows.shape[0] == count and bool((rows[1:] > rows[:-1]).all())
