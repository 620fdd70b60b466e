"""Tables of checked launches: what the driver is asked, and when they are read and used again."""

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from tkdebug.runtime.cuda import device, driver_api, probe_memory
from tkdebug.runtime.cuda.device import EnteredContext
from tkdebug.runtime.cuda.probe_memory import MOST_TABLES, CudaProbeMemory
from tkdebug.runtime.errors import CudaError

STREAM = 7


class FakeDriver:
    """Streams that run when they are let to: the host's copies are filled then."""

    def __init__(self):
        self.memory = []
        self.done = []
        self.pending = []
        self.allocated = []
        self.status = 0
        self.is_capturing = 0

    def call(self, name, *arguments):
        if name in ("cuMemAlloc", "cuMemHostAlloc"):
            self.allocated.append((name, arguments[0]))
            self.memory.append(ctypes.create_string_buffer(arguments[0]))
            return ctypes.addressof(self.memory[-1])
        assert name == "cuEventCreate"
        return 100 + len(self.memory) + len(self.done)

    def zero(self, address, value, size, stream):
        ctypes.memset(address, value, size)
        self.done.append(("zero", size, stream))
        return self.status

    def copy(self, host, address, size, stream):
        self.pending.append((host, address, size))
        self.done.append(("copy", size, stream))
        return self.status

    def record(self, event, stream):
        self.done.append(("record", stream))
        return self.status

    def query(self, event):
        return self.status or (driver_api.NOT_READY if self.pending else 0)

    def synchronize(self, event):
        self.run()
        return self.status

    def run(self):
        for host, address, size in self.pending:
            ctypes.memmove(host, address, size)
        self.pending.clear()

    def exchange_capture_mode(self, place):
        return 0

    def capturing(self, stream, place):
        ctypes.c_int.from_address(place).value = self.is_capturing
        return 0

    def calls(self):
        return SimpleNamespace(
            is_capturing=self.capturing,
            zero=self.zero,
            copy=self.copy,
            record=self.record,
            query=self.query,
            synchronize=self.synchronize,
            exchange_capture_mode=self.exchange_capture_mode,
        )


@pytest.fixture
def driver(monkeypatch):
    fake = FakeDriver()
    monkeypatch.setattr(probe_memory, "_calls", fake.calls)
    monkeypatch.setattr(driver_api, "call", fake.call)
    return fake


@pytest.fixture
def memory(driver):
    return CudaProbeMemory(SimpleNamespace(entered=nullcontext, make_current=lambda: None))


def test_table_is_zeroed_before_and_copied_behind_the_launch(driver, memory):
    table = memory.begin(128, STREAM)
    ctypes.memset(table.address, 5, 100)
    memory.end(table, STREAM)
    assert driver.done == [("zero", 128, STREAM), ("copy", 128, STREAM), ("record", STREAM)]
    assert memory.read(table) is None
    driver.run()
    assert memory.read(table) == b"\5" * 100 + bytes(28)


def test_table_that_was_read_is_used_again_and_is_empty(driver, memory):
    first = memory.begin(128, STREAM)
    ctypes.memset(first.address, 5, 128)
    memory.end(first, STREAM)
    assert memory.read(first, wait=True) == b"\5" * 128
    again = memory.begin(64, STREAM)
    assert again is first
    memory.end(again, STREAM)
    assert memory.read(again, wait=True) == bytes(64)
    assert len(driver.allocated) == 2


def test_number_of_tables_is_limited(memory):
    tables = [memory.begin(128, STREAM) for _ in range(MOST_TABLES)]
    assert len({table.address for table in tables}) == MOST_TABLES
    assert memory.begin(128, STREAM) is None
    memory.end(tables[0], STREAM)
    memory.read(tables[0], wait=True)
    assert memory.begin(128, STREAM) is tables[0]


def test_failure_of_the_device_is_an_error(driver, memory, monkeypatch):
    monkeypatch.setattr(driver_api, "status_name", lambda status: "CUDA_ERROR_LAUNCH_FAILED")
    table = memory.begin(128, STREAM)
    memory.end(table, STREAM)
    driver.status = 719
    with pytest.raises(CudaError, match="what a checked launch found: CUDA_ERROR_LAUNCH_FAILED"):
        memory.read(table)


def test_captured_streams_are_known(driver, memory):
    assert not memory.is_capturing(STREAM)
    driver.is_capturing = 1
    assert memory.is_capturing(STREAM)


@pytest.mark.parametrize("status", [0, 201])
def test_context_is_entered_and_left_again(monkeypatch, status):
    done = []

    def push(context):
        done.append(context)
        return status

    monkeypatch.setattr(device, "_context_calls", lambda: (push, lambda place: done.append("left")))
    monkeypatch.setattr(driver_api, "status_name", lambda status: "CUDA_ERROR_INVALID_CONTEXT")
    with pytest.raises(CudaError if status else KeyError), EnteredContext(77):
        raise KeyError
    assert done == ([77] if status else [77, "left"])
