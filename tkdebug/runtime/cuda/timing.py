"""Device time of launches by CUDA events, read when they have passed and never waited for.

Only launches that are timed come here, each on its way to the GPU, so the driver is called
without the bindings. Invariants: nothing here synchronises unless asked to wait; no call that may
wait for another thread keeps the GIL; no event is recorded into a CUDA graph that is captured.

Times by events are corrected by the time that two events show for a kernel that does nothing. It is
measured once for each device, after a kernel that keeps the GPU busy until all is queued: so the
GPU sets the pace, and not the host. On an H200 it is 3.7 us, of which 0.8 us are the empty kernel's
own by CUPTI.
"""

from __future__ import annotations

import ctypes
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from tkdebug.runtime.cuda import driver_api
from tkdebug.runtime.cuda.device import Device
from tkdebug.runtime.errors import CudaError
from tkdebug.terminal.text import tell

EVENTS, EVENTS_AT_MOST = "events", "events-at-most"
_NS_PER_MS = 1_000_000
# CUstreamCaptureMode (cuda.h): what this thread asks does not break a capture.
_RELAXED = 2
_NO_CONTEXT = (driver_api.INVALID_CONTEXT, driver_api.NOT_INITIALIZED)
PAIRS = 25
_BUSY_NS = 2_000_000
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
# The driver compiles it for whatever GPU it is. `busy` ends when so many nanoseconds have passed.
_PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry empty() { ret; }
.visible .entry busy(.param .u64 length)
{
  .reg .u64 %t<5>;
  .reg .pred %p;
  ld.param.u64 %t1, [length];
  mov.u64 %t2, %globaltimer;
again:
  mov.u64 %t3, %globaltimer;
  sub.u64 %t4, %t3, %t2;
  setp.lt.u64 %p, %t4, %t1;
  @%p bra again;
  ret;
}
\0"""


class _Calls(NamedTuple):
    """Functions of the driver; handles are numbers."""

    is_capturing: Callable[..., int]
    record: Callable[..., int]
    elapsed: Callable[..., int]
    synchronize: Callable[..., int]
    query: Callable[..., int]
    push_context: Callable[..., int]
    pop_context: Callable[..., int]
    exchange_capture_mode: Callable[..., int]


@cache
def _calls() -> _Calls:
    handle = ctypes.c_void_p

    found = driver_api.raw_function
    return _Calls(
        found("cuStreamIsCapturing", handle, handle),
        found("cuEventRecord", handle, handle),
        found("cuEventElapsedTime", handle, handle, handle),
        found("cuEventSynchronize", handle),
        found("cuEventQuery", handle),
        found("cuCtxPushCurrent", handle, keeps_gil=True),
        found("cuCtxPopCurrent", handle, keeps_gil=True),
        found("cuThreadExchangeStreamCaptureMode", handle, keeps_gil=True),
    )


class SpanTimer:
    """Starts spans on the streams of one device; its events are recorded again and again.

    Attributes:
        overhead_ns: the time that two events show for an empty kernel; None if that cannot be
            measured, or was not yet.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.calls = _calls()
        self._free: list[int] = []
        self.overhead_ns: int | None = None
        self._is_calibrated = False

    def start(self, stream: int) -> DeviceSpan | None:
        """Start timing work on `stream`; None while a graph is captured from it.

        Raises:
            CudaError: the driver refuses.
        """
        capturing = ctypes.c_int()
        status = self.calls.is_capturing(stream, ctypes.addressof(capturing))
        if status in _NO_CONTEXT:
            # A thread that has called nothing of CUDA yet, such as autograd's.
            self.device.make_current()
            status = self.calls.is_capturing(stream, ctypes.addressof(capturing))
        # Where the question itself is forbidden, so is the launch, which says so.
        return None if status or capturing.value else DeviceSpan(self, stream)

    def calibrate(self) -> None:
        """Measure once the time that events add; only settling calls may: it waits for the GPU."""
        if not self._is_calibrated:
            self._is_calibrated = True
            self.overhead_ns = _overhead_ns(self.device)

    def take(self) -> int:
        """Return a free event."""
        try:
            return self._free.pop()
        except IndexError:
            with self.device.entered():
                return int(driver_api.call("cuEventCreate", 0))

    def give_back(self, event: int) -> None:
        """Keep `event` to be used again."""
        self._free.append(event)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Let this thread query events while other threads capture graphs."""
        mode = ctypes.c_int(_RELAXED)
        self.calls.push_context(self.device.context)
        self.calls.exchange_capture_mode(ctypes.addressof(mode))
        try:
            yield
        finally:
            self.calls.exchange_capture_mode(ctypes.addressof(mode))
            self.calls.pop_context(ctypes.byref(ctypes.c_void_p()))


class DeviceSpan:
    """The time of a launch by two events; a call returns nanoseconds, None while it lasts.

    The time that two events show for an empty kernel is subtracted. If the GPU waits for the host,
    the events are as far apart as the host's two calls, however short the kernel is.

    Attributes:
        duration_ns: once it is known.
        source: the source of the time, as in `Launch.time_source`; known with it.
        settled_ns: the time at which it became known, in nanoseconds since 1970.
    """

    __slots__ = (
        "_end",
        "_host_ns",
        "_lock",
        "_start",
        "_stream",
        "_timer",
        "duration_ns",
        "settled_ns",
        "source",
    )

    def __init__(self, timer: SpanTimer, stream: int) -> None:
        self._timer = timer
        self._stream = stream
        self._lock = threading.Lock()
        self.duration_ns: int | None = None
        self.settled_ns: int | None = None
        self.source = EVENTS
        self._start = timer.take()
        self._end = timer.take()
        self._host_ns = time.perf_counter_ns()
        self._record(self._start)

    def end(self) -> None:
        """Mark the end, after the launch was made."""
        self._record(self._end)
        self._host_ns = time.perf_counter_ns() - self._host_ns

    def _record(self, event: int) -> None:
        status = self._timer.calls.record(event, self._stream)
        if status:
            raise driver_api.cuda_error(status, "cuEventRecord")

    def __del__(self) -> None:
        # Nobody asked: an event may be recorded again whatever became of it.
        if self.duration_ns is None:
            for name in ("_start", "_end"):
                if hasattr(self, name):
                    self._timer.give_back(getattr(self, name))

    def __call__(self, wait: bool = False) -> int | None:
        """The span's length in nanoseconds; None if it has not passed yet.

        Args:
            wait: whether to wait until it has.

        Raises:
            CudaError: the kernel, or one before it, failed.
        """
        with self._lock:
            if self.duration_ns is None:
                with self._timer.asking():
                    self._resolve(wait)
            return self.duration_ns

    def has_passed(self) -> bool:
        """Whether the span has ended; unlike a call, it waits for no thread that asks already."""
        if self.duration_ns is not None:
            return True
        with self._timer.asking():
            return self._timer.calls.query(self._end) == driver_api.SUCCESS

    def _resolve(self, wait: bool) -> None:
        calls = self._timer.calls
        if wait and (status := calls.synchronize(self._end)):
            raise driver_api.cuda_error(status, "cuEventSynchronize")
        elapsed_ms = ctypes.c_float()
        status = calls.elapsed(ctypes.addressof(elapsed_ms), self._start, self._end)
        if status == driver_api.NOT_READY:
            return
        if status:
            raise driver_api.cuda_error(status, "cuEventElapsedTime")
        between_ns = round(elapsed_ms.value * _NS_PER_MS)
        self._timer.calibrate()
        overhead_ns = self._timer.overhead_ns
        if overhead_ns is None or between_ns - overhead_ns <= self._host_ns:
            self.source = EVENTS_AT_MOST
        self.duration_ns = max(0, between_ns - (overhead_ns or 0))
        self.settled_ns = time.time_ns()
        self._timer.give_back(self._start)
        self._timer.give_back(self._end)


def _overhead_ns(device: Device) -> int | None:

    try:
        return event_overhead_ns(device)
    except CudaError as error:
        tell(f"CUDA events: {error}; times by events are not corrected")
        return None


@cache
def span_timer(device: Device) -> SpanTimer:
    """The timer of `device`."""
    return SpanTimer(device)


def event_overhead_ns(device: Device) -> int:
    """Return the time that events around an empty kernel show, in nanoseconds: a median.

    Raises:
        CudaError: the driver refuses.
    """
    call = driver_api.call
    with device.entered():
        module = call("cuModuleLoadData", _PTX)
        stream = call("cuStreamCreate", _NON_BLOCKING)
        events = [call("cuEventCreate", 0) for _ in range(2 * PAIRS)]
        try:
            return _measured_ns(module, stream, events)
        finally:
            for event in events:
                call("cuEventDestroy", event)
            call("cuStreamDestroy", stream)
            call("cuModuleUnload", module)


def _measured_ns(module: Any, stream: Any, events: list[Any]) -> int:
    call = driver_api.call
    empty, busy = (call("cuModuleGetFunction", module, name) for name in (b"empty", b"busy"))
    pairs = list(zip(events[::2], events[1::2], strict=True))
    # The first launches of a function load it.
    for length_ns in (1, _BUSY_NS):
        _launch(busy, stream, ((length_ns,), (ctypes.c_uint64,)))
        for start, end in pairs:
            call("cuEventRecord", start, stream)
            _launch(empty, stream, 0)
            call("cuEventRecord", end, stream)
        call("cuStreamSynchronize", stream)
    elapsed: list[float] = [call("cuEventElapsedTime", start, end) for start, end in pairs]
    return round(statistics.median(elapsed) * _NS_PER_MS)


def _launch(function: Any, stream: Any, parameters: Any) -> None:
    driver_api.call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, 0)
