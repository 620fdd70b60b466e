"""Whether a stream has work that has not ended, asked of the driver without waiting."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from tkdebug.runtime.cuda import driver_api
from tkdebug.runtime.cuda.device import device

# CUstreamCaptureMode (cuda.h): what this thread asks does not break a capture.
_RELAXED = 2


@cache
def _calls() -> tuple[Callable[..., int], Callable[..., int]]:
    handle = ctypes.c_void_p
    return (
        driver_api.raw_function("cuStreamQuery", handle),
        driver_api.raw_function("cuThreadExchangeStreamCaptureMode", handle, keeps_gil=True),
    )


def is_busy(index: int, stream: int) -> bool:
    """Whether work on that stream of that GPU has not ended; a failed GPU is not busy."""
    query, exchange_capture_mode = _calls()
    mode = ctypes.c_int(_RELAXED)
    with device(index).entered():
        exchange_capture_mode(ctypes.addressof(mode))
        try:
            return query(stream) == driver_api.NOT_READY
        finally:
            exchange_capture_mode(ctypes.addressof(mode))
