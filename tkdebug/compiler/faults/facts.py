"""Facts of an access that the report of its fault needs: the element, and the tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Offender:
    """The first bad element: its program, lane, and element offset.

    Attributes:
        is_whole_tile: whether every element of this program's tile is bad; for a block, every
            element inside the shape that it is checked against.
        is_unmasked: whether the mask, if there is one, is true in all of this program's tile.
    """

    program_id: tuple[int, int, int]
    lane: tuple[int, ...]
    index: int | None
    is_whole_tile: bool = False
    is_unmasked: bool = False


class AccessedTensor(Protocol):
    """A tensor as it was passed to the launch, with the facts that texts name."""

    @property
    def name(self) -> str | None:
        """The argument's name; None for memory that is no argument."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each dimension, in elements."""

    @property
    def strides(self) -> tuple[int, ...]:
        """Stride of each dimension, in elements."""

    @property
    def hull_elems(self) -> int:
        """Elements from the first to the last legal one, inclusive."""

    @property
    def itemsize(self) -> int:
        """Bytes per element as the pointer counts them."""

    @property
    def element_bytes(self) -> int:
        """Bytes per element as the tensor counts them."""

    @property
    def element_type(self) -> str:
        """The tensor's element type, such as "torch.float16"."""

    @property
    def is_expanded(self) -> bool:
        """Whether several positions of the tensor share one element of memory."""
