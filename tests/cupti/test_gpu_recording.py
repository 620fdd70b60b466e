"""Recorded runs on a GPU that is not there: CUPTI is a library of our own, launches are made up."""

import json
import os
import signal
import time

import activity_records as made
import pytest
from hooked_launches import native_launch
from made_cupti import taken_notes

from tkdebug.instrument.activities import recorded_activities
from tkdebug.instrument.cupti import recording as cupti_recording
from tkdebug.instrument.cupti.library import CuptiError
from tkdebug.instrument.device_records import LostActivities
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.recording import gpu_recording
from tkdebug.instrument.report import render
from tkdebug.instrument.session import Session
from tkdebug.knobs import KNOBS
from tkdebug.records.hook_chain import HOOKS


@pytest.fixture
def gpu(fake, buffers, monkeypatch):
    """CUDA is in use, and its CUPTI is the fake."""
    monkeypatch.setattr(gpu_recording, "find_cupti", lambda: fake.path)
    monkeypatch.setattr(gpu_recording.GpuRecording, "_open_nvml", lambda self: None)
    monkeypatch.setattr(cupti_recording.Collection, "synchronize", lambda self: None)
    monkeypatch.setattr(HOOKS, "_make_buffers", None)
    monkeypatch.setattr(HOOKS, "profiler_has_cupti", None)
    fake.use = lambda: HOOKS.device_used(lambda: buffers)
    return fake


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.tkd"


def wait_for(condition):
    ended = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ended
        time.sleep(0.01)


def launches_of(path):
    with Session.open(path) as session:
        return session.launches_in_order()


def deliver_kernel(gpu, launch, call, duration_ns=864):
    """Return CUPTI's record of a launch."""
    start_ns = launch.start_ns + 5000
    gpu.note(launch.start_ns + 100, call)
    gpu.deliver(made.kernel(launch.kernel, start=start_ns, end=start_ns + duration_ns, call=call))


@pytest.mark.parametrize("apart", [True, False])
def test_launch_has_cuptis_time_and_others_are_activities(gpu, path, apart):
    with KNOBS.scope(recording_process=apart), Recorder(path, output=False):
        gpu.use()
        launch = native_launch("add")
        deliver_kernel(gpu, launch, 5)
        gpu.deliver(made.kernel("relu", start=1, end=301, call=6), made.memcpy())
    (recorded,) = launches_of(path)
    assert (recorded.duration_ns, recorded.time_source) == (864, "cupti")
    assert (recorded.device, recorded.device_stream) == (0, 7)
    assert recorded.device_start_ns > recorded.start_ns
    with Session.open(path) as session:
        found = sorted((a.kind, a.name, a.launch) for a in recorded_activities(session))
        assert found == [
            ("kernel", "add", recorded.id),
            ("kernel", "relu", 0),
            ("memcpy", "HtoD", 0),
        ]
        _, totals = session.other_totals()
        assert [(t.name, t.total_ns) for t in totals] == [("HtoD", 500), ("relu", 300)]


@pytest.fixture
def few_buffers(gpu):
    """Three buffers, with the machine code that CUPTI gets."""
    pytest.importorskip("llvmlite")
    from tkdebug.runtime.cuda.activity_buffers import ActivityBuffers

    found = ActivityBuffers(4096, 3)
    found.calls = taken_notes
    gpu.use = lambda: HOOKS.device_used(lambda: found)
    return found


def test_recording_process_gives_buffers_back(gpu, path, few_buffers):
    with Recorder(path, output=False) as recorder:
        gpu.use()
        for call in range(1, 11):
            deliver_kernel(gpu, native_launch("add"), call, duration_ns=100 + call)
            recorder._gpu.wait()
            recorder.flush()
            assert few_buffers.lent_count() == 0
    found = [one.duration_ns for one in launches_of(path)]
    assert found == [100 + call for call in range(1, 11)]


def test_buffers_come_back_where_the_recording_process_is_killed(gpu, path, few_buffers, capsys):
    with Recorder(path, output=False) as recorder:
        gpu.use()
        launch = native_launch("add")
        process = recorder._sink.process
        os.kill(process.number, signal.SIGSTOP)
        for call in range(1, 4):
            deliver_kernel(gpu, launch, call)
            recorder._gpu.wait()
        assert few_buffers.lent_count() == 3
        os.kill(process.number, signal.SIGKILL)
        wait_for(lambda: process.error is not None)
        recorder._gpu.wait()
        assert few_buffers.lent_count() == 0
    assert capsys.readouterr().err.count("\n") == 1


def test_no_events_are_made_while_cupti_times(gpu, path):
    with Recorder(path, output=False):
        assert HOOKS.timed
        gpu.use()
        assert not HOOKS.timed
    assert not HOOKS.timed


def test_hooks_can_ask_for_cuptis_time(gpu, path):
    reported = []
    with Recorder(path, output=False) as recorder:
        gpu.use()
        launch = native_launch("add")
        assert launch.device_ns() is None
        deliver_kernel(gpu, launch, 5)
        recorder.flush()
        reported.append(launch.device_ns(True))
    # It may have been a round of the thread beside that took the records.
    assert reported[0] in (864, None)
    assert launch.device_ns() == 864
    assert launch.device_ns.settled_ns > 0


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        ({"subscribe": 39}, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)"),
        ({"enable": 35}, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)"),
    ],
)
def test_cupti_that_refuses_is_one_line_and_events_are_used(gpu, path, capsys, statuses, said):
    gpu.statuses(**statuses)
    with Recorder(path, output=False):
        gpu.use()
        assert HOOKS.timed
        native_launch("add", span=lambda wait=False: 1500)
    err = capsys.readouterr().err
    assert said in err
    assert "launches are timed by CUDA events" in err
    assert err.count("\n") == 1
    assert [(one.duration_ns, one.time_source) for one in launches_of(path)] == [(1500, "events")]
    with Session.open(path) as session:
        (lost,) = session.records(LostActivities)
        assert said in lost.event.reason


def test_missing_library_is_one_line(gpu, path, capsys, monkeypatch):
    def missing():
        raise CuptiError("libcupti is not installed")

    monkeypatch.setattr(gpu_recording, "find_cupti", missing)
    with Recorder(path, output=False):
        gpu.use()
    assert capsys.readouterr().err.startswith("tkdebug: GPU times: libcupti is not installed; ")


def test_missing_memory_is_one_line(gpu, path, capsys):
    def none():
        raise OSError("no room")

    with Recorder(path, output=False):
        HOOKS.device_used(none)
        assert HOOKS.timed
    assert capsys.readouterr().err.startswith("tkdebug: GPU times: no room; launches are timed")


def test_second_recording_at_once_takes_no_records_of_the_first(gpu, path, tmp_path, capsys):
    later = tmp_path / "later.tkd"
    with Recorder(path, output=False) as recorder:
        gpu.use()
        with Recorder(later, output=False) as second:
            launch = native_launch("add", 1500)
            deliver_kernel(gpu, launch, 5)
            second._gpu.wait()
            recorder._gpu.wait()
        assert "another recording in this process has CUPTI; launches" in capsys.readouterr().err
    assert [one.time_source for one in launches_of(path)] == ["cupti"]
    assert [one.time_source for one in launches_of(later)] == ["events"]
    with Recorder(path, output=False):
        deliver_kernel(gpu, native_launch("add"), 6)
    assert [one.time_source for one in launches_of(path)] == ["cupti"]


def test_core_dumps_of_crashes_go_before_cupti(gpu, path, capsys, monkeypatch):
    monkeypatch.setenv("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "1")
    with Recorder(path, output=False):
        gpu.use()
        assert HOOKS.timed
        assert gpu.enabled == set()
    err = capsys.readouterr().err
    assert "launches are timed by CUDA events" in err
    assert err.count("\n") == 1
    with Session.open(path) as session:
        (loss,) = session.records(LostActivities)
    assert "--coredump" in loss.event.reason


def test_knob_switches_cupti_off(gpu, path, capsys):
    with KNOBS.scope(cupti=False), Recorder(path, output=False):
        gpu.use()
        assert HOOKS.timed
        assert gpu.enabled == set()
    assert capsys.readouterr().err == ""


def test_torch_profiler_gets_cupti_for_good(gpu, path, capsys):
    with Recorder(path, output=False):
        gpu.use()
        first = native_launch("one")
        deliver_kernel(gpu, first, 1)
        HOOKS.profiler(True)
        assert gpu.enabled == set()
        assert HOOKS.timed
        native_launch("two", span=lambda wait=False: 2000)
        HOOKS.profiler(False)
        native_launch("three", span=lambda wait=False: 3000)
        assert gpu.enabled == set()
    found = [(one.kernel, one.duration_ns, one.time_source) for one in launches_of(path)]
    assert found == [
        ("one", 864, "cupti"),
        ("two", 2000, "events"),
        ("three", 3000, "events"),
    ]
    with Session.open(path) as session:
        assert [a.launch for a in recorded_activities(session)] == [first.id]
    said = capsys.readouterr().err
    assert "torch.profiler uses CUPTI, which gives wrong times from then on" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(("is_active", "verb"), [(True, "uses"), (False, "has used")])
def test_recording_beside_and_behind_torch_profiler_is_by_events(
    gpu, path, capsys, is_active, verb
):
    HOOKS.profiler(True)
    HOOKS.profiler(is_active)
    with Recorder(path, output=False):
        gpu.use()
        native_launch("one", span=lambda wait=False: 3000)
        HOOKS.profiler(False)
        native_launch("two", span=lambda wait=False: 2000)
        assert gpu.enabled == set()
    assert [one.time_source for one in launches_of(path)] == ["events", "events"]
    said = capsys.readouterr().err
    assert f"torch.profiler {verb} CUPTI, which gives wrong times" in said
    assert said.count("\n") == 1


def test_failure_under_way_goes_on_with_events(gpu, path, capsys):
    with Recorder(path, output=False):
        gpu.use()
        native_launch("one")
        gpu.statuses(flush=999)
        wait_for(lambda: HOOKS.timed)
        native_launch("two", span=lambda wait=False: 2000)
    found = [(one.duration_ns, one.time_source) for one in launches_of(path)]
    assert found == [(None, "none"), (2000, "events")]
    assert "CUPTI_ERROR_UNKNOWN" in capsys.readouterr().err


def test_failed_launch_has_its_error(gpu, path):
    with Recorder(path, output=False):
        gpu.use()
        native_launch("one", error="CudaError: no")
    (one,) = launches_of(path)
    assert (one.error, one.time_source) == ("CudaError: no", "host")


def test_recorder_that_comes_after_cuda_learns_of_it(gpu, path):
    gpu.use()
    with Recorder(path, output=False):
        assert not HOOKS.timed
        assert gpu.enabled


@pytest.fixture
def session(gpu, path):
    with Recorder(path, output=False):
        gpu.use()
        for number in (1, 2):
            deliver_kernel(gpu, native_launch("add"), number)
        native_launch("captured")
        gpu.deliver(
            *(made.kernel("relu", start=time.time_ns(), end=time.time_ns() + 300, call=9),),
            made.memcpy(start=time.time_ns(), end=time.time_ns() + 10_000),
        )
    with Session.open(path) as session:
        yield session


def test_text_report_tells_others_apart(session):
    text = "".join(render(session, "text"))
    ours, others = text.split("also on the GPU, launched by others")
    assert "relu" not in ours
    assert "1 not timed" in ours
    assert "\n2 launches timed by the GPU itself (CUPTI)\n" in ours
    assert "memcpy HtoD" in others
    assert "relu" in others


def test_json_report_has_sources_and_others(session):
    data = json.loads("".join(render(session, "json")))
    assert [one["time_source"] for one in data["launches"]] == ["cupti", "cupti", "none"]
    assert [(one["kind"], one["name"], one["count"]) for one in data["others"]] == [
        ("memcpy", "HtoD", 1),
        ("kernel", "relu", 1),
    ]


def test_chrome_trace_has_a_track_of_the_gpus_stream(session):
    events = json.loads("".join(render(session, "chrome-trace")))["traceEvents"]
    (track,) = [
        event["tid"] for event in events if event.get("args", {}).get("name") == "GPU 0, stream 7"
    ]
    found = [(e["name"], e["cat"]) for e in events if e["ph"] == "X" and e["tid"] == track]
    assert sorted(found) == [
        ("add", "native"),
        ("add", "native"),
        ("memcpy HtoD", "other memcpy"),
        ("relu", "other kernel"),
    ]


def test_tree_for_hatchet_has_others_under_a_type_of_their_own(session):
    root, _ = json.loads("".join(render(session, "hatchet")))
    found = [(*child["frame"].values(), child["metrics"]["count"]) for child in root["children"]]
    assert sorted(found) == [
        ("add", "kernel", 2),
        ("captured", "kernel", 1),
        ("memcpy HtoD", "other memcpy", 1),
        ("relu", "other kernel", 1),
    ]
    (relu,) = [child for child in root["children"] if child["frame"]["name"] == "relu"]
    assert relu["metrics"]["time (ns)"] > 0
