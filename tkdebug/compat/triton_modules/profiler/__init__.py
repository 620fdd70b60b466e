"""`triton.profiler`, Proton: tkdebug's profiling sessions under upstream's names."""

from __future__ import annotations

from . import context, data, flags, hooks, mode, specs
from .profile import DEFAULT_PROFILE_NAME, activate, deactivate, finalize, profile, start
from .scope import cpu_timed_scope, enter_scope, exit_scope, scope
from .state import enter_state, exit_state, metadata_state, state

__all__ = [
    "DEFAULT_PROFILE_NAME",
    "activate",
    "context",
    "cpu_timed_scope",
    "data",
    "deactivate",
    "enter_scope",
    "enter_state",
    "exit_scope",
    "exit_state",
    "finalize",
    "flags",
    "hooks",
    "metadata_state",
    "mode",
    "profile",
    "scope",
    "specs",
    "start",
    "state",
]
