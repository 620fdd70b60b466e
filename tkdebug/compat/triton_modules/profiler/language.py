"""`triton.profiler.language`."""

from __future__ import annotations

from tkdebug.compat.proton.language import (
    disable_semantic,
    enable_semantic,
    enter_scope,
    exit_scope,
)

__all__ = ["disable_semantic", "enable_semantic", "enter_scope", "exit_scope"]
