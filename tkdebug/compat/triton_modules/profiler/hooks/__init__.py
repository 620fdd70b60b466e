"""`triton.profiler.hooks`."""

from __future__ import annotations

from tkdebug.compat.proton.hooks import HookManager, InstrumentationHook, LaunchHook

__all__ = ["HookManager", "InstrumentationHook", "LaunchHook"]
