"""tkdebug: debugger and profiler for Triton-style tile kernels, around its own compiler."""

from __future__ import annotations

__version__ = "0.1.0"
