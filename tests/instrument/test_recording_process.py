"""Launches that a process of its own records."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from launching import FAR_NS, fault, launch
from packed_launches import Kernel, note, start

from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.recording_process import client
from tkdebug.instrument.recording_process.received import Received
from tkdebug.instrument.recording_process.ring import (
    SLOTS,
    RingReader,
    RingWriter,
    launch_format,
)
from tkdebug.instrument.session import Session
from tkdebug.instrument.session_file.store import SessionStore
from tkdebug.knobs import KNOBS
from tkdebug.records.events import Fault
from tkdebug.records.hook_chain import HOOKS
from tkdebug.records.scopes import SCOPES
from tkdebug.records.storage import stored

KERNEL = Kernel()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.tkd"


def launches_of(path, **options):
    with Session.open(path) as session:
        return session.launches_in_order(**options)


def values_of(one):
    return {info.name: info.value for info in one.arguments}


def test_packed_launch_has_all_that_a_record_has(path):
    recorder = start(path)
    number = note(recorder, KERNEL, n=-3, grid=(4, 2, 1), stream=1 << 63, scale=1e-30)
    recorder.stop(0)
    (one,) = launches_of(path)
    assert (one.id, one.kernel, one.kernel_hash, one.mode) == (
        number,
        "packed",
        "hash of packed",
        "native",
    )
    assert (one.grid, one.stream, one.process) == ((4, 2, 1), 1 << 63, os.getpid())
    assert one.options == {"num_warps": 4}
    assert [info.name for info in one.arguments] == ["x_ptr", "n", "scale", "BLOCK"]
    assert values_of(one) == {"x_ptr": "a tensor", "n": "-3", "scale": "1e-30", "BLOCK": "64"}
    assert (one.arguments[0].shape, one.arguments[0].strides) == ((4, 8), (8, 1))
    assert abs(one.start_ns - time.time_ns()) < 60e9


@pytest.mark.usefixtures("many_open_files")
def test_script_with_many_open_files_has_a_recording_process(path):
    recorder = start(path)
    note(recorder, KERNEL)
    recorder.stop(0)
    assert len(launches_of(path)) == 1


def test_launches_of_the_year_2426_are_packed(path, monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: FAR_NS)
    recorder = start(path)
    number = note(recorder, KERNEL)
    recorder._on_measured((number, 5, FAR_NS, 0, 7))
    recorder.stop(0)
    assert recorder.error is None
    (one,) = launches_of(path)
    assert (one.start_ns, one.duration_ns, one.device_start_ns) == (FAR_NS, 5, FAR_NS)


def test_packed_launches_differ_in_scalars_and_shapes(path):
    recorder = start(path)
    wide = SimpleNamespace(shape=(4, 8), stride=lambda: (16, 1))
    for n in (1, 2):
        note(recorder, KERNEL, n=n)
        note(recorder, KERNEL, n=n, tensor=wide)
    recorder.stop(0)
    found = [(values_of(one)["n"], one.arguments[0].strides) for one in launches_of(path)]
    assert found == [("1", (8, 1)), ("1", (16, 1)), ("2", (8, 1)), ("2", (16, 1))]


def test_launch_that_no_slot_can_hold_is_recorded_all_the_same(path):
    recorder = start(path)
    note(recorder, KERNEL, n=1 << 80)
    note(recorder, KERNEL, n=2)
    recorder.stop(0)
    assert {values_of(one)["n"] for one in launches_of(path)} == {str(1 << 80), "2"}


def test_packed_launches_have_their_scopes(path):
    recorder = start(path)
    note(recorder, KERNEL)
    outer = SCOPES.enter("outer")
    note(recorder, KERNEL)
    SCOPES.exit(outer)
    note(recorder, KERNEL)
    recorder.stop(0)
    assert [one.scopes for one in launches_of(path)] == [(), ("outer",), ()]


def test_tensors_are_described_again_once_they_are_forgotten(path, monkeypatch):
    from tkdebug.instrument.recording_process import packing

    monkeypatch.setattr(packing, "MAX_KEPT", 5)
    recorder = start(path)
    steady, others = Kernel("steady"), Kernel("others")
    for n in range(100):
        note(recorder, steady, tensor=SimpleNamespace(shape=(1000,), stride=lambda: (1,)))
        note(recorder, others, tensor=SimpleNamespace(shape=(n,), stride=lambda: (1,)))
        if n % 10 == 0:
            recorder.flush()  # what was forgotten is dropped once launches before are stored
    recorder.stop(0)
    found = [one.arguments[0].shape for one in launches_of(path)]
    assert found == [shape for n in range(100) for shape in ((1000,), (n,))]


def test_what_every_launch_passes_anew_does_not_pile_up(path, monkeypatch):
    from tkdebug.instrument.recording_process import packing

    monkeypatch.setattr(packing, "MAX_KEPT", 50)
    recorder = start(path)
    for n in range(400):
        note(recorder, KERNEL, tensor=SimpleNamespace(shape=(n,), stride=lambda: (1,)))
    assert sum(map(len, recorder._packer._kept)) <= 50
    recorder.stop(0)
    assert [one.arguments[0].shape for one in launches_of(path, limit=400)] == [
        (n,) for n in range(400)
    ]


def test_end_that_events_tell_is_packed(path):
    recorder = start(path)
    first, second = note(recorder, KERNEL), note(recorder, KERNEL)
    recorder._on_settled(first, 1500, None, "events-at-most")
    recorder._on_settled(second, None, "CudaError: no", "events")
    recorder.stop(0)
    found = [(one.duration_ns, one.error, one.time_source) for one in launches_of(path)]
    assert found == [(1500, None, "events-at-most"), (None, "CudaError: no", "events")]


def test_end_in_a_slot_comes_behind_the_message_that_says_what_began():
    """The slot was read in the round in which the message was still on its way."""
    writer = RingWriter(lambda: True)
    reader = RingReader(writer.descriptor)
    writer.put_end(7, 99, "events")
    received = Received(lambda *message: None, lambda number: None)
    assert received.launches(reader.take(reader.head()), 1) == []
    began, end = received.messages([("event", "launch 7 began")])
    assert began == "launch 7 began"
    assert (end.id, end.duration_ns, end.time_source) == (7, 99, "events")


def test_end_in_the_last_slot_is_not_lost():
    writer = RingWriter(lambda: True)
    reader = RingReader(writer.descriptor)
    writer.put_end(7, 99, "events")
    received = Received(lambda *message: None, lambda number: None)
    received.launches(reader.take(reader.head()), 1)
    assert [end.id for end in received.left(is_killed=True)] == [7]


def slot(n: int) -> bytes:
    return launch_format("").pack(1, 1, n, 1, 1, 1, 0, 0, 0, 0, 0, 0)


def test_slots_are_used_again():
    writer = RingWriter(lambda: True)
    reader = RingReader(writer.descriptor)
    found = []
    for n in range(3 * SLOTS):
        writer.put(slot(n))
        if n % 1000 == 0:
            found += [one.launch for one in reader.take(reader.head())]
    found += [one.launch for one in reader.take(reader.head())]
    assert found == list(range(3 * SLOTS))


def test_full_ring_waits_for_its_reader():
    asked = []

    def is_read() -> bool:
        asked.append(len(reader.take(reader.head())))
        return True

    writer = RingWriter(is_read)
    reader = RingReader(writer.descriptor)
    for n in range(SLOTS + 1):
        writer.put(slot(n))
    assert sum(asked) + len(reader.take(reader.head())) == SLOTS + 1
    assert len(asked) == 1


def test_full_ring_that_nobody_reads_lets_the_script_go_on():
    writer = RingWriter(lambda: False)
    for n in range(SLOTS + 1):
        writer.put(slot(n))
    assert writer.filled < SLOTS


def test_signals_that_raise_leave_no_hole():
    writer = RingWriter(lambda: True)
    reader = RingReader(writer.descriptor)
    interrupts, is_writing = 0, False

    def interrupt(number, frame):
        # Never twice, nor outside of the `try`: that would interrupt pytest.
        nonlocal is_writing
        if is_writing:
            is_writing = False
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    for n in range(20_000):
        try:
            is_writing = True
            writer.put(slot(n))
            is_writing = False
        except KeyboardInterrupt:
            interrupts += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    writer.put(slot(-1))
    found = [one.launch for one in reader.take(reader.head())]
    assert interrupts
    # Each that was handed over is there, once and in order, up to the very last.
    assert found[-1] == -1
    assert found[:-1] == sorted(set(found[:-1]))


def test_handler_that_launches_in_the_midst_of_a_launch_is_noted(path):
    recorder = start(path)
    signal_before = signal.signal(signal.SIGALRM, lambda *_: note(recorder, KERNEL, n=-1))
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        for n in range(3000):
            note(recorder, KERNEL, n=n)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal_before)
    recorder.stop(0)
    found = [int(values_of(one)["n"]) for one in launches_of(path, limit=100_000)]
    assert [n for n in found if n >= 0] == list(range(3000))
    assert found.count(-1) > 0


def test_threads_pack_at_once(path):
    recorder = start(path)

    def work():
        for n in range(2500):
            note(recorder, KERNEL, n=n)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.stop(0)
    with Session.open(path) as session:
        assert session.launch_count() == 20_000
        (total,) = session.kernel_summaries()
        assert total.launches == 20_000


def test_events_of_all_kinds_reach_the_file(path):
    @stored("apart_remarks")
    @dataclass(frozen=True, slots=True)
    class Remark:
        text: str

    recorder = start(path)
    launch("interpreted", duration_ns=77)
    HOOKS.record(Remark("seen"))
    HOOKS.fault(fault())
    recorder.stop(3)
    with Session.open(path) as session:
        assert [(one.kernel, one.duration_ns) for one in session.launches().launches] == [
            ("interpreted", 77)
        ]
        assert [one.event.text for one in session.records(Remark)] == ["seen"]
        assert session.records(Fault)[0].process == os.getpid()
        assert session.run().exit_status == 3


def test_fault_is_in_the_file_when_the_hook_returns(path):
    recorder = start(path)
    HOOKS.fault(fault())
    with Session.open(path) as session:
        assert len(session.records(Fault)) == 1
    recorder.stop(0)


def test_process_takes_over_from_the_thread_in_the_midst(path, monkeypatch):
    monkeypatch.setattr("tkdebug.instrument.recorder.MOVED_AFTER", 101)
    with Recorder(path, output=False) as recorder:
        for _ in range(200):
            launch()
        assert recorder._sink.process is not None
    found = launches_of(path, limit=300)
    assert len(found) == 200
    assert not any(one.running for one in found)


def test_process_that_was_started_early_takes_over(path):
    with Recorder(path, output=False, expects_gpu=True) as recorder:
        early = recorder._sink._prepared
        launch("before")
        assert recorder._sink.move() is early
        launch("after")
    assert [one.kernel for one in launches_of(path)] == ["before", "after"]


def test_process_that_was_started_early_for_nothing_ends_with_the_recorder(path):
    def processes():
        """The command lines of processes that know of the session."""
        lines = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it has ended
                lines.append(file.read_bytes())
        return [line for line in lines if os.fsencode(path) in line]

    with Recorder(path, output=False, expects_gpu=True):
        launch()
        assert len(processes()) == 1
    deadline = time.monotonic() + 60
    while processes() and time.monotonic() < deadline:
        pass
    assert processes() == []
    assert len(launches_of(path)) == 1


def test_process_that_cannot_start_is_one_line_and_the_thread_goes_on(path, monkeypatch, capfd):
    monkeypatch.setattr(client.sys, "executable", "/nowhere/python")
    with Recorder(path, output=False) as recorder:
        assert recorder._sink.move() is None
        launch()
    err = capfd.readouterr().err
    assert "no recording process" in err
    assert err.count("\n") == 1
    assert len(launches_of(path)) == 1


def test_killed_process_is_one_line_and_the_script_goes_on(path, capfd):
    recorder = start(path)
    note(recorder, KERNEL)
    recorder.flush()
    os.kill(recorder._sink.process.number, signal.SIGKILL)
    launch("later")
    deadline = time.monotonic() + 60
    while recorder.error is None and time.monotonic() < deadline:
        launch("later")
    assert HOOKS.packer is None
    launch("last")
    recorder.stop(0)
    err = capfd.readouterr().err
    assert "recording stopped: the recording process was killed; dmesg says" in err
    assert err.count("\n") == 1
    found = launches_of(path)
    assert found[0].kernel == "packed"
    with Session.open(path) as session:
        assert session.run().end_ns is None


def test_process_waits_for_a_script_that_locks_its_own_session(path, capfd):
    recorder = start(path)
    note(recorder, KERNEL)
    recorder.flush()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for _ in range(300):
            note(recorder, KERNEL)
            launch()
        recorder.flush()
        assert len(launches_of(path)) == 1
        connection.execute("ROLLBACK")
    recorder.stop(0)
    assert recorder.error is None
    assert len(launches_of(path)) == 601
    assert capfd.readouterr().err.count("another connection has it locked") == 1


def test_full_disk_is_one_line_and_the_script_goes_on(tmp_path):
    code = """
import resource, sys
from packed_launches import Kernel, note, start
recorder, kernel = start(sys.argv[1]), Kernel()
resource.prlimit(recorder._sink.process.number, resource.RLIMIT_FSIZE, (300_000, 300_000))
for n in range(20_000):
    if recorder._packer is not None:
        note(recorder, kernel, n=n)
recorder.flush()
recorder.stop(0)
print("done")
"""
    path = tmp_path / "run.tkd"
    done = run_python(code, path)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.count("\n") == 1
    assert "recording stopped: " in done.stderr
    with Session.open(path) as session:
        assert session.run().end_ns is None


def test_full_disk_is_reported_once_where_the_process_would_take_over(path, monkeypatch, capfd):
    def full(self, rows):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(SessionStore, "write", full)
    with Recorder(path, output=False) as recorder:
        launch()
        assert recorder._sink.move() is None
        assert recorder._sink.process is None
    assert capfd.readouterr().err.count("recording stopped: database or disk is full") == 1


def test_forked_child_records_for_itself(path):
    code = """
import os, sys
from launching import launch
from packed_launches import Kernel, note, start
recorder, kernel = start(sys.argv[1]), Kernel()
note(recorder, kernel)
pid = os.fork()
if not pid:
    launch("child")
    recorder.flush()
    os._exit(0)
os.waitpid(pid, 0)
note(recorder, kernel)
recorder.stop(0)
try:
    os.wait()
except ChildProcessError:
    print("no child is left")
"""
    done = run_python(code, path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "no child is left\n", "")
    found = [(one.kernel, one.process) for one in launches_of(path)]
    assert sorted(kernel for kernel, _ in found) == ["child", "packed", "packed"]
    assert len({process for _, process in found}) == 2


KILLS = Path(__file__).parents[2] / "bench" / "kills.py"


@pytest.mark.parametrize("victim", ["script", "process", "both", "group"])
def test_killed_runs_open_and_lose_nothing_that_was_promised(victim, tmp_path):
    done = subprocess.run(
        [sys.executable, KILLS, "--kills", "3", "--only", victim],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{victim}: 3 kills" in done.stdout


def run_python(code, *arguments):
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parents[1])])}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_knob_keeps_recording_in_the_script(path):
    with KNOBS.scope(recording_process=False), Recorder(path, output=False) as recorder:
        assert recorder._sink.move() is None
