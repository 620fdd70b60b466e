"""Device time of launches by CUDA events, read when they have passed and never waited for.

Only launches that somebody times come here. Invariant: nothing here synchronises unless told to
wait, and no event is recorded into a CUDA graph that is being captured.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tkdebug.runtime.cuda import driver_api
from tkdebug.runtime.cuda.device import Device

_NS_PER_MS = 1_000_000


class EventPool:
    """Events of one device that are free to be recorded again."""

    def __init__(self) -> None:
        self._free: list[Any] = []

    def take(self) -> Any:
        """An event."""
        try:
            return self._free.pop()
        except IndexError:
            return driver_api.call("cuEventCreate", 0)

    def give_back(self, event: Any) -> None:
        """Keep `event` for the next one who asks."""
        self._free.append(event)


_POOLS: dict[int, EventPool] = {}


class DeviceSpan:
    """The time between two points of a stream; called, it gives nanoseconds, None while it lasts.

    Attributes:
        duration_ns: once it is known.
        settled_ns: when it became known, in nanoseconds since 1970.
    """

    def __init__(self, device: Device, stream: int) -> None:
        self._device = device
        self._stream = driver_api.driver().CUstream(stream)
        self._pool = _POOLS.setdefault(device.index, EventPool())
        self._lock = threading.Lock()
        self._start = self._pool.take()
        self._end = self._pool.take()
        self.duration_ns: int | None = None
        self.settled_ns: int | None = None
        driver_api.call("cuEventRecord", self._start, self._stream)

    def end(self) -> None:
        """Mark the end, after the launch was made."""
        with self._device.entered():
            driver_api.call("cuEventRecord", self._end, self._stream)

    def __del__(self) -> None:
        # Nobody asked: an event may be recorded again whatever became of it.
        if getattr(self, "duration_ns", 0) is None:
            self._pool.give_back(self._start)
            self._pool.give_back(self._end)

    def __call__(self, wait: bool = False) -> int | None:
        """The span's length in nanoseconds; None when it has not passed yet.

        Args:
            wait: until it has.

        Raises:
            CudaError: the kernel, or one before it, failed.
        """
        with self._lock:
            if self.duration_ns is None:
                with self._device.entered(), _beside_captures():
                    self._resolve(wait)
            return self.duration_ns

    def _resolve(self, wait: bool) -> None:
        if wait:
            driver_api.call("cuEventSynchronize", self._end)
        status = int(driver_api.driver().cuEventQuery(self._end)[0])
        if status == driver_api.NOT_READY:
            return
        if status != driver_api.SUCCESS:
            raise driver_api.cuda_error(status, "cuEventQuery")
        elapsed_ms = driver_api.call("cuEventElapsedTime", self._start, self._end)
        self.duration_ns = round(elapsed_ms * _NS_PER_MS)
        self.settled_ns = time.time_ns()
        self._pool.give_back(self._start)
        self._pool.give_back(self._end)


def start_span(device: Device, stream: int) -> DeviceSpan | None:
    """Start timing work on `stream`; None while a graph is captured from it, as nothing runs."""
    with device.entered():
        status = driver_api.call("cuStreamIsCapturing", driver_api.driver().CUstream(stream))
        return DeviceSpan(device, stream) if int(status) == 0 else None


@contextmanager
def _beside_captures() -> Iterator[None]:
    """Let this thread ask after events without breaking a capture that another thread makes."""
    bindings = driver_api.driver()
    relaxed = bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = driver_api.call("cuThreadExchangeStreamCaptureMode", relaxed)
    try:
        yield
    finally:
        driver_api.call("cuThreadExchangeStreamCaptureMode", before)
