"""`triton.profiler.hooks.hook`."""

from __future__ import annotations

from tkdebug.compat.proton.hooks import Hook, HookManager

__all__ = ["Hook", "HookManager"]
