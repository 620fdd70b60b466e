"""Allocators of kernels' extra global memory (descriptors made on the device, profiles)."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Protocol

from tkdebug.errors import LaunchError


class Buffer(Protocol):
    """Device memory, known by its address alone."""

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


class _CachedMemory:
    """Memory of torch's caching allocator, which is given back with the object.

    Given back while a kernel that uses it runs, others get it only after that kernel, in the order
    of the stream.
    """

    def __init__(self, size: int, device: int, stream: int) -> None:
        import torch

        self._address: int = torch.cuda.caching_allocator_alloc(size, device, stream)
        self._free: Callable[[int], None] = torch.cuda.caching_allocator_delete

    def data_ptr(self) -> int:
        """Address of the first byte."""
        return self._address

    def __del__(self) -> None:
        """Return the memory to torch, unless none was allocated."""
        if hasattr(self, "_free"):
            self._free(self._address)


def make_workspace(size: int, alignment: int, device: int, stream: int) -> Buffer:
    """Allocate memory for one launch, by the allocator in force or torch's.

    Args:
        size: in bytes.
        alignment: the alignment of the first byte, a power of 2 of at most 512.
        device: index of the CUDA device.
        stream: handle of the stream that the launch is made on.

    Raises:
        LaunchError: the allocator in force gives memory that is not aligned.
    """
    allocator = _allocator.get()
    if allocator is _NULL:
        return _CachedMemory(size, device, stream)
    buffer = allocator(size, alignment, stream)
    if buffer.data_ptr() % alignment:
        raise LaunchError(
            f"the allocator that set_allocator was given: got memory at {buffer.data_ptr():#x}, "
            f"expected a multiple of {alignment}"
        )
    return buffer


def get_allocator() -> Allocator:
    """The allocator in force."""
    return _allocator.get()


def get_profile_allocator() -> Allocator:
    """The allocator of instrumented kernels in force."""
    return _profile_allocator.get()
