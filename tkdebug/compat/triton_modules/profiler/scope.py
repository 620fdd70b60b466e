"""`triton.profiler.scope`."""

from __future__ import annotations

from tkdebug.compat.proton.scope import cpu_timed_scope, enter_scope, exit_scope, scope

__all__ = ["cpu_timed_scope", "enter_scope", "exit_scope", "scope"]
