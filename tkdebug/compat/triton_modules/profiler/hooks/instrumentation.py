"""`triton.profiler.hooks.instrumentation`."""

from __future__ import annotations

from tkdebug.compat.proton.hooks import InstrumentationHook

__all__ = ["InstrumentationHook"]
