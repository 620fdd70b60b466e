"""`triton.profiler.profile`."""

from __future__ import annotations

from tkdebug.compat.proton.profile import (
    DEFAULT_PROFILE_NAME,
    activate,
    deactivate,
    finalize,
    profile,
    start,
)
from tkdebug.compat.proton.profile import select_backend as _select_backend

__all__ = [
    "DEFAULT_PROFILE_NAME",
    "_select_backend",
    "activate",
    "deactivate",
    "finalize",
    "profile",
    "start",
]
