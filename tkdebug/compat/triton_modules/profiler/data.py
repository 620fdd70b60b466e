"""`triton.profiler.data`, of upstream 3.7."""

from __future__ import annotations

from tkdebug.compat.proton.data import get

__all__ = ["get"]
