"""Native launches of kernels that load pointers: the map they are given, and what they tell."""

from __future__ import annotations

import struct

import pytest
import torch
from schedule_backend import ScheduleBackend
from simulated_checks import CheckedPrinter

import tkdebug
import tkdebug.language as tl
from tkdebug import knobs
from tkdebug.compiler.sites.live_memory import GONE, LIVE, UNKNOWN, AddressRange
from tkdebug.compiler.sites.table import PLACES, Report, table_bytes
from tkdebug.compiler.targets import register_backend
from tkdebug.compiler.targets.registered_backends import forget_backend
from tkdebug.interpreter.memory import address_registry
from tkdebug.interpreter.memory.address_registry import AddressRegistry, watch_addresses
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.checked import passed_arguments
from tkdebug.runtime.checked.checked_launches import CHECKED
from tkdebug.runtime.device.platform import Allocations, platform


@pytest.fixture
def printer(monkeypatch):
    addresses = AddressRegistry()
    monkeypatch.setattr(address_registry, "ADDRESSES", addresses)
    monkeypatch.setattr(passed_arguments, "ADDRESSES", addresses)
    register_backend(ScheduleBackend())
    device = CheckedPrinter()
    CHECKED.renew_locks()
    stop = watch_addresses()
    try:
        with platform(device), knobs.scope(check_launches="all"):
            yield device
    finally:
        stop()
        forget_backend("schedule")
        CHECKED.renew_locks()


@pytest.fixture
def faults():
    found = []
    hook = Hook(fault=found.append)
    HOOKS.add(hook)
    yield found
    HOOKS.remove(hook)


def make_copy():
    @tkdebug.jit
    def copy(table, out, BLOCK: tl.constexpr):
        row = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
        at = tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(row + at))

    return copy


def make_addresses():
    @tkdebug.jit
    def addresses(x, table):
        tl.store(table, x.to(tl.int64))

    return addresses


def launched(printer, *tensors):
    """The map of a launch, and the address of it that the kernel got."""
    maps = []

    def finds(plan, bounds):
        (table,) = printer.memory.tables.values()
        maps.append((table.behind_it, table.behind, bounds))
        return bytes(plan.table_bytes)

    printer.finds = finds
    make_copy()[(2,)](torch.tensor(tensors), torch.zeros(8), BLOCK=8)
    ((packed, behind, bounds),) = maps
    return packed, behind, bounds


def state_at(packed, address):
    (count, _), *entries = struct.iter_unpack("=QQ", packed)
    assert count == len(entries)
    return max(entry for entry in entries if entry[0] <= address)[1]


def test_launch_is_given_the_map_behind_its_table(printer):
    packed, behind, bounds = launched(printer, 1, 2)
    (table_first, table_end), (first, end), (out, out_end) = zip(
        bounds[::PLACES], bounds[1::PLACES], strict=True
    )
    assert (table_end - table_first, out_end - out) == (16, 32)
    assert (first, end) == (behind, behind + len(packed))
    # Its own arguments are live, nothing else is known.
    assert [state_at(packed, at) for at in (out, out_end - 1)] == [LIVE, LIVE]
    assert state_at(packed, 1 << 50) == UNKNOWN
    assert state_at(packed, 8) == GONE


def test_map_has_what_the_allocator_gave_out(printer):
    at = 1 << 44
    printer.memory.given = Allocations(
        [AddressRange(at, at + 400)], [AddressRange(at + 400, at + 1024)]
    )
    packed, _, _ = launched(printer, 1)
    states = [state_at(packed, at + offset) for offset in (-1, 0, 399, 400, 1023, 1024)]
    assert states == [UNKNOWN, LIVE, LIVE, GONE, GONE, UNKNOWN]


@pytest.mark.parametrize("are_stored", [False, True])
def test_block_that_was_freed_and_given_out_again(printer, are_stored):
    freed = torch.zeros(1 << 18)
    at = freed.data_ptr()
    block = AddressRange(at, at + (1 << 20))
    printer.memory.given = Allocations([block])
    packed, _, _ = launched(printer, at)
    assert state_at(packed, at) == LIVE
    del freed
    if are_stored:
        # So that its address may be known to nobody.
        make_addresses()[(1,)](torch.zeros(4), torch.zeros(1, dtype=torch.int64))
    packed, _, _ = launched(printer, at)
    assert state_at(packed, at + 64) == (LIVE if are_stored else GONE)


@pytest.mark.parametrize("is_reused", [False, True])
def test_freed_tensor_is_told_as_such(printer, faults, is_reused):
    freed = torch.zeros(1 << 18)
    at = freed.data_ptr()
    table = torch.tensor([at])
    del freed
    block = [AddressRange(at, at + (1 << 20))]
    printer.memory.given = Allocations(*((block, ()) if is_reused else ((), block)))

    def finds(plan, bounds):
        site = next(site.number for site in plan.sites if site.is_loaded)
        report = Report(site, 8, 0, 1, 0, at, 8, 0, True, at)
        slots = [bytes(table_bytes(1))] * len(plan.sites)
        slots[site] = report.packed()
        return b"".join(slots)

    printer.finds = finds
    make_copy()[(1,)](table, torch.zeros(8), BLOCK=8)
    CHECKED.collect()
    (fault,) = faults
    assert (fault.kind, fault.index, fault.tensor, fault.count) == ("oob-load", at, None, 8)
    assert fault.message == f"load reads address {at:#x}, which belongs to no tensor"
    fate = "which is freed, and whose memory another has" if is_reused else "which is freed"
    assert f"a torch.float32 tensor of shape [262144], {fate}: keep" in fault.hint


def test_element_astray_is_told_by_the_tensor_of_its_pointer(printer, faults):
    row = torch.zeros(4)
    at = row.data_ptr()

    def finds(plan, bounds):
        site = next(site.number for site in plan.sites if site.is_loaded)
        report = Report(site, 4, 0, 1, 4, at + 16, 4, 0, True, at)
        slots = [bytes(table_bytes(1))] * len(plan.sites)
        slots[site] = report.packed()
        return b"".join(slots)

    printer.finds = finds
    make_copy()[(1,)](torch.tensor([at]), torch.zeros(8), BLOCK=8)
    CHECKED.collect()
    (fault,) = faults
    assert (fault.index, fault.legal, fault.lane) == (4, (0, 4), (4,))
    assert fault.message == "load reads offset 4 of memory, which has 4 elements (legal: 0 to 3)"
