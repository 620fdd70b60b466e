"""`triton.runtime._allocation`."""

from __future__ import annotations

from tkdebug.runtime.launch.allocation import (
    Allocator,
    Buffer,
    NullAllocator,
    set_allocator,
    set_profile_allocator,
)

__all__ = ["Allocator", "Buffer", "NullAllocator", "set_allocator", "set_profile_allocator"]
