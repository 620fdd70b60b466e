"""The elements of an access to memory, one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Touched:
    """The elements that an op accesses, in order of programs, then of the tile.

    Attributes:
        places: offsets from the start of the allocation, in elements of `itemsize` bytes.
        programs: linear program ids.
        lanes: positions in the tile, row by row.
        shape: of the tile.
    """

    places: Tensor
    programs: Tensor
    lanes: Tensor
    shape: tuple[int, ...]
    itemsize: int

    def chosen(self, where: Tensor) -> Touched:
        """Those where the bool tensor `where` is true, or at those positions."""
        return replace(
            self,
            places=self.places[where],
            programs=self.programs[where],
            lanes=self.lanes[where],
        )
