"""What the faults of a checked launch are told with: its arguments as plain facts.

Invariant: nothing here holds on to a tensor, as a launch is read after it has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# As the kernel compares addresses as signed numbers.
LAST_BYTE = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TensorView:
    """A tensor as it was passed.

    Attributes:
        name: of the argument: `x`, `pair.0`, `desc`.
        first_byte: address of its first element.
        end_byte: behind its last element; `first_byte` where it has none, `LAST_BYTE` where its
            extent is not known.
        element_bytes: size of an element.
        dtype: torch's, or the language's.
        shape: in elements; () where it is not known.
        strides: in elements, as many.
        storage_byte: address of its allocation.
        storage_bytes: size of its allocation; 0 where it is not known.
    """

    name: str
    first_byte: int
    end_byte: int
    element_bytes: int = 1
    dtype: Any = None
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    storage_byte: int = 0
    storage_bytes: int = 0

    @property
    def is_known(self) -> bool:
        """Whether its extent is known."""
        return self.end_byte != LAST_BYTE

    @property
    def is_expanded(self) -> bool:
        """Whether several positions are one element of memory."""
        return any(
            stride == 0 and size > 1 for size, stride in zip(self.shape, self.strides, strict=True)
        )


@dataclass(frozen=True, slots=True)
class ProbedLaunch:
    """One checked launch.

    Attributes:
        kernel: its name.
        launch_id: as its `LaunchRecord` has it.
        grid: programs along x, y and z.
        arguments: by name as `TensorView` has it; numbers as they were passed. Others are left out.
    """

    kernel: str
    launch_id: int
    grid: tuple[int, int, int]
    arguments: Mapping[str, object]
