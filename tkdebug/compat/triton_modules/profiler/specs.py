"""`triton.profiler.specs`."""

from __future__ import annotations

from tkdebug.instrument.profiling.device_peaks import max_bps, max_flops

__all__ = ["max_bps", "max_flops"]
