"""`triton.profiler.hooks.launch`."""

from __future__ import annotations

from tkdebug.compat.proton.hooks import COMPUTE_METADATA_SCOPE_NAME, LaunchHook

__all__ = ["COMPUTE_METADATA_SCOPE_NAME", "LaunchHook"]
