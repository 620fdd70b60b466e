"""`triton.profiler.context`."""

from __future__ import annotations

from tkdebug.compat.proton.scope import depth

__all__ = ["depth"]
