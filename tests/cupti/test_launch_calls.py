"""The callback that notes calls of the driver: machine code, called by a libcupti of our own."""

import ctypes
import os
import threading
import time

import activity_records as made
import numpy as np
import pytest

pytest.importorskip("llvmlite")

from tkdebug.instrument.cupti.activity_join import ActivityJoin
from tkdebug.instrument.cupti.joining import Made
from tkdebug.instrument.cupti.library import Cupti
from tkdebug.instrument.cupti.recording import Collection, DeviceRecording, JoinHere, names_at
from tkdebug.records.hook_chain import CALL_FIELDS
from tkdebug.runtime.cuda.activity_buffers import ActivityBuffers
from tkdebug.runtime.cuda.launch_calls import LaunchCalls

MOST = 16
GRID = (4, 1, 1)


def notes(packed):
    return np.frombuffer(packed, list(CALL_FIELDS))


@pytest.fixture
def calls(fake):
    """Notes of which there is room for few, while the fake has them as its client."""
    is_capturing = ctypes.cast(fake.library.fake_is_capturing, ctypes.c_void_p).value
    found = LaunchCalls(os.getpid(), is_capturing, MOST)
    cupti = Cupti(fake.path)
    subscriber = cupti.subscribe(found.called)
    cupti.call("cuptiEnableCallback", 1, subscriber, 1, 652)
    return found


def test_note_has_the_thread_and_a_time_between(calls, fake):
    before = time.time_ns()
    fake.call(77)
    after = time.time_ns()
    (note,) = notes(calls.take())
    assert before <= note["time_ns"] <= after
    assert (note["thread"], note["correlation"]) == (threading.get_native_id(), 77)
    assert calls.take() == b""


def test_threads_are_distinguished(calls, fake):
    ids = []

    def call(number):
        ids.append(threading.get_native_id())
        fake.call(number)

    for number in (1, 2):
        thread = threading.Thread(target=call, args=(number,))
        thread.start()
        thread.join()
    assert notes(calls.take())["thread"].tolist() == ids


def test_calls_that_fail_are_not_noted(calls, fake):
    fake.call(1, status=700)
    fake.call(2)
    assert notes(calls.take())["correlation"].tolist() == [2]


def test_calls_that_a_graph_captures_are_noted_as_such(calls, fake):
    for number, stream in enumerate((0, 8, 9, 16, 17)):
        fake.call(number, stream=stream)
    assert notes(calls.take())["is_captured"].tolist() == [0, 0, 1, 0, 1]


def test_streams_that_cannot_be_asked_capture_nothing(calls, fake):
    fake.library.fake_capturing(905)  # CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
    fake.call(1, stream=9)
    fake.library.fake_capturing(0)
    assert notes(calls.take())["is_captured"].tolist() == [0]


def test_the_latest_stay_where_nobody_takes_them(calls, fake):
    for number in range(3 * MOST + 5):
        fake.call(number)
    assert notes(calls.take())["correlation"].tolist() == list(range(2 * MOST + 5, 3 * MOST + 5))
    fake.call(99)
    assert notes(calls.take())["correlation"].tolist() == [99]


def test_what_threads_note_meanwhile_comes_once(fake):
    found = LaunchCalls(os.getpid(), is_capturing=0)
    cupti = Cupti(fake.path)
    cupti.call("cuptiEnableCallback", 1, cupti.subscribe(found.called), 1, 652)
    threads = [
        threading.Thread(target=lambda first=n: [fake.call(first + k) for k in range(5000)])
        for n in (0, 10_000, 20_000)
    ]
    for thread in threads:
        thread.start()
    seen = []
    while any(thread.is_alive() for thread in threads):
        seen += notes(found.take())["correlation"].tolist()
    seen += notes(found.take())["correlation"].tolist()
    assert sorted(seen) == [n + k for n in (0, 10_000, 20_000) for k in range(5000)]


def test_launches_are_joined_by_noted_calls(fake):
    measured, reported = [], []
    cupti = Cupti(fake.path)
    collection = Collection(cupti, ActivityBuffers(1 << 16, 3))
    join = ActivityJoin(cupti.layout, names_at, measured.append, reported.append)
    recording = DeviceRecording(
        collection, JoinHere(join), reported.append, lambda devices: None, lambda: None
    )
    collection.start()
    recording.is_on = True
    kernels = []
    for launch in (1, 2, 3):
        fake.call(100 * launch + 50)  # of others
        before = time.time_ns()
        fake.call(100 * launch)
        join.made(Made(launch, threading.get_native_id(), before, time.time_ns(), GRID))
        kernels += [
            made.kernel(start=before, end=before + 10 * launch + extra, call=100 * launch + extra)
            for extra in (0, 50)
        ]
    fake.deliver(*kernels)
    recording.stop(when_done=False)
    assert [(one.launch, one.duration_ns) for one in measured] == [(1, 10), (2, 20), (3, 30)]
    assert not fake.has_client


def test_another_client_is_refused_until_it_ends(fake):
    collection = Collection(Cupti(fake.path), ActivityBuffers(4096, 1))
    collection.start()
    other = ctypes.c_void_p()
    subscribe = Cupti(fake.path).status
    assert subscribe("cuptiSubscribe", other, None, None) == 39
    collection.stop()
    assert subscribe("cuptiSubscribe", other, None, None) == 0
