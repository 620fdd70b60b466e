"""`triton.profiler.state`."""

from __future__ import annotations

from tkdebug.compat.proton.scope import enter_state, exit_state, metadata_state, state
from tkdebug.instrument.profiling.profiler import METADATA_STATE as COMPUTE_METADATA_SCOPE_NAME

__all__ = [
    "COMPUTE_METADATA_SCOPE_NAME",
    "enter_state",
    "exit_state",
    "metadata_state",
    "state",
]
