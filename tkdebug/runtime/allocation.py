"""Who gives kernels their extra global memory (tensor descriptors made on the device, profiles)."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol

from tkdebug.errors import LaunchError


class Buffer(Protocol):
    """Device memory: all that is asked of it is its address."""

    def data_ptr(self) -> int:
        """Address of the first byte."""
        ...


class Allocator(Protocol):
    """Gives `size` bytes aligned to `alignment` bytes, for work on `stream`."""

    def __call__(self, size: int, alignment: int, stream: int | None) -> Buffer:
        """Allocate; arguments in bytes."""
        ...


class NullAllocator:
    """The allocator in force until `set_allocator` names one: it refuses."""

    def __call__(self, size: int, alignment: int, stream: int | None) -> Buffer:
        """Refuse to allocate."""
        raise LaunchError(
            f"a kernel needs {size} bytes of global memory at run time and no allocator is set; "
            "call set_allocator(lambda size, alignment, stream: "
            "torch.empty(size, dtype=torch.int8, device='cuda')) first"
        )


_NULL = NullAllocator()
_allocator: ContextVar[Allocator] = ContextVar("tkdebug_allocator", default=_NULL)
_profile_allocator: ContextVar[Allocator] = ContextVar("tkdebug_profile_allocator", default=_NULL)


def set_allocator(allocator: Allocator | None) -> None:
    """Make `allocator` the one that launches of this context use; None for none."""
    _allocator.set(_NULL if allocator is None else allocator)


def set_profile_allocator(allocator: Allocator | None) -> None:
    """Make `allocator` the one that instrumented kernels use; None for none."""
    _profile_allocator.set(_NULL if allocator is None else allocator)


def get_allocator() -> Allocator:
    """The allocator in force."""
    return _allocator.get()


def get_profile_allocator() -> Allocator:
    """The allocator of instrumented kernels in force."""
    return _profile_allocator.get()
