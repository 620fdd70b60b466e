"""Device times of launches: which calls the driver gets, and what its answers come to."""

import ctypes
from contextlib import nullcontext
from itertools import count
from types import SimpleNamespace

import pytest

from tkdebug.runtime.cuda import driver_api, timing
from tkdebug.runtime.errors import CudaError

STREAM = 7
OVERHEAD_NS = 300


class FakeDriver:
    """Answers the functions that spans call; events are numbers from 100."""

    def __init__(self):
        self.recorded = []
        self.statuses = {}
        self.is_capturing_now = 0
        self.elapsed_ms = 0.0015
        self.overhead_ns = OVERHEAD_NS

    def calls(self):
        names = timing._Calls._fields
        return timing._Calls(*[self._function(name) for name in names])

    def _function(self, name):
        def call(*arguments):
            status = self.statuses.get(name, 0)
            if callable(status):
                status = status()
            if status == 0:
                getattr(self, f"on_{name}", lambda *_: None)(*arguments)
            return status

        return call

    def on_is_capturing(self, stream, place):
        assert stream == STREAM
        ctypes.c_int.from_address(place).value = self.is_capturing_now

    def on_record(self, event, stream):
        assert stream == STREAM
        self.recorded.append(event)

    def on_elapsed(self, place, start, end):
        ctypes.c_float.from_address(place).value = self.elapsed_ms


@pytest.fixture
def fake(monkeypatch):
    driver = FakeDriver()
    events = count(100)
    monkeypatch.setattr(timing, "_calls", driver.calls)
    monkeypatch.setattr(timing, "_overhead_ns", lambda device: driver.overhead_ns)
    monkeypatch.setattr(driver_api, "call", lambda name, *arguments: next(events))
    monkeypatch.setattr(driver_api, "status_name", lambda status: f"CUDA_ERROR_{status}")
    return driver


@pytest.fixture
def device():
    made = []
    return SimpleNamespace(
        context=5, entered=nullcontext, made=made, make_current=lambda: made.append(True)
    )


def test_span_is_between_two_events(fake, device):
    timer = timing.SpanTimer(device)
    span = timer.start(STREAM)
    assert fake.recorded == [100]
    span.end()
    assert fake.recorded == [100, 101]
    assert span() == 1500 - OVERHEAD_NS
    assert span.settled_ns > 0


def test_span_that_lasts_has_no_time_yet(fake, device):
    span = timing.SpanTimer(device).start(STREAM)
    span.end()
    fake.statuses["elapsed"] = driver_api.NOT_READY
    assert span() is None
    assert span.settled_ns is None
    fake.statuses.clear()
    assert span() == 1500 - OVERHEAD_NS


def test_events_are_used_again(fake, device):
    timer = timing.SpanTimer(device)
    for _ in range(3):
        span = timer.start(STREAM)
        span.end()
        assert span() == 1500 - OVERHEAD_NS
    dropped = timer.start(STREAM)
    del dropped
    assert set(fake.recorded) == {100, 101}


def test_nothing_is_recorded_into_a_graph(fake, device):
    fake.is_capturing_now = 1
    assert timing.SpanTimer(device).start(STREAM) is None
    assert fake.recorded == []


def test_capture_elsewhere_that_forbids_the_question_leaves_the_launch_to_say_so(fake, device):
    # CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: the default stream while another thread captures.
    fake.statuses["is_capturing"] = 906
    assert timing.SpanTimer(device).start(STREAM) is None


def test_thread_without_a_context_gets_one(fake, device):
    fake.statuses["is_capturing"] = lambda: 0 if device.made else driver_api.INVALID_CONTEXT
    assert timing.SpanTimer(device).start(STREAM) is not None
    assert device.made == [True]


@pytest.mark.parametrize("wait", [False, True])
def test_kernel_that_failed_raises(fake, device, wait):
    span = timing.SpanTimer(device).start(STREAM)
    span.end()
    fake.statuses["synchronize" if wait else "elapsed"] = 700
    with pytest.raises(CudaError, match="CUDA_ERROR_700"):
        span(wait)
