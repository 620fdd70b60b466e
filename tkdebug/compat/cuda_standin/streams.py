"""Streams and events of the stand-in.

Work on the CPU is done when the call returns, so that a stream is a name and everything queued on
it has happened. Events take the CPU's clock: the time between two is real.
"""

from __future__ import annotations

import itertools
import threading
import time
from types import TracebackType
from typing import Any

from tkdebug.compat.cuda_standin.tensors import announce, is_cuda_device
from tkdebug.compat.cuda_standin.torch_internals import CUDA
from tkdebug.runtime.launch.graph_capture import (
    CaptureError,
    capture_in_force,
    refuse_while_capturing,
)

_handles = itertools.count(0x100, 0x10)
_here = threading.local()


class Stream:
    """The stand-in's `torch.cuda.Stream`; handle 0 is the default stream."""

    def __init__(
        self, device: object = None, priority: int = 0, *, handle: int | None = None, **kwargs: Any
    ) -> None:
        if device is not None and not is_cuda_device(device):
            raise ValueError(f"Expected a cuda device, but got: {device}")
        announce()
        given = kwargs.pop("stream_ptr", None)
        self.cuda_stream = (
            next(_handles)
            if handle is None and given is None
            else (given if handle is None else handle)
        )
        self.device = CUDA
        self.device_index = 0
        self.device_type = 1
        self.stream_id = self.cuda_stream
        self.priority = priority
        self._outer: list[Stream] = []

    @property
    def native_handle(self) -> int:
        """The handle, by its device-neutral name."""
        return self.cuda_stream

    @property
    def _as_parameter_(self) -> Any:
        import ctypes

        return ctypes.c_void_p(self.cuda_stream)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Lowest and highest priority, as an H200 has them."""
        return (0, -5)

    def query(self) -> bool:
        """Whether all work is done, which it always is.

        Raises:
            CaptureError: the stream is being captured.
        """
        self._refuse_waiting()
        return True

    def synchronize(self) -> None:
        """Return at once: no work is ever pending.

        Raises:
            CaptureError: the stream is being captured.
        """
        self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        if self == current_stream():
            refuse_while_capturing("the host waits for the stream", "synchronize after the replay")

    def is_capturing(self) -> bool:
        """Whether this is the stream of a capture under way in this thread."""
        return capture_in_force() is not None and self == current_stream()

    def wait_event(self, event: Event) -> None:
        """Return at once: no work is ever pending."""

    def wait_stream(self, stream: Stream) -> None:
        """Return at once: no work is ever pending."""

    def record_event(self, event: Event | None = None) -> Event:
        """Record `event`, or a new one, now."""
        event = event or Event()
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        self._outer.append(current_stream())
        set_stream(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        set_stream(self._outer.pop())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.cuda_stream == self.cuda_stream

    def __hash__(self) -> int:
        return hash(("cuda-stream", self.cuda_stream))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:0 cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """The stand-in's `torch.cuda.ExternalStream`: a stream by somebody else's handle."""

    def __init__(self, stream_ptr: int, device: object = None, **kwargs: Any) -> None:
        super().__init__(device, handle=stream_ptr)


class Event:
    """The stand-in's `torch.cuda.Event`; times are the CPU's."""

    def __init__(
        self,
        *arguments: Any,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
        device: object = None,
    ) -> None:
        # torch.Event takes the device first, torch.cuda.Event takes enable_timing.
        if arguments and isinstance(arguments[0], bool):
            enable_timing = arguments[0]
        announce()
        self.enable_timing = enable_timing
        self.device = CUDA
        self._recorded_ns: int | None = None
        self._is_external = external
        self._is_captured = False

    @property
    def cuda_event(self) -> int:
        """A handle: not zero, as a recorded event's is."""
        return id(self)

    event_id = cuda_event

    def record(self, stream: Stream | None = None) -> None:
        """Take the time; all earlier work is done."""
        self._recorded_ns = time.perf_counter_ns()
        self._is_captured = capture_in_force() is not None and not self._is_external

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to `end_event`.

        Raises:
            RuntimeError: one of them was not recorded, or not made with `enable_timing=True`, or
                recorded into a graph.
        """
        if not (self.enable_timing and end_event.enable_timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        self._refuse_waiting()
        end_event._refuse_waiting()
        if self._recorded_ns is None or end_event._recorded_ns is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end_event._recorded_ns - self._recorded_ns) / 1e6

    def query(self) -> bool:
        """Whether all work is done, which it always is.

        Raises:
            CaptureError: the event was recorded into a graph.
        """
        self._refuse_waiting()
        return True

    def synchronize(self) -> None:
        """Return at once: no work is ever pending.

        Raises:
            CaptureError: the event was recorded into a graph.
        """
        self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        if self._is_captured:
            raise CaptureError(
                "CUDA error: operation not permitted on an event last recorded in a capturing "
                "stream; record one before and one after the replay"
            )

    def wait(self, stream: Stream | None = None) -> None:
        """Return at once: no work is ever pending."""

    def __repr__(self) -> str:
        return "<torch.cuda.Event>"


def default_stream(device: object = None) -> Stream:
    """The stream with handle 0."""
    return Stream(handle=0)


def current_stream(device: object = None) -> Stream:
    """The stream this thread works on."""
    stream: Stream | None = getattr(_here, "stream", None)
    return stream if stream is not None else default_stream()


def set_stream(stream: Stream | None) -> None:
    """Work on `stream` from now on, in this thread."""
    if stream is not None:
        _here.stream = stream


class StreamContext:
    """The stand-in's `torch.cuda.stream(s)`; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self._outer: Stream | None = None

    def __enter__(self) -> Stream | None:
        self._outer = current_stream()
        set_stream(self.stream)
        return self.stream

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        set_stream(self._outer)
