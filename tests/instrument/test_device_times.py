import threading

from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.recording.device_times import DeviceTimes
from tkdebug.records.events import LaunchRecord


class Pending:
    """A launch's `device_ns` whose answer the test gives."""

    def __init__(self):
        self.answer = None
        self.asked = threading.Event()

    def __call__(self, wait=False):
        self.asked.set()
        if wait and self.answer is None:
            return 99
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_times_are_reported_in_order_once_known():
    reported = []
    seen = threading.Event()

    def settled(*row):
        reported.append(row)
        if len(reported) == 2:
            seen.set()

    times = DeviceTimes(settled)
    first, second = Pending(), Pending()
    second.answer = 20
    second.source = "events-at-most"
    times.add(1, first)
    times.add(2, second)
    assert first.asked.wait(60)
    assert reported == []
    first.answer = 10
    assert seen.wait(60)
    assert reported == [(1, 10, None, "events"), (2, 20, None, "events-at-most")]
    times.stop()


def test_stop_waits_for_what_is_left():
    reported = []
    times = DeviceTimes(lambda *row: reported.append(row))
    times.add(1, Pending())
    times.stop()
    assert reported == [(1, 99, None, "events")]


def test_a_failed_kernel_is_reported_as_its_error():
    reported = []
    times = DeviceTimes(lambda *row: reported.append(row))
    pending = Pending()
    pending.answer = RuntimeError("illegal address")
    times.add(1, pending)
    times.stop()
    assert reported == [(1, None, "RuntimeError: illegal address", "events")]


def test_recorder_stores_the_device_time_of_native_launches(tmp_path):
    import sqlite3

    path = tmp_path / "run.tkd"
    with Recorder(path, mode="native", output=False) as recorder:
        for number, device_ns in enumerate((lambda wait=False: 1500, None), start=1):
            record = LaunchRecord(number, "k", (1, 1, 1), "native", {}, tuple, "hash")
            recorder._on_enter(None, record)
            record.duration_ns = 7
            record.device_ns = device_ns
            recorder._on_exit(None, record)
    columns = "duration_ns, time_source"
    rows = sqlite3.connect(path).execute(f"SELECT {columns} FROM launches ORDER BY seq").fetchall()
    # The second one was captured in a graph: nothing ran.
    assert rows == [(1500, "events"), (None, "none")]
