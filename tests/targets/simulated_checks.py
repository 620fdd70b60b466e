"""Devices on which launches of checked builds are made up: what each finds is said by the test."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from schedule_backend import PRINTER, PrinterPlatform, ScheduleBackend

from tkdebug.compiler.sites.checks import CheckOptions, CheckPlan
from tkdebug.compiler.targets import register_backend
from tkdebug.compiler.targets.registered_backends import forget_backend
from tkdebug.errors import TkError
from tkdebug.knobs import KNOBS
from tkdebug.runtime.checked.checked_launches import CHECKED
from tkdebug.runtime.device.platform import Allocations, LaunchableKernel, platform

# (plan, address of the table's launch, bounds) -> the table.
Finds = Callable[[CheckPlan, tuple[int, ...]], bytes]


@dataclass(eq=False)
class SimulatedTable:
    address: int
    size_bytes: int
    behind_it: bytes = b""
    content: bytes = b""
    has_ended: bool = False
    seen: bytes = b""
    header: tuple[int, int, int] = (0, 0, 0)

    @property
    def shown(self) -> int:
        return self.address

    @property
    def behind(self) -> int:
        return self.address + self.size_bytes


@dataclass(eq=False)
class SimulatedMemory:
    """Tables; launches end at once, or where `holds` when `let_end` is called."""

    most: int = 256
    holds: bool = False
    fails: bool = False
    capturing: set[int] = field(default_factory=set)
    tables: dict[int, SimulatedTable] = field(default_factory=dict)
    waited: int = 0
    given: Allocations = field(default_factory=Allocations)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def begin(
        self, slots_bytes: int, stream: int, behind: bytes = b"", counters_bytes: int = 0
    ) -> SimulatedTable | None:
        size_bytes = slots_bytes + counters_bytes
        if len(self.tables) >= self.most:
            return None
        address = 4096 * next(self.numbers)
        table = self.tables[address] = SimulatedTable(
            address, size_bytes, behind, bytes(size_bytes)
        )
        return table

    def end(self, table: SimulatedTable, stream: int) -> None:
        table.has_ended = not self.holds

    def read(self, table: SimulatedTable, wait: bool = False) -> bytes | None:
        if self.fails:
            raise TkError("the device failed")
        if not table.has_ended and not wait:
            return None
        self.waited += not table.has_ended
        del self.tables[table.address]
        return table.content

    def show(self, table: SimulatedTable, launch: int, number: int, sites: int) -> None:
        table.header = (launch, number, sites)

    def hide(self, table: SimulatedTable) -> None:
        table.header = (0, 0, 0)

    def seen(self, table: SimulatedTable) -> bytes:
        return table.seen or bytes(table.size_bytes)

    def drop(self, table: SimulatedTable) -> None:
        del self.tables[table.address]

    def allocations(self) -> Allocations:
        return self.given

    def is_capturing(self, stream: int) -> bool:
        return stream in self.capturing

    def begin_captured(self, slots_bytes: int) -> SimulatedTable | None:
        return self.begin(slots_bytes, 0)

    def read_captured(self, table: SimulatedTable) -> bytes:
        found, table.content = table.content, bytes(table.size_bytes)
        return found

    def wait(self) -> None:
        self.waited += 1

    def fetch(self, address: int, size_bytes: int) -> bytearray:
        return bytearray(ctypes.string_at(address, size_bytes))

    def let_end(self) -> None:
        for table in self.tables.values():
            table.has_ended = True


@dataclass(eq=False)
class Records:
    """Memory of the host that the device writes to."""

    memory: torch.Tensor

    @property
    def address(self) -> int:
        return self.memory.data_ptr()

    def content(self, first_byte: int, size_bytes: int) -> bytes:
        return self.memory.numpy().tobytes()[first_byte : first_byte + size_bytes]


@dataclass(eq=False)
class MappedMemory(SimulatedMemory):
    most_records: int = 2
    is_mapped: bool = True
    records: dict[int, Records] = field(default_factory=dict)

    def begin_records(self, size_bytes: int) -> Records | None:
        if not self.is_mapped:
            raise TkError("the printer cannot write to the host's memory")
        if len(self.records) >= self.most_records:
            return None
        made = Records(torch.full((size_bytes // 8,), -1, dtype=torch.int64))
        self.records[made.address] = made
        return made

    def end_records(self, records: Records) -> None:
        del self.records[records.address]


@contextmanager
def in_use(device: PrinterPlatform, **options: Any) -> Iterator[PrinterPlatform]:
    """Launches in here are made on that device, under these knobs; none is pending before."""
    register_backend(ScheduleBackend())
    CHECKED.renew_locks()
    try:
        with platform(device), KNOBS.scope(**options):
            yield device
    finally:
        forget_backend("schedule")
        CHECKED.renew_locks()


@dataclass(eq=False)
class CheckedPrinter(PrinterPlatform):
    """Remembers launches, and which of them were checked: `is_checked`, one for each launch.

    `builds` are the checks of what was loaded, None of bare kernels.
    """

    memory: SimulatedMemory = field(default_factory=SimulatedMemory)
    finds: Finds | None = None
    is_checked: list[bool] = field(default_factory=list)
    bounds: list[tuple[int, ...]] = field(default_factory=list)
    builds: list[CheckOptions | None] = field(default_factory=list)

    def check_memory(self, device: int) -> SimulatedMemory:
        return self.memory

    def load(self, kernel: Any) -> LaunchableKernel:
        plan = kernel.binary.checks
        self.builds.append(kernel.src.checks)

        def submit(x: int, y: int, z: int, stream: int, *arguments: Any) -> None:
            if plan is not None:
                *arguments, (address, _, *bounds) = arguments
                self.bounds.append(tuple(bounds))
                if self.finds is not None:
                    self.memory.tables[address].content = self.finds(plan, tuple(bounds))
            self.is_checked.append(plan is not None)
            self.launches.append(((x, y, z), stream, tuple(arguments)))

        return LaunchableKernel(1, 1, 1, 0, PRINTER.threads_per_block, submit)
