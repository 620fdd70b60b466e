"""What is legal of a tensor as passed: from its first element to its last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# How many parameters a checked kernel takes for each tensor: the address of its first byte, the one
# behind its last, and how many elements there are from the kernel's pointer on (MOST_ELEMENTS if
# there are more).
PLACES: Final = 3
MOST_ELEMENTS: Final = (1 << 31) - 1
# Where a tensor ends at a multiple of so many bytes, no vector crosses its end: none is longer.
END_BYTES: Final = 16


def elements_behind(address: int, end: int, size_bytes: int) -> int:
    """How many elements of a size there are from an address to an end, at most MOST_ELEMENTS."""
    return min(max(0, end - address) // size_bytes, MOST_ELEMENTS)


def hull_elems(shape: Sequence[int], strides: Sequence[int], behind: int) -> int:
    """Elements from the first to the last legal one, inclusive.

    An expanded tensor has no known extent along its strides of 0, and gathers step along them by a
    stride that they are passed beside it: there all of the allocation from its first element on is
    legal.

    Args:
        shape: of the tensor.
        strides: in elements.
        behind: elements of the allocation from the tensor's first one on.
    """
    if 0 in shape:
        return 0
    dims = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    if any(stride == 0 for _, stride in dims):
        return behind
    return 1 + sum((size - 1) * stride for size, stride in dims)
