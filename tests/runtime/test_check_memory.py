"""Tables of checked launches: what the driver is asked, and when they are read and used again."""

import ctypes
import mmap
import os
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from tkdebug.compiler.sites.table import (
    SEEN_SOME,
    Report,
    packed_symptoms,
    reports,
    unpacked_symptoms,
)
from tkdebug.records.running_faults import COUNT, HEADER_BYTES, SHOWN, VERSION, Seen, seen
from tkdebug.runtime.cuda import check_memory, device, driver_api
from tkdebug.runtime.cuda.check_memory import MOST_TABLES, CudaCheckMemory
from tkdebug.runtime.cuda.device import EnteredContext
from tkdebug.runtime.errors import CudaError

STREAM = 7
OWN_STREAM = 8


class FakeDriver:
    """Streams that run when they are let to: the host's copies are filled then."""

    def __init__(self):
        self.memory = []
        self.done = []
        self.pending = []
        self.allocated = []
        self.status = 0
        self.is_capturing = 0
        self.can_register = True

    def call(self, name, *arguments):
        if name == "cuMemHostRegister":
            if not self.can_register:
                raise CudaError("cuMemHostRegister: CUDA_ERROR_NOT_SUPPORTED")
            return self.allocated.append((name, arguments[1]))
        if name == "cuMemHostGetDevicePointer":
            return arguments[0]
        if name in ("cuMemAlloc", "cuMemHostAlloc"):
            self.allocated.append((name, arguments[0]))
            self.memory.append(ctypes.create_string_buffer(arguments[0]))
            return ctypes.addressof(self.memory[-1])
        if name == "cuStreamSynchronize":
            return self.run()
        if name == "cuStreamCreate":
            return OWN_STREAM
        assert name == "cuEventCreate"
        return 100 + len(self.memory) + len(self.done)

    def zero(self, address, value, size, stream):
        ctypes.memset(address, value, size)
        self.done.append(("zero", size, stream))
        return self.status

    def fill(self, address, host, size, stream):
        ctypes.memmove(address, host, size)
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
            fill=self.fill,
            copy=self.copy,
            record=self.record,
            query=self.query,
            synchronize=self.synchronize,
            exchange_capture_mode=self.exchange_capture_mode,
        )


@pytest.fixture
def driver(monkeypatch):
    fake = FakeDriver()
    monkeypatch.setattr(check_memory, "_calls", fake.calls)
    monkeypatch.setattr(driver_api, "call", fake.call)
    return fake


@pytest.fixture
def memory(driver):
    gpu = SimpleNamespace(entered=nullcontext, make_current=lambda: None, maps_host_memory=1)
    return CudaCheckMemory(gpu)


def test_table_with_counters_is_zeroed_before_and_copied_behind_the_launch(driver, memory):
    table = memory.begin(64, STREAM, counters_bytes=64)
    ctypes.memset(table.address + 64, 5, 40)
    memory.end(table, STREAM)
    assert driver.done == [("zero", 128, STREAM), ("copy", 128, STREAM), ("record", STREAM)]
    assert memory.read(table) is None
    driver.run()
    assert memory.read(table) == bytes(64) + b"\5" * 40 + bytes(24)


def test_table_is_copied_where_the_launch_has_shown_something(driver, memory):
    table = memory.begin(128, STREAM)
    memory.end(table, STREAM)
    assert memory.read(table) == bytes(128)
    assert driver.done == [("zero", 128, STREAM), ("record", STREAM)]
    driver.done.clear()
    assert memory.begin(128, STREAM) is table
    slot = Report(1, 5, 4, 0, 0, 0, 5, masked=3).packed()
    write_slot(table, 1, slot)
    # The host may see a copy that is older than the slot.
    ctypes.c_uint64.from_address(table.shown + 64 + COUNT).value = 2
    memory.end(table, STREAM)
    assert list(reports(memory.read(table))) == [Report(1, 5, 4, 0, 0, 0, 5, masked=3)]
    assert driver.done == [("record", STREAM), ("copy", 128, OWN_STREAM)]


def test_symptoms_are_read_where_the_host_saw_that_there_are_some(driver, memory):
    table = memory.begin(128, STREAM)
    slot = packed_symptoms({"nan": (7, 0, 0)})
    ctypes.memmove(table.address + 64, slot, 64)
    ctypes.c_uint64.from_address(table.shown + 64).value = SEEN_SOME
    assert unpacked_symptoms(memory.seen(table)[64:]) == {}
    memory.end(table, STREAM)
    assert memory.read(table) == bytes(64) + slot
    driver.done.clear()
    assert memory.begin(128, STREAM) is table
    assert driver.done == [("zero", 128, STREAM)]
    assert memory.seen(table) == bytes(128)


def test_table_that_was_read_is_used_again_and_is_empty(driver, memory):
    first = memory.begin(128, STREAM)
    write_slot(first, 1, b"\5" * 64)
    memory.end(first, STREAM)
    assert memory.read(first, wait=True)[:64] == bytes(64)
    again = memory.begin(64, STREAM)
    assert again is first
    memory.end(again, STREAM)
    assert memory.read(again, wait=True) == bytes(64)
    assert len(driver.allocated) == 2


@pytest.mark.parametrize(
    ("left", "size", "is_zeroed"), [(0, 128, False), (0, 64, False), (0, 256, True), (5, 64, True)]
)
def test_table_that_was_left_empty_is_not_zeroed(driver, memory, left, size, is_zeroed):
    first = memory.begin(128, STREAM)
    for site in (0, 1) if left else ():
        write_slot(first, site, bytes([left]) * 64)
    memory.end(first, STREAM)
    memory.read(first, wait=True)
    driver.done.clear()
    again = memory.begin(size, STREAM, behind=b"\7" * 8)
    assert again is first
    assert (("zero", size, STREAM) in driver.done) == is_zeroed
    # The memory after it is no longer part of a larger one.
    memory.end(again, STREAM)
    assert memory.read(again, wait=True) == bytes(size)
    assert memory.begin(512, STREAM) is first
    memory.end(first, STREAM)
    assert memory.read(first, wait=True) == bytes(512)


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


@pytest.fixture
def shared(memory):
    """A function that gives what another process sees of the tables."""
    given = []
    SHOWN.follow(given.append)

    def look():
        (tables,) = given[-1:]
        with mmap.mmap(os.dup(tables.descriptor), 0) as mapped, memoryview(mapped) as view:
            return list(seen(view, tables.stride_bytes))

    yield look
    SHOWN.unfollow(given.append)


def raises(error):
    def fail(*arguments):
        raise error

    return fail


def write_slot(table, site, slot, version=2):
    """Write as a kernel does: into the device's memory, and into the host's by the header."""
    address = table.address + 64 * site
    shown = ctypes.c_int64.from_address(table.address - HEADER_BYTES).value
    assert shown
    for place in (address, address + shown):
        ctypes.memmove(place, slot, 64)
        ctypes.c_uint32.from_address(place + VERSION).value = version


def test_what_a_running_kernel_has_found_is_seen_by_another_process(memory, shared):
    table = memory.begin(128, STREAM)
    memory.show(table, 7, 3, 2)
    assert shared() == []
    write_slot(table, 1, Report(1, 5, 4, 0, 0, 0, 5).packed())
    assert shared() == [Seen(7, 3, 1, 5, 4)]
    found = list(reports(memory.seen(table)))
    assert [(one.site, one.count, one.program) for one in found] == [(1, 5, 4)]
    write_slot(table, 0, Report.flagged(0).packed())
    assert shared() == [Seen(7, 3, 0, 1, None), Seen(7, 3, 1, 5, 4)]


def test_slot_that_changes_now_is_not_given_out(memory, shared):
    table = memory.begin(128, STREAM)
    memory.show(table, 7, 3, 2)
    write_slot(table, 1, Report(1, 5, 4, 0, 0, 0, 5).packed(), version=3)
    assert shared() == []
    assert memory.seen(table) == bytes(128)


@pytest.mark.parametrize("ends", ["read", "dropped"])
def test_table_of_a_launch_that_was_read_is_nobodys_and_empty(memory, shared, ends):
    table = memory.begin(128, STREAM)
    memory.show(table, 7, 3, 2)
    write_slot(table, 1, Report(1, 5, 4, 0, 0, 0, 5).packed())
    memory.end(table, STREAM)
    if ends == "dropped":
        memory.drop(table)
        assert shared() == []
        return
    memory.read(table, wait=True)
    assert shared() == []
    again = memory.begin(128, STREAM)
    assert again is table
    memory.show(again, 8, 3, 2)
    assert shared() == []


@pytest.mark.parametrize("why", ["the driver", "the system"])
def test_memory_that_cannot_be_shared_is_seen_by_this_process(driver, memory, monkeypatch, why):
    driver.can_register = why == "the system"
    if driver.can_register:
        monkeypatch.setattr(os, "memfd_create", raises(OSError("not permitted")))
    table = memory.begin(64, STREAM)
    memory.show(table, 7, 3, 1)
    write_slot(table, 0, Report(0, 5, 4, 0, 0, 0, 5).packed())
    assert [one.count for one in reports(memory.seen(table))] == [5]


def test_gpu_that_maps_no_memory_shows_nothing(driver):
    gpu = SimpleNamespace(entered=nullcontext, make_current=lambda: None, maps_host_memory=0)
    memory = CudaCheckMemory(gpu)
    table = memory.begin(64, STREAM)
    assert ctypes.c_int64.from_address(table.address - HEADER_BYTES).value == 0
    assert memory.seen(table) == bytes(64)


def test_flags_that_the_host_saw_are_in_what_is_read_and_counters_behind_stay(driver, memory):
    table = memory.begin(2 * 64, STREAM, counters_bytes=24)
    flag = Report.flagged(1).packed()
    ctypes.memmove(table.shown + 64, flag, 64)
    ctypes.memmove(table.address + 128 + 8, (5).to_bytes(8, "little"), 8)
    memory.end(table, STREAM)
    wanted = bytes(64) + flag + bytes(8) + b"\5" + bytes(15)
    assert memory.read(table, wait=True) == wanted
    again = memory.begin(2 * 64, STREAM, counters_bytes=24)
    assert again is table
    memory.end(again, STREAM)
    ctypes.memset(again.address, 0, 2 * 64 + 24)
    assert memory.read(again, wait=True) == bytes(2 * 64 + 24)


def test_reports_with_counters_behind_of_which_none_counted(driver, memory):
    table = memory.begin(64, STREAM, counters_bytes=24)
    found = Report(0, 5, 4, 0, 0, 0, 5).packed()
    for place in (table.address, table.shown):
        ctypes.memmove(place, found, 64)
    memory.end(table, STREAM)
    assert memory.read(table, wait=True) == found + bytes(24)


def test_large_tables_have_no_sites_and_are_not_shown(driver, memory):
    size = 1 << 20
    table = memory.begin(0, STREAM, counters_bytes=size)
    assert table.shown == table.address
    ctypes.memset(table.address, 7, size)
    memory.end(table, STREAM)
    assert memory.read(table, wait=True) == b"\7" * size
    assert [name for name, _ in driver.allocated] == ["cuMemAlloc", "cuMemHostAlloc"]
    assert driver.allocated[1][1] < 33 * size


@pytest.mark.parametrize("behind", [b"", b"\5" * 128])
def test_launches_of_more_sites_see_nothing_of_those_before(driver, memory, behind):
    first = memory.begin(64, STREAM, behind)
    found = Report(0, 5, 4, 0, 0, 0, 5).packed()
    for place in (first.address, first.shown):
        ctypes.memmove(place, found, 64)
    memory.end(first, STREAM)
    assert memory.read(first, wait=True) == found
    for sites in (4, 8, 1):
        table = memory.begin(64 * sites, STREAM)
        assert table is first
        assert memory.seen(table) == bytes(64 * sites)
        memory.end(table, STREAM)
        assert memory.read(table, wait=True) == bytes(64 * sites)
