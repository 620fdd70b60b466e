"""`triton.profiler.flags`."""

from __future__ import annotations

from tkdebug.compat.proton.profile import ProfilerFlags, flags

__all__ = ["ProfilerFlags", "flags"]
