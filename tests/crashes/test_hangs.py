"""Kernels that do not end: when a core dump is asked for, and what is reported."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from dumps import LINES, dump_bytes
from test_launches_in_flight import DUMP, FAR, GRID, OUT, X, kernel

from tkdebug.compat.gpu_failures import hangs
from tkdebug.compat.gpu_failures.crashes import CrashWatch
from tkdebug.compat.gpu_failures.hangs import HangDumps, HangWatch, Running, UndumpedHangs
from tkdebug.instrument.session import Session
from tkdebug.linemap.nvidia.core_dumps import Warp
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.cuda.crashes import hang_faults
from tkdebug.runtime.launch import launches_in_flight
from tkdebug.runtime.launch.launches_in_flight import InFlight


@pytest.fixture
def flights():
    found = InFlight()
    record = SimpleNamespace(id=12, grid=GRID.size, device_ns=None, stream=5)
    found.add(kernel(), record, (X, OUT, FAR))
    return found


def test_warps_are_reported_by_line_and_launch(flights):
    (fault,) = hang_faults(DUMP, flights, "since Ctrl-C")
    assert (fault.kind, fault.kernel, fault.launch_id) == ("hang", "one_program", 12)
    assert fault.line == LINES["crash: program"]
    assert (fault.count, fault.program_id) == (4, (0, 2, 0))
    assert fault.message == (
        "the kernel has not ended since Ctrl-C: 4 warps of 1 program are here; of 4 programs, "
        "1 are on the GPU, 3 have ended; launch 12"
    )


@pytest.mark.parametrize(
    ("multiprocessors", "blocks", "expected"),
    [
        (2, {0: 1, 1: 1}, "2 are on the GPU, 6 have ended or not begun"),
        (1, {0: 1}, "1 are on the GPU, 7 have ended or not begun"),
        (1, {0: 2}, "2 are on the GPU, 6 have not begun"),
        (2, {0: 2, 1: 2}, "4 are on the GPU, 4 have not begun"),
        (3, {0: 2, 1: 2}, "4 are on the GPU, 4 have ended"),
    ],
)
def test_programs_that_have_not_begun_are_counted(flights, multiprocessors, blocks, expected):
    """Two blocks of 1024 threads fill a multiprocessor."""
    grid = replace(GRID, size=(8, 1, 1), block_size=(1024, 1, 1))
    places = [sm for sm, count in blocks.items() for _ in range(count)]
    warps = tuple(
        Warp(grid, (number, 0, 0), None, DUMP.warps[0].pcs, sm) for number, sm in enumerate(places)
    )
    dump = replace(DUMP, warps=warps, multiprocessors=multiprocessors)
    (fault,) = hang_faults(dump, flights, "in 2 s")
    assert f"of 8 programs, {expected}; " in fault.message


class FakeDriver:
    """Writes a dump when a byte comes through the pipe, and then ends what waits for the GPU."""

    def __init__(self, folder, end, crashes=None):
        self.crashes = crashes
        self.seen_as_crashes = []
        self.pipe = str(folder / f"{os.getpid()}.pipe")
        self.dump = folder / "hang.core"
        self.asked = []
        os.mkfifo(self.pipe)
        # Both ends, so that opening it does not wait.
        self.fd = os.open(self.pipe, os.O_RDWR)
        self.thread = threading.Thread(target=self.run, args=(end,), daemon=True)
        self.thread.start()

    def run(self, end):
        self.asked.append(os.read(self.fd, 1))
        self.dump.write_bytes(dump_bytes("program"))
        if self.crashes is not None:
            # As a synchronisation of the script's would look.
            self.seen_as_crashes = self.crashes.dumps()
        end()

    def dumps(self):
        return [str(self.dump)] if self.dump.exists() else []


@pytest.fixture
def faults():
    found = []
    hook = Hook(fault=found.append)
    HOOKS.add(hook)
    yield found
    HOOKS.remove(hook)


@pytest.fixture
def stuck(monkeypatch, flights):
    """A call that signals do not interrupt, as the driver's; and what ends it."""
    monkeypatch.setattr(hangs, "_GRACE_S", 0.1)
    monkeypatch.setattr(hangs, "_SETTLED_S", 0.02)
    monkeypatch.setattr(launches_in_flight, "IN_FLIGHT", flights)
    monkeypatch.setattr(hangs, "oldest_running", lambda: 1)
    libc = ctypes.CDLL(None)
    mutex = ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    return lambda: libc.pthread_mutex_lock(mutex), lambda: libc.pthread_mutex_unlock(mutex)


def watch_of(driver, asking=nullcontext, **options):
    dumps = HangDumps(driver.pipe.replace(str(os.getpid()), "%p"), driver.dumps, asking)
    return HangWatch(dumps.look, **options)


def test_ctrl_c_in_the_driver_tells_where_the_kernel_waits(tmp_path, stuck, faults):
    wait, end = stuck
    crashes = CrashWatch(str(tmp_path / "hang.core"), owned=True)
    driver = FakeDriver(tmp_path, end, crashes)
    watch = watch_of(driver, crashes.asking)
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            wait()
        watch.wait()
        assert [fault.kind for fault in faults] == ["hang"]
    finally:
        watch.stop()
    assert driver.asked == [b"1"]
    assert driver.seen_as_crashes == []
    assert not driver.dump.exists()


def test_queue_that_gets_done_is_no_hang(tmp_path, stuck, faults, monkeypatch):
    wait, end = stuck
    # Launches that are each shorter than the grace; all of them are longer.
    monkeypatch.setattr(hangs, "_GRACE_S", 0.4)
    numbers = iter([1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6])
    monkeypatch.setattr(hangs, "oldest_running", lambda: next(numbers, None) or end())
    driver = FakeDriver(tmp_path, end)
    watch = watch_of(driver)
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            wait()
    finally:
        watch.stop()
    assert (driver.asked, faults) == ([], [])


def interrupt_in_python():
    os.kill(os.getpid(), signal.SIGINT)
    while True:
        pass


def test_ctrl_c_in_python_is_the_scripts(tmp_path, stuck, faults):
    driver = FakeDriver(tmp_path, stuck[1])
    watch = watch_of(driver)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupt_in_python()
    finally:
        watch.stop()
    assert (driver.asked, faults) == ([], [])


def test_kernel_that_takes_longer_than_the_timeout_is_reported(tmp_path, stuck, faults):
    wait, end = stuck
    driver = FakeDriver(tmp_path, end)
    watch = watch_of(driver, timeout_s=0.2)
    try:
        wait()
    finally:
        watch.stop()
    (fault,) = faults
    assert "the kernel has not ended in 0.2 s: 4 warps" in fault.message


def test_launches_that_follow_each_other_are_no_hang(tmp_path, stuck, faults, monkeypatch):
    numbers = iter(range(1000))
    monkeypatch.setattr(hangs, "oldest_running", lambda: next(numbers))
    driver = FakeDriver(tmp_path, stuck[1])
    watch = watch_of(driver, timeout_s=0.1)
    threading.Event().wait(0.4)
    watch.stop()
    assert (driver.asked, faults) == ([], [])


@pytest.mark.usefixtures("many_open_files")
def test_script_with_many_open_files_is_watched(monkeypatch):
    failures = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    HangWatch(failures.append).stop()
    assert failures == []


def test_driver_without_a_pipe_is_said(tmp_path, stuck, capsys):
    watch = HangWatch(HangDumps(str(tmp_path / "none"), list, nullcontext).look, timeout_s=0.05)
    said, ends_s = "", time.monotonic() + 60
    while "no core dumps" not in said and time.monotonic() < ends_s:
        threading.Event().wait(0.02)
        said += capsys.readouterr().err
    watch.stop()
    assert "this driver writes no core dumps on request" in said


class Run:
    """A run whose process does not end."""

    class Ended(Exception):
        pass

    def __init__(self):
        self.taken = 0

    def take_ended(self, limit_s):
        self.taken += 1

    def end_stuck(self):
        raise self.Ended


@pytest.fixture
def streams(monkeypatch):
    """The kernels that are found to run."""
    found = []
    monkeypatch.setattr(hangs, "running_launches", lambda: found)
    return found


def flights_of(count):
    found = InFlight()
    for number in range(7, 7 + count):
        record = SimpleNamespace(id=number, grid=(4, 3, 1), device_ns=None, stream=5)
        found.add(kernel(), record, ())
    return found.latest


def test_without_a_dump_the_launch_and_its_line_are_named(streams, faults):
    streams.append(Running(flights_of(1), None))
    run = Run()
    with pytest.raises(Run.Ended):
        UndumpedHangs(run).look("since Ctrl-C")
    (fault,) = faults
    assert (fault.kind, fault.kernel, fault.launch_id) == ("hang", "one_program", 7)
    assert fault.message == (
        "launch 7 of 12 programs, made here, has not ended since Ctrl-C; "
        "the lines where its warps wait need --coredump or --hang-timeout S"
    )
    # What calls the one that adds, which is tkdebug's elsewhere.
    name = "test_without_a_dump_the_launch_and_its_line_are_named"
    assert [frame.function for frame in fault.frames] == [name]
    assert run.taken == 1


def test_of_several_launches_none_is_said_to_be_the_one(streams, faults):
    flights = flights_of(3)
    streams.append(Running(flights, None))
    with pytest.raises(Run.Ended):
        UndumpedHangs(Run()).look("in 2 s")
    other = SimpleNamespace(**{**vars(flights[2].kernel), "name": "another"})
    streams[:] = [Running((*flights[:2], replace(flights[2], kernel=other, place=None)), None)]
    with pytest.raises(Run.Ended):
        UndumpedHangs(Run()).look("in 2 s")
    alike, unlike = faults
    assert alike.message.startswith("one of 3 launches, 7 to 9, made here, has not ended in 2 s;")
    assert (alike.kernel, alike.launch_id, len(alike.frames)) == ("one_program", 0, 1)
    assert unlike.message.startswith("one of 3 launches, 7 to 9 has not ended in 2 s;")
    assert (unlike.kernel, unlike.launch_id, unlike.frames) == ("unknown kernel", 0, ())


def test_queue_that_ended_something_lately_is_no_hang(streams, faults, capsys):
    streams.append(Running(flights_of(2), time.time_ns() - 10_000_000))
    hangs = UndumpedHangs(Run())
    hangs.look("since Ctrl-C")
    assert faults == []
    # Once what runs was asked for its end, nobody knows which launch it is.
    with pytest.raises(Run.Ended):
        hangs.look("since Ctrl-C")
    assert faults == []
    assert (
        "with launch 7 (one_program), launch 8 (one_program) in flight" in capsys.readouterr().err
    )


def test_launches_behind_the_last_end_are_running(monkeypatch):
    found = InFlight()
    for number, ended_ns in enumerate([None, 5, None, None], start=1):
        span = SimpleNamespace(settled_ns=ended_ns)
        made = SimpleNamespace(**vars(kernel()), device=0)
        record = SimpleNamespace(id=number, grid=(1, 1, 1), device_ns=span, stream=0)
        found.add(made, record, ())
    monkeypatch.setattr(launches_in_flight, "IN_FLIGHT", found)
    for is_busy in (True, False):
        dumps = SimpleNamespace(is_busy=lambda device, stream, busy=is_busy: busy)
        device = SimpleNamespace(crash_dumps=dumps)
        monkeypatch.setattr(hangs, "platform_in_force", lambda device=device: device)
        running = hangs.running_launches()
        assert [[one.launch_id for one in each.flights] for each in running] == [[3, 4]] * is_busy
    assert hangs.oldest_running() is None


@pytest.mark.skipif(sys.platform != "linux", reason="blocks in a mutex of glibc's")
def test_script_that_is_stuck_ends_with_its_session_complete(tmp_path):
    """Its main thread is in a call that no signal interrupts, as the driver's."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("stuck_script.py"), tmp_path],
        capture_output=True,
        text=True,
        timeout=60,
        # A shell may have had background jobs ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        check=False,
    )
    err = done.stderr
    assert done.returncode == 130
    assert "script.py:7: hang in wait_for_ever: launch 1 of 12 programs, made here, has" in err
    assert "need --coredump or --hang-timeout S" in err
    assert 'script.py", line 13, in <module>' in err
    assert "KeyboardInterrupt\n" in err
    assert err.endswith(", 1 fault\n") or ", 1 fault; " in err
    (fault,) = json.loads((tmp_path / "report.json").read_text())["faults"]
    assert (fault["kind"], fault["line"]) == ("hang", 7)
    with Session.open(tmp_path / "run.tkd") as session:
        assert session.run().exit_status == 130
        (launch,) = session.launches_in_order()
        assert (launch.duration_ns, launch.time_source) == (None, "none")
