"""Shared memory in slices: which write put an element there that a view shows.

Elements are known by their addresses, so that views, slots of a ring and buffers that share memory
need nothing of their own: of the writes to an address, the last one before a read is meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.interpreter.memory.shared_buffers import indices

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator
    from tkdebug.interpreter.tiles.values import BufferView


@dataclass(frozen=True, slots=True, eq=False)
class SharedWrite:
    """A tile that was put into shared memory.

    Attributes:
        number: how many instances there were by then.
        places: the address of each of its elements.
        source: the instance of the tile, or of the copy that brought it; -1 for nothing known.
    """

    number: int
    places: Tensor
    source: int
    low: int = field(init=False)
    high: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", int(self.places.min()))
        object.__setattr__(self, "high", int(self.places.max()))


def places_of(run: Evaluator, view: BufferView, position: int) -> Tensor:
    """The address in bytes of each element that a view shows to a program.

    Args:
        run: the batch.
        view: of shared memory.
        position: of the program in the batch.
    """
    at = view
    while at.chosen is not None and not bool(at.chosen[position]) and at.other is not None:
        at = at.other
    other = view.other
    while other is not None:  # the last one that is this program's is what is read
        if other.chosen is not None and bool(other.chosen[position]):
            at = other
        other = other.other
    storage, axes = at.storage, at.window
    row = position if storage.shape[0] > 1 else 0
    strides = storage.stride()
    base = torch.tensor(row * strides[0])
    if at.index is None:
        base = base + torch.arange(storage.shape[1]) * strides[1]
    else:
        base = base + int(indices(run, at.index)[position]) * strides[1]
    ahead = base.dim()
    for axis, (start, size) in enumerate(axes):
        base = base[..., None] + torch.arange(start, start + size) * strides[axis + 2]
    order = (*range(ahead), *(axis + ahead for axis in at.order))
    return base.permute(order) * storage.element_size() + storage.data_ptr()


def written_by(
    writes: Sequence[SharedWrite], before: int, places: Tensor, mask: Tensor
) -> Iterator[tuple[SharedWrite, Tensor, Tensor]]:
    """The writes that put the elements at a mask of a view there, the last one first.

    Args:
        writes: all of the program.
        before: the read's instance.
        places: what the view shows.
        mask: bool, of its shape.

    Yields:
        A write, the mask of the view's elements that are of it, and where each of these is in the
        write's tile, as positions in the flat tile.
    """
    left = mask.clone()
    low, high = int(places.min()), int(places.max())
    for write in reversed(writes):
        if write.number > before or write.high < low or write.low > high:
            continue
        ordered, order = write.places.reshape(-1).sort()
        at = torch.searchsorted(ordered, places).clamp_(max=len(ordered) - 1)
        hit = left & (ordered[at] == places)
        if bool(hit.any()):
            yield write, hit, order[at[hit]]
            left &= ~hit
            if not bool(left.any()):
                return
