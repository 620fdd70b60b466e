import itertools
import sys
import threading
import time
from types import SimpleNamespace

import activity_records as made
import pytest

from tkdebug.instrument.activities import unpacked
from tkdebug.instrument.cupti.activity_join import ActivityJoin
from tkdebug.instrument.cupti.joining import CallJoiner, Calls, Made
from tkdebug.instrument.cupti.library import Cupti, CuptiError
from tkdebug.instrument.cupti.recording import Collection, DeviceRecording, JoinHere, names_at
from tkdebug.instrument.device_records import ActivityBatch, LostActivities
from tkdebug.instrument.session_file.tables import Recorded

ME = 1234
GRID = (4, 1, 1)


class Recording:
    """A recording whose rounds the test makes."""

    def __init__(self, fake, buffers):
        self.measured, self.reported, self.rounds, self.failures = [], [], [], []
        cupti = Cupti(fake.path)
        self.collection = Collection(cupti, buffers)
        self.join = ActivityJoin(cupti.layout, names_at, self.measured.append, self.reported.append)
        self.recording = DeviceRecording(
            self.collection,
            JoinHere(self.join),
            self.reported.append,
            self.rounds.append,
            lambda: self.failures.append(True),
        )
        self.collection.start()
        self.recording.is_on = True

    def round(self, forced=False):
        self.recording._round(forced)

    def finish(self):
        self.recording.stop(when_done=False)

    def activities(self):
        batches = [reported for reported in self.reported if isinstance(reported, ActivityBatch)]
        return [a for batch in batches for a in unpacked(Recorded(1, 99, 0, 0, batch))]


@pytest.fixture
def recording(fake, buffers):
    return Recording(fake, buffers)


def launch(recording, number, before_ns, after_ns=None, thread=ME):
    after_ns = after_ns or before_ns + 8000
    recording.join.made(Made(number, thread, before_ns, after_ns, GRID))


def test_launch_gets_the_time_of_its_kernel(recording, fake):
    now = time.time_ns()
    launch(recording, 5, now)
    fake.note(now + 1000, 77, ME)
    fake.deliver(made.kernel(start=now + 5000, end=now + 5864, call=77))
    recording.round()
    (measured,) = recording.measured
    assert (measured.launch, measured.duration_ns, measured.stream) == (5, 864, 7)
    assert abs(measured.start_ns - (now + 5000)) < 50_000_000
    (activity,) = recording.activities()
    assert (activity.launch, activity.name, activity.grid) == (5, "add", (4, 1, 1))
    assert (activity.block, activity.registers) == ((128, 1, 1), 16)
    assert (activity.static_shared_bytes, activity.dynamic_shared_bytes) == (32, 64)


def test_kernels_of_others_are_no_launches(recording, fake):
    now = time.time_ns()
    launch(recording, 5, now)
    # Of the same function, the same thread and the same name, before and after ours.
    fake.note(now - 9000, 76, ME)
    fake.note(now + 1000, 77, ME)
    fake.note(now + 19000, 78, ME)
    fake.deliver(
        *(made.kernel(start=now + n, end=now + n + 100 * n, call=70 + n) for n in (6, 7, 8)),
    )
    recording.round()
    recording.finish()
    assert [(m.launch, m.duration_ns) for m in recording.measured] == [(5, 700)]
    assert sorted(a.launch for a in recording.activities()) == [0, 0, 5]


def test_threads_that_launch_at_once_are_distinguished(recording, fake):
    now = time.time_ns()
    launch(recording, 1, now, thread=1)
    launch(recording, 2, now + 10, thread=2)
    fake.note(now + 1000, 10, 2)
    fake.note(now + 1010, 11, 1)
    fake.deliver(
        made.kernel(start=now, end=now + 111, call=11),
        made.kernel(start=now, end=now + 222, call=10),
    )
    recording.round()
    assert sorted((m.launch, m.duration_ns) for m in recording.measured) == [(1, 111), (2, 222)]


def test_captured_launch_has_no_time_and_takes_nobody_elses(recording, fake):
    now = time.time_ns()
    launch(recording, 1, now)
    launch(recording, 2, now + 10_000)
    fake.note(now + 1000, 10, ME, captured=True)
    fake.note(now + 11_000, 12, ME)
    fake.deliver(
        made.kernel(start=now + 20_000, end=now + 20_500, call=12),
        # Its replay.
        made.kernel(start=now + 30_000, end=now + 30_700, call=13, graph=2),
    )
    recording.round()
    # That it was captured is known at once.
    assert [(m.launch, m.duration_ns) for m in recording.measured] == [(1, None), (2, 500)]
    recording.finish()
    assert [(a.graph, a.launch) for a in recording.activities()] == [(0, 2), (2, 0)]


def test_kernel_of_another_grid_is_not_the_launchs(recording, fake):
    now = time.time_ns()
    launch(recording, 1, now)
    fake.note(now + 1000, 10, ME)
    fake.deliver(made.kernel(start=now, end=now + 600, call=10, grid=(5, 1, 1)))
    recording.round()
    recording.finish()
    assert [(m.launch, m.duration_ns) for m in recording.measured] == [(1, None)]
    assert [a.launch for a in recording.activities()] == [0]


@pytest.mark.parametrize("first", ["call", "kernel"])
def test_records_may_come_in_different_rounds(recording, fake, first):
    now = time.time_ns()
    launch(recording, 1, now)
    steps = [
        lambda: fake.note(now + 1000, 10, ME),
        lambda: fake.deliver(made.kernel(start=now + 4000, end=now + 4800, call=10)),
    ]
    for step in steps if first == "call" else reversed(steps):
        assert recording.measured == []
        step()
        recording.round()
    assert [(m.launch, m.duration_ns) for m in recording.measured] == [(1, 800)]
    recording.finish()
    assert [a.launch for a in recording.activities()] == [1]


def test_launch_that_is_noted_after_its_kernel_was_asked_for_has_its_time(recording, fake):
    """Another thread asks for times between the driver's call and the note."""
    now = time.time_ns()
    fake.note(now + 1000, 10, ME)
    fake.deliver(made.kernel(start=now, end=now + 800, call=10))
    recording.round(forced=True)
    launch(recording, 1, now)
    recording.round()
    assert [(m.launch, m.duration_ns) for m in recording.measured] == [(1, 800)]
    assert [a.launch for a in recording.activities()] == [1]


def test_launch_that_is_noted_rounds_later_has_its_time(recording, fake):
    """Its thread waits for the GIL, or for the first launch to be compiled, behind the call."""
    now = time.time_ns()
    fake.note(now + 1000, 10, ME)
    fake.deliver(made.kernel(start=now, end=now + 800, call=10))
    for _ in range(5):
        recording.round()
    assert recording.activities() == []
    launch(recording, 1, now)
    recording.round()
    assert [(m.launch, m.duration_ns) for m in recording.measured] == [(1, 800)]
    assert [a.launch for a in recording.activities()] == [1]


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still; `clock.now_ns` moves it."""
    found = SimpleNamespace(now_ns=time.time_ns())
    monkeypatch.setattr("time.time_ns", lambda: found.now_ns)
    return found


def test_kernels_of_others_wait_no_longer_than_launches_may(recording, fake, clock):
    """Also where nothing of ours is launched at all."""
    fake.note(clock.now_ns, 10, ME)
    fake.deliver(
        made.kernel("by the same function", call=10), made.kernel("by another one", call=11)
    )
    shown = []
    for _ in range(25):
        recording.round()
        shown.append([a.name for a in recording.activities()])
        clock.now_ns += 100_000_000
    assert shown[:2] == [[], ["by another one"]]
    assert shown[19] == ["by another one"]
    assert shown[24] == ["by another one", "by the same function"]
    assert recording.join._held == []
    assert len(recording.join._joiner.waiting()) == 0


def test_launches_wait_for_their_kernels_however_long_the_queue(recording, fake, clock):
    for number in (1, 2, 3):
        launch(recording, number, clock.now_ns + 10_000 * number)
        fake.note(clock.now_ns + 10_000 * number + 1000, 10 + number, ME)
    recording.round()
    clock.now_ns += 3_600_000_000_000
    recording.round()
    assert recording.measured == []
    fake.deliver(*(made.kernel(start=100, end=100 + n, call=10 + n) for n in (1, 2, 3)))
    recording.round()
    assert [(m.launch, m.duration_ns) for m in recording.measured] == [(1, 1), (2, 2), (3, 3)]


def test_launch_whose_record_was_dropped_ends_with_a_later_one_of_its_thread(recording, fake):
    now = time.time_ns()
    for number in (1, 2, 3):
        launch(recording, number, now + 10_000 * number)
        fake.note(now + 10_000 * number + 1000, 10 + number, ME)
    launch(recording, 4, now, thread=ME + 1)
    fake.note(now + 1000, 20, ME + 1)
    fake.dropped(1)
    recording.round()
    assert recording.measured == []
    fake.deliver(made.kernel(start=100, end=102, call=12))
    recording.round()
    assert [(m.launch, m.duration_ns) for m in recording.measured] == [(2, 2), (1, None)]
    fake.deliver(made.kernel(start=100, end=103, call=13), made.kernel(start=5, end=9, call=20))
    recording.round()
    assert [(m.launch, m.duration_ns) for m in recording.measured[2:]] == [(3, 3), (4, 4)]


def test_launch_whose_kernel_has_no_times_ends_without_one(recording, fake):
    now = time.time_ns()
    launch(recording, 1, now)
    fake.note(now + 1000, 10, ME)
    fake.deliver(made.kernel(start=0, end=0, call=10))
    recording.round()
    assert [(m.launch, m.duration_ns) for m in recording.measured] == [(1, None)]
    assert recording.activities() == []


def test_launch_that_is_noted_behind_the_last_round_has_its_time(recording, fake):
    now = time.time_ns()
    fake.note(now + 1000, 10, ME)
    fake.deliver(made.kernel(start=now, end=now + 800, call=10))
    recording.round()
    launch(recording, 1, now)
    recording.join.give_up()
    assert [(m.launch, m.duration_ns) for m in recording.measured] == [(1, 800)]


def test_launch_whose_call_never_comes_is_given_up_later(recording, fake, clock):
    launch(recording, 1, clock.now_ns)
    clock.now_ns += 1_900_000_000
    launch(recording, 2, clock.now_ns)
    fake.note(clock.now_ns + 1000, 11, ME)
    recording.round()
    assert recording.measured == []
    clock.now_ns += 200_000_000
    recording.round()
    assert [(m.launch, m.duration_ns) for m in recording.measured] == [(1, None)]


def test_copies_and_fills_are_activities(recording, fake):
    fake.deliver(made.memcpy(copy_kind=2), made.memset(), made.memcpy(copy_kind=99))
    recording.round()
    found = [(a.kind, a.name, a.size_bytes, a.duration_ns) for a in recording.activities()]
    assert sorted(found) == [
        ("memcpy", "DtoH", 4096, 500),
        ("memcpy", "copy of kind 99", 4096, 500),
        ("memset", "memset", 64, 100),
    ]


def test_totals_are_of_others_alone(recording, fake):
    now = time.time_ns()
    launch(recording, 1, now)
    fake.note(now + 1000, 10, ME)
    fake.deliver(
        made.kernel(start=now, end=now + 600, call=10),
        made.kernel("relu", start=now, end=now + 300, call=11),
        made.kernel("relu", start=now, end=now + 100, call=12),
        made.kernel("relu", start=now, end=now + 50, call=13, graph=2),
    )
    recording.round()
    recording.finish()
    totals = [t for reported in recording.reported for t in reported.totals]
    assert [(t.name, t.count, t.total_ns, t.min_ns, t.max_ns) for t in totals] == [
        ("relu", 2, 400, 100, 300),
        ("relu", 1, 50, 50, 50),
    ]
    assert [t.in_graph for t in totals] == [False, True]


def test_record_without_times_is_left_out(recording, fake):
    fake.deliver(made.kernel(start=0, end=0), made.kernel("other", start=5, end=9))
    recording.round()
    recording.finish()
    assert [a.name for a in recording.activities()] == ["other"]


def test_damaged_buffer_ends_the_recording_with_one_line(recording, fake, capsys):
    launch(recording, 1, time.time_ns())
    fake.deliver(made.kernel()[:-8])
    recording.round()
    assert capsys.readouterr().err.count("\n") == 1
    assert recording.failures == [True]
    assert [(m.launch, m.duration_ns) for m in recording.measured] == [(1, None)]
    assert recording.activities() == []
    assert fake.enabled == set()
    recording.round()
    recording.finish()


def test_flush_that_fails_ends_the_recording(recording, fake, capsys):
    fake.statuses(flush=999)
    recording.round()
    assert "cuptiActivityFlushAll: CUPTI_ERROR_UNKNOWN (999)" in capsys.readouterr().err
    assert recording.failures == [True]


def test_dropped_records_are_reported(recording, fake):
    fake.dropped(12)
    recording.round()
    assert [t.count for t in recording.reported if isinstance(t, LostActivities)] == [12]


@pytest.mark.parametrize("has_origins", [False, True])
def test_kinds_are_enabled_while_it_is_on(fake, buffers, has_origins):
    collection = Collection(Cupti(fake.path), buffers, has_origins=has_origins)
    collection.start()
    # Where it is asked what launches others' kernels, any call may be the one.
    calls = {made.DRIVER, made.RUNTIME} if has_origins else set()
    assert fake.enabled == {made.KERNEL, made.MEMCPY, made.MEMSET} | calls
    assert fake.has_client
    collection.stop()
    assert fake.enabled == set()
    assert not fake.has_client


@pytest.mark.parametrize(
    ("statuses", "name"),
    [
        (
            {"subscribe": 39},
            "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39): another profiler",
        ),
        ({"register": 1}, "CUPTI_ERROR_INVALID_PARAMETER (1)"),
        ({"enable": 35}, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35): the driver lets only root"),
        ({"enable": 777}, "CUPTI error (777)"),
    ],
)
def test_refusal_of_cupti_is_named(fake, buffers, statuses, name):
    fake.statuses(**statuses)
    with pytest.raises(CuptiError) as caught:
        Collection(Cupti(fake.path), buffers).start()
    assert name in str(caught.value)
    assert fake.enabled == set()
    assert not fake.has_client


def test_clock_is_read_without_other_threads_in_between(fake, buffers):
    fake.library.fake_slow_timestamps(1_000_000)
    done = threading.Event()
    busy = threading.Thread(target=lambda: all(not done.is_set() for _ in itertools.count()))
    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(0.2)
    try:
        busy.start()
        clock = Collection(Cupti(fake.path), buffers).clock()
    finally:
        done.set()
        sys.setswitchinterval(switch_s)
        busy.join()
    assert clock.error_ns < 50_000_000


def test_launches_in_quick_succession_have_their_own_calls():
    """Each begins at the time at which the call of the one before returned."""
    import numpy as np

    joiner = CallJoiner()
    numbers = range(100)
    launches = [Made(n, ME, 8000 * n, 8000 * (n + 1), (n, 1, 1)) for n in numbers]
    times = np.array([8000 * (n + 1) for n in numbers])
    joiner.add(reversed(launches), Calls(np.full(100, ME), times, np.arange(100), np.zeros(100)))
    joined = joiner.join(0)
    assert {call: made.launch for call, made in joined.launches.items()} == {n: n for n in numbers}


def test_thread_of_the_recording_makes_rounds_and_ends(fake, buffers):
    measured = []
    seen = threading.Event()

    def on_measured(one):
        measured.append(one)
        seen.set()

    cupti = Cupti(fake.path)
    join = ActivityJoin(cupti.layout, names_at, on_measured, lambda reported: None)
    recording = DeviceRecording(
        Collection(cupti, buffers),
        JoinHere(join),
        lambda reported: None,
        lambda devices: None,
        lambda: None,
    )
    recording.start()
    now = time.time_ns()
    join.made(Made(1, ME, now, now + 9000, GRID))
    fake.note(now + 1000, 10, ME)
    fake.deliver(made.kernel(start=now, end=now + 5, call=10))
    assert seen.wait(20)
    recording.stop(when_done=False)
    recording.stop(when_done=False)
    assert [(m.launch, m.duration_ns) for m in measured] == [(1, 5)]
