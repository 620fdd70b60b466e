"""Findings of running native launches, as the recording process sees them."""

import mmap
import os
import struct
import time

import pytest

from tkdebug.compiler.sites.table import Report
from tkdebug.errors import Frame
from tkdebug.instrument.recording_process import received
from tkdebug.instrument.recording_process.client import RecordingProcess
from tkdebug.instrument.session import Session
from tkdebug.instrument.session_file.creation import RunStart, create_session
from tkdebug.instrument.session_file.queued_events import LaunchStarted
from tkdebug.records.running_faults import (
    HEADER_BYTES,
    SLOT_BYTES,
    SharedTables,
    ShownKernel,
    SiteText,
    erase_header,
    write_header,
)

STRIDE = HEADER_BYTES + 4 * SLOT_BYTES
FRAME = Frame("kernel.py", 12, "k")
KERNEL = ShownKernel(
    3,
    "k",
    (SiteText("oob-load", (FRAME,), "x", "open"), SiteText("oob-store", (FRAME,), None, "open")),
)


class Tables:
    """Memory that a device would write to."""

    def __init__(self):
        self.descriptor = os.memfd_create("tables")
        os.ftruncate(self.descriptor, 2 * STRIDE)
        self.view = memoryview(mmap.mmap(self.descriptor, 0))

    def find(self, table, site, report):
        at = table * STRIDE + HEADER_BYTES + site * SLOT_BYTES
        self.view[at : at + SLOT_BYTES] = report.packed()


@pytest.fixture
def tables():
    return Tables()


@pytest.fixture
def process(tmp_path):
    path = tmp_path / "run.tkd"
    lock = create_session(path, RunStart("script.py", (), "native"))
    process = RecordingProcess(path)
    process.begin()
    process.put(LaunchStarted(7, "k", "hash", "native", (2, 3, 1), {}, (), 0, 5, ()))
    yield process
    process.close()
    lock.release()


def faults_of(process, wanted):
    """The faults in the session, once there are so many."""
    ends_s = time.monotonic() + 60
    while True:
        with Session.open(process.path) as session:
            found = session.fault_groups()
        if len(found) == wanted or time.monotonic() > ends_s:
            return found
        time.sleep(0.05)


def show(process, tables):
    process.show_checked(SharedTables(tables.descriptor, STRIDE))
    process.show_checked(KERNEL)


def test_faults_are_in_the_session_while_the_launch_runs(process, tables):
    show(process, tables)
    write_header(tables.view, STRIDE, 7, 3, 2)
    tables.find(1, 0, Report(0, 5, 3, 0, 0, 0, 5))
    (group,) = faults_of(process, 1)
    fault = group.fault
    assert (fault.kind, fault.kernel, fault.line, fault.tensor) == ("oob-load", "k", 12, "x")
    assert (group.count, fault.launch_id, fault.program_id) == (5, 7, (1, 1, 0))
    assert fault.message == "found while its launch runs, 5 or more so far"
    tables.find(1, 1, Report.flagged(1))
    _, other = faults_of(process, 2)
    assert (other.fault.kind, other.fault.program_id) == ("oob-store", None)
    erase_header(tables.view, STRIDE)
    assert faults_of(process, 0) == ()


def test_what_a_killed_script_had_found_stays(process, tables):
    write_header(tables.view, 0, 7, 3, 2)
    tables.find(0, 0, Report(0, 5, 3, 0, 0, 0, 5))
    show(process, tables)
    process.close()
    assert len(faults_of(process, 1)) == 1


def test_launch_of_a_kernel_that_is_not_known_waits(process, tables):
    write_header(tables.view, 0, 7, 4, 2)
    tables.find(0, 0, Report(0, 5, 3, 0, 0, 0, 5))
    show(process, tables)
    process.flush()
    time.sleep(2 * received.LOOK_S)
    assert faults_of(process, 0) == ()
    process.show_checked(KERNEL._replace(number=4))
    assert len(faults_of(process, 1)) == 1


def test_header_that_lies_is_passed_over():
    faults = received.RunningFaults()
    memory = bytearray(2 * STRIDE + 10)
    struct.pack_into("=QQII", memory, 0, 0, 7, 3, 1 << 30)
    struct.pack_into("=QQII", memory, STRIDE, 0, 7, 3, 2)
    memory[STRIDE + HEADER_BYTES] = 1
    faults.add_tables(memoryview(memory), STRIDE)
    faults.add_kernel(KERNEL._replace(sites=KERNEL.sites[:1]))
    found = faults.look(is_last=True)
    assert [(one.launch_id, one.site) for one in found.faults] == [(7, 0)]
    assert faults.look(is_last=True) is None


def test_sites_nobody_is_told_of_and_numbers_beyond_any_are_passed_over():
    faults = received.RunningFaults()
    memory = bytearray(STRIDE)
    write_header(memoryview(memory), 0, 7, 3, 2)
    memory[HEADER_BYTES] = memory[HEADER_BYTES + SLOT_BYTES] = 1
    faults.add_tables(memoryview(memory), STRIDE)
    silent, told = KERNEL.sites[0]._replace(state=None), KERNEL.sites[1]._replace(state="ignored")
    faults.add_kernel(KERNEL._replace(sites=(silent, told)))
    assert [(one.site, one.state) for one in faults.look(is_last=True).faults] == [(1, "ignored")]
    struct.pack_into("=Q", memory, HEADER_BYTES + SLOT_BYTES, 1 << 63)
    assert faults.look(is_last=True).faults == ()


def test_descriptors_find_their_messages_in_any_order(process, tables):
    other = Tables()
    write_header(other.view, 0, 7, 3, 2)
    other.find(0, 0, Report(0, 5, 3, 0, 0, 0, 5))
    sent = []
    send, process.send = process.send, lambda *message: sent.append(message)
    show(process, tables)
    process.show_checked(SharedTables(other.descriptor, STRIDE))
    process.send = send
    for message in reversed(sent):
        process.send(*message)
    assert len(faults_of(process, 1)) == 1
