"""Tables of checked launches: zeroed, written and read in the order of the stream.

A table is memory of the device, where counting is cheap, with pinned memory of the host beside it.
Before the launch it is set to zero, unless the launch before left it so, and an event shows when
the launch has ended. A kernel that finds something writes into the host's memory as well, where
another process can see it (`records.running_faults`): a table with no findings there is not copied.
Counters are in the device's memory alone: a table that has some is copied after the launch.
Invariants: nothing here waits for a launch unless asked to; a table is used again when it has been
read.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import mmap
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from tkdebug.compiler.sites.live_memory import GONE, LIVE, AddressRange
from tkdebug.errors import TkError
from tkdebug.process.forks import renew_after_forks
from tkdebug.records.running_faults import (
    HEADER_BYTES,
    SHOWN,
    SLOT_BYTES,
    SharedTables,
    consistent_slot,
    erase_header,
    write_header,
)
from tkdebug.runtime.cuda import driver_api
from tkdebug.runtime.cuda.device import Device
from tkdebug.runtime.device.platform import Allocations, CheckRecords, CheckTable

MOST_TABLES = 256
# Tables of launches in CUDA graphs, which may be replayed until the process ends.
MOST_CAPTURED = 1024
_SMALLEST_BYTES = 1 << 12
_ALIGNMENT = 16
# Made together, as the driver takes a while for each piece of memory.
_MADE_TOGETHER = 32
_NO_TIMING = 2
# CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE and _DEVICEMAP (cuda.h)
_DEVICE_MAP = 2
_PORTABLE_MAP = 3
_WORD_BYTES = 8
# Larger tables have no sites, but readings of clocks.
_MOST_SHOWN = 1 << 18
# Launches whose records were not read yet.
MOST_RECORDS = 8
# CUstream_flags (cuda.h).
_NON_BLOCKING = 1
# CUstreamCaptureMode (cuda.h): what this thread does breaks no capture of another.
_RELAXED = 2
_NO_CONTEXT = (driver_api.INVALID_CONTEXT, driver_api.NOT_INITIALIZED)
_POOL_OF_ALL = (0, 0)
_ALLOCATED, _FREE = "active_allocated", "inactive"


class _Calls(NamedTuple):
    """Functions of the driver; handles are numbers."""

    is_capturing: Callable[..., int]
    zero: Callable[..., int]
    fill: Callable[..., int]
    copy: Callable[..., int]
    record: Callable[..., int]
    query: Callable[..., int]
    synchronize: Callable[..., int]
    exchange_capture_mode: Callable[..., int]


@cache
def _calls() -> _Calls:
    handle, size = ctypes.c_void_p, ctypes.c_size_t
    found = driver_api.raw_function
    return _Calls(
        found("cuStreamIsCapturing", handle, handle),
        found("cuMemsetD8Async", handle, ctypes.c_ubyte, size, handle),
        found("cuMemcpyHtoDAsync", handle, handle, size, handle),
        found("cuMemcpyDtoHAsync", handle, handle, size, handle),
        found("cuEventRecord", handle, handle),
        found("cuEventQuery", handle),
        found("cuEventSynchronize", handle),
        found("cuThreadExchangeStreamCaptureMode", handle, keeps_gil=True),
    )


class _HostMemory:
    """Memory of the host that the device writes to, and that another process may map.

    It stays until the process ends, since a kernel may write until then.

    Attributes:
        host: the address.
        address: the same address as the device sees it; None if it does not.
        descriptor: its file descriptor; -1 if no other process can map it.
        view: the view of its bytes.
    """

    def __init__(self, size_bytes: int, is_mapped: bool) -> None:
        self.descriptor = -1
        self.address: int | None = None
        if is_mapped and hasattr(os, "memfd_create"):
            with contextlib.suppress(OSError, TkError):
                self._share(size_bytes)
        if self.address is None:
            self.host = int(
                driver_api.call("cuMemHostAlloc", size_bytes, _DEVICE_MAP if is_mapped else 0)
            )
            if is_mapped:
                self.address = int(driver_api.call("cuMemHostGetDevicePointer", self.host, 0))
        self.view = memoryview((ctypes.c_ubyte * size_bytes).from_address(self.host)).cast("B")

    def _share(self, size_bytes: int) -> None:
        descriptor = os.memfd_create("tkdebug-tables", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, size_bytes)
            memory = mmap.mmap(descriptor, size_bytes)
            host = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            driver_api.call("cuMemHostRegister", host, size_bytes, _PORTABLE_MAP)
            # Python would unmap it when the interpreter ends.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
            address = int(driver_api.call("cuMemHostGetDevicePointer", host, 0))
        except BaseException:
            os.close(descriptor)
            raise
        self.host, self.address, self.descriptor = host, address, descriptor


class _Table:
    """One table.

    Attributes:
        address: its address on the device.
        size_bytes: the size of the part that is used now.
        shown: the host's view of it, as the device addresses it.
        host: address of its copy.
        event: recorded after the launch, and after the copy if there is one.
        behind: the address of the memory after the table that the launch reads.
        capacity_bytes: the size of both.
        is_copied: whether all of it is copied to the host after the launch.
        is_fresh: whether the device's memory has no header yet.
        zero_bytes: the number of the device's bytes that are known to be zero, from the first one
            on.
        memory: the memory that `host` is in.
    """

    __slots__ = (
        "_at",
        "_is_mapped",
        "_is_shown",
        "_shown_at",
        "address",
        "behind",
        "capacity_bytes",
        "event",
        "host",
        "is_copied",
        "is_fresh",
        "memory",
        "shown",
        "size_bytes",
        "zero_bytes",
    )

    def __init__(self, address: int, memory: _HostMemory, at: int, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.size_bytes = 0
        self.is_copied = False
        self.address = self.behind = address + HEADER_BYTES
        self.memory, self._at = memory, at
        # The copy lies after the capacity of the shown slots: a later launch may have more sites.
        self._shown_at = memory.host + at + HEADER_BYTES
        self._is_mapped = memory.address is not None
        self.host = self._shown_at + capacity_bytes * self._is_mapped
        self.event = int(driver_api.call("cuEventCreate", _NO_TIMING))
        self.is_fresh = True
        self.zero_bytes = 0
        self._is_shown = False
        moved = 0 if memory.address is None else memory.address + at - address
        self.shown = self.address + moved
        ctypes.c_int64.from_address(memory.host + at).value = moved

    @property
    def header(self) -> tuple[int, int]:
        """Addresses of the first word on the device and in the host's memory."""
        return self.address - HEADER_BYTES, self.memory.host + self._at

    def show(self, launch: int, number: int, sites: int) -> None:
        """Write the header of the shown table."""
        write_header(self.memory.view, self._at, launch, number, sites)
        self._is_shown = True

    def hide(self) -> None:
        """Erase that header, if it was written."""
        if self._is_shown:
            erase_header(self.memory.view, self._at)
            self._is_shown = False

    def use(self, slots_bytes: int, counters_bytes: int) -> None:
        """Set the number of bytes that the next launch uses."""
        self.size_bytes = slots_bytes + counters_bytes
        self.is_copied = bool(counters_bytes) or not self._is_mapped

    def found(self, fetch: Callable[[int, int], bytes | bytearray]) -> bytes:
        """Return what the launch wrote, and set the host's view to zero.

        Args:
            fetch: copies bytes of the device, by address and size.
        """
        size = self.size_bytes
        shown = ctypes.string_at(self._shown_at, size) if self._is_mapped else b""
        is_shown = shown.count(0) != len(shown)
        if self.is_copied:
            copied = ctypes.string_at(self.host, size)
        else:
            copied = bytes(fetch(self.address, size) if is_shown else size)
        self.zero_bytes = size if copied.count(0) == size else 0
        if not is_shown:
            return copied
        ctypes.memset(self._shown_at, 0, size)
        slots = range(0, size, SLOT_BYTES)
        parts = [(copied[at : at + SLOT_BYTES], shown[at : at + SLOT_BYTES]) for at in slots]
        # Flags are in what was shown alone.
        return b"".join(one if one.count(0) != len(one) else other for one, other in parts)

    def seen(self) -> bytes:
        """The shown slots now; zeros for a slot that changed at each try to read it."""
        first = self._at + HEADER_BYTES
        count = self.size_bytes // SLOT_BYTES if self._is_mapped else 0
        places = range(first, first + count * SLOT_BYTES, SLOT_BYTES)
        empty = bytes(SLOT_BYTES)
        slots = [consistent_slot(self.memory.view, place) or empty for place in places]
        return b"".join(slots).ljust(self.size_bytes, b"\0")


class _Records:
    """Memory of the host that the device writes to.

    Attributes:
        address: the address as the device sees it.
    """

    __slots__ = ("address", "capacity_bytes", "host")

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.host = int(driver_api.call("cuMemHostAlloc", capacity_bytes, _DEVICE_MAP))
        self.address = int(driver_api.call("cuMemHostGetDevicePointer", self.host, 0))

    def content(self, first_byte: int, size_bytes: int) -> bytes:
        """Return a part of the records."""
        assert first_byte + size_bytes <= self.capacity_bytes
        return ctypes.string_at(self.host + first_byte, size_bytes)


class CudaCheckMemory:
    """The tables of one GPU."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._calls = _calls()
        self.renew_locks()
        renew_after_forks(self)

    def renew_locks(self) -> None:
        """Forget the parent's tables in a forked child, where CUDA is not to be used."""
        self._lock = threading.Lock()
        self._free: dict[int, list[_Table]] = {}
        self._free_captured: dict[int, list[_Table]] = {}
        self._captured = 0
        self._stream: int | None = None
        self._made = 0
        self._free_records: list[_Records] = []
        self._used_records = 0

    def begin(
        self, slots_bytes: int, stream: int, behind: bytes = b"", counters_bytes: int = 0
    ) -> CheckTable | None:
        """Return a table of zeros for the next launch on `stream`, or None while none is free."""
        size_bytes = slots_bytes + counters_bytes
        offset = -(-size_bytes // _ALIGNMENT) * _ALIGNMENT
        table = self._take(offset + len(behind))
        if table is None:
            return None
        table.use(slots_bytes, counters_bytes)
        table.behind = table.address + offset
        if table.is_fresh:
            there, here = table.header
            self._do("cuMemcpyHtoDAsync", self._calls.fill, there, here, _WORD_BYTES, stream)
            table.is_fresh = False
        if table.zero_bytes < size_bytes:
            self._do("cuMemsetD8Async", self._calls.zero, table.address, 0, size_bytes, stream)
        table.zero_bytes = 0
        if behind:
            # Nobody writes there before the table is read, which the launch's end comes before.
            host = table.host + offset
            ctypes.memmove(host, behind, len(behind))
            self._do("cuMemcpyHtoDAsync", self._calls.fill, table.behind, host, len(behind), stream)
        return table

    def begin_captured(self, slots_bytes: int) -> CheckTable | None:
        """Return a table of zeros for a launch that a graph captures; None if there is none.

        The table is never free again.
        """
        capacity = _capacity(slots_bytes)
        if not self._device.maps_host_memory or capacity > _MOST_SHOWN:
            return None
        with self._lock:
            if self._captured >= MOST_CAPTURED:
                return None
            self._captured += 1
            free = self._free_captured.setdefault(capacity, [])
            if not free:
                free += self._make(capacity)
            table = free.pop()
        table.use(slots_bytes, 0)
        there, here = table.header
        with self._apart() as stream:
            self._do("cuMemcpyHtoDAsync", self._calls.fill, there, here, _WORD_BYTES, stream)
            self._do("cuMemsetD8Async", self._calls.zero, table.address, 0, slots_bytes, stream)
        return table

    def read_captured(self, table: CheckTable) -> bytes:
        """Return the reports of a captured launch since the last call; zeros for nothing."""
        assert isinstance(table, _Table)
        seen = table.seen()
        return seen if seen.count(0) == len(seen) else table.found(self.fetch)

    def wait(self) -> None:
        """Wait for all that the device has to do."""
        with self._relaxed():
            driver_api.call("cuCtxSynchronize")

    def _take(self, size_bytes: int) -> _Table | None:
        capacity = _capacity(size_bytes)
        with self._lock:
            free = self._free.setdefault(capacity, [])
            if free:
                return free.pop()
            if self._made >= MOST_TABLES:
                return None
            self._made += _MADE_TOGETHER
        try:
            first, *others = self._make(capacity)
        except TkError:
            with self._lock:
                self._made -= _MADE_TOGETHER
            raise
        with self._lock:
            free += others
        return first

    def _make(self, capacity_bytes: int) -> list[_Table]:
        # Allocating is forbidden while some thread captures, but for one that is relaxed.
        with self._relaxed():
            is_mapped = bool(self._device.maps_host_memory) and capacity_bytes <= _MOST_SHOWN
            # The host's view, followed by a copy.
            stride = HEADER_BYTES + (1 + is_mapped) * capacity_bytes
            there = HEADER_BYTES + capacity_bytes
            address = int(driver_api.call("cuMemAlloc", there * _MADE_TOGETHER))
            memory = _HostMemory(stride * _MADE_TOGETHER, is_mapped)
            tables = [
                _Table(address + place * there, memory, place * stride, capacity_bytes)
                for place in range(_MADE_TOGETHER)
            ]
        if memory.descriptor >= 0:
            SHOWN.put(SharedTables(memory.descriptor, stride))
        return tables

    def show(self, table: CheckTable, launch: int, number: int, sites: int) -> None:
        """Name the launch of a shown table in its header."""
        assert isinstance(table, _Table)
        table.show(launch, number, sites)

    def hide(self, table: CheckTable) -> None:
        """Erase the header of a shown table."""
        assert isinstance(table, _Table)
        table.hide()

    def seen(self, table: CheckTable) -> bytes:
        """Return the launch's findings so far that the host sees, without asking the GPU."""
        assert isinstance(table, _Table)
        return table.seen()

    def end(self, table: CheckTable, stream: int) -> None:
        """Mark the end of the launch that was made on `stream`; `read` asks for it."""
        assert isinstance(table, _Table)
        calls, size = self._calls, table.size_bytes
        if table.is_copied:
            self._do("cuMemcpyDtoHAsync", calls.copy, table.host, table.address, size, stream)
        self._do("cuEventRecord", calls.record, table.event, stream)

    def read(self, table: CheckTable, wait: bool = False) -> bytes | None:
        """Return the table as its launch left it, or None before the launch has ended."""
        assert isinstance(table, _Table)
        with self._relaxed():
            ask = self._calls.synchronize if wait else self._calls.query
            status = ask(table.event)
        if status == driver_api.NOT_READY:
            return None
        if status:
            raise driver_api.cuda_error(status, "what a checked launch found")
        found = table.found(self.fetch)
        table.hide()
        self._give_back(table)
        return found

    def drop(self, table: CheckTable) -> None:
        """Give up a table: a running kernel may still write into it, so it is not used again."""
        assert isinstance(table, _Table)
        table.hide()
        with self._lock:
            self._made -= 1

    def begin_records(self, size_bytes: int) -> CheckRecords | None:
        """Return memory for records of one launch, or None while `MOST_RECORDS` are in use.

        Raises:
            TkError: the GPU cannot write to the host's memory, or there is none.
        """
        if not self._device.maps_host_memory:
            raise TkError(
                f"{self._device.name} cannot write to the host's memory, which watched values "
                "need; use `tkdebug run --mode interpret`"
            )
        with self._lock:
            if self._used_records >= MOST_RECORDS:
                return None
            self._used_records += 1
            for place, one in enumerate(self._free_records):
                if one.capacity_bytes >= size_bytes:
                    return self._free_records.pop(place)
        try:
            with self._relaxed():
                return _Records(size_bytes)
        except TkError:
            with self._lock:
                self._used_records -= 1
            raise

    def end_records(self, records: CheckRecords) -> None:
        """Free records that were read."""
        assert isinstance(records, _Records)
        with self._lock:
            self._used_records -= 1
            self._free_records.append(records)

    def allocations(self) -> Allocations:
        """Return the allocations of torch's allocator in the device's memory."""
        return torchs_allocations(self._device.index)

    def is_capturing(self, stream: int) -> bool:
        """Whether launches on `stream` become part of a graph."""
        capturing = ctypes.c_int()
        place = ctypes.addressof(capturing)
        status = self._calls.is_capturing(stream, place)
        if status in _NO_CONTEXT:
            # A thread that has called nothing of CUDA yet, such as autograd's.
            self._device.make_current()
            status = self._calls.is_capturing(stream, place)
        # Where the question is forbidden, some stream captures, and so is the launch.
        return bool(status or capturing.value)

    def fetch(self, address: int, size_bytes: int) -> bytearray:
        """Copy the device's memory as it is now, by a stream that waits for no other."""
        found = bytearray(size_bytes)
        place = ctypes.addressof((ctypes.c_char * size_bytes).from_buffer(found))
        with self._apart() as stream:
            self._do("cuMemcpyDtoHAsync", self._calls.copy, place, address, size_bytes, stream)
        return found

    @contextlib.contextmanager
    def _apart(self) -> Iterator[int]:
        """Enter a stream that waits for no other, and wait for its work at the end."""
        with self._relaxed():
            if self._stream is None:
                self._stream = int(driver_api.call("cuStreamCreate", _NON_BLOCKING))
            yield self._stream
            driver_api.call("cuStreamSynchronize", self._stream)

    @contextlib.contextmanager
    def _relaxed(self) -> Iterator[None]:
        """Enter the device, where calls do not break the capture of a graph."""
        mode = ctypes.c_int(_RELAXED)
        with self._device.entered():
            self._calls.exchange_capture_mode(ctypes.addressof(mode))
            try:
                yield
            finally:
                self._calls.exchange_capture_mode(ctypes.addressof(mode))

    def _give_back(self, table: _Table) -> None:
        with self._lock:
            self._free.setdefault(table.capacity_bytes, []).append(table)

    def _do(self, name: str, function: Callable[..., int], *arguments: Any) -> None:
        status = function(*arguments)
        if status:
            raise driver_api.cuda_error(status, f"checked launch: {name}")


def _capacity(size_bytes: int) -> int:
    return max(_SMALLEST_BYTES, 1 << (size_bytes - 1).bit_length())


@cache
def check_memory(device: Device) -> CudaCheckMemory:
    """The tables of `device`."""
    return CudaCheckMemory(device)


def torchs_allocations(device: int) -> Allocations:
    """Return the allocations of torch's own allocator on a GPU; none if another one is in force.

    Args:
        device: its index.
    """
    import torch

    if torch.cuda.memory.get_allocator_backend() != "native":
        return Allocations()
    segments = torch.cuda.memory.memory_snapshot(**_options())  # type: ignore[no-untyped-call]
    return allocations_of(one for one in segments if one["device"] == device)


def allocations_of(segments: Iterable[Mapping[str, Any]]) -> Allocations:
    """Return the allocations in segments, as a snapshot of torch's allocator has these.

    A block that waits for a stream to pass counts as live. So does all memory of a pool of its own:
    in the pool of a captured graph, tensors are freed to which its replays write.
    """
    spans = [span for segment in segments for span in _spans(segment)]
    return Allocations(
        [span for state, span in spans if state == LIVE and span.first < span.end],
        [span for state, span in spans if state == GONE and span.first < span.end],
    )


def _spans(segment: Mapping[str, Any]) -> Iterator[tuple[int, AddressRange]]:
    at = segment["address"]
    if tuple(segment.get("segment_pool_id", _POOL_OF_ALL)) != _POOL_OF_ALL:
        yield LIVE, AddressRange(at, at + segment["total_size"])
        return
    for block in segment["blocks"]:
        end = at + block["size"]
        if block["state"] == _FREE:
            yield GONE, AddressRange(at, end)
        else:
            asked = block.get("requested_size", 0) if block["state"] == _ALLOCATED else 0
            used = at + (asked or block["size"])
            yield LIVE, AddressRange(at, used)
            yield GONE, AddressRange(used, end)
        at = end


@cache
def _options() -> dict[str, bool]:
    """Return the options that leave histories out of a memory snapshot, if torch has them."""
    import torch

    known = inspect.signature(torch.cuda.memory.memory_snapshot).parameters
    return {"include_traces": False} if "include_traces" in known else {}
