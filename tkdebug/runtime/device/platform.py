"""Platforms, the kinds of device that kernels run on: the protocol, and the one in force.

A platform launches the code of the backend that it names (`compiler/targets/backend.py`). CUDA's is
in `runtime/cuda/`; nothing else in `runtime` calls a device's driver.

A platform's devices may write dumps of kernels that crash or hang. `compat.gpu_failures` decides
when dumps are switched on, asked for and looked for; the platform reads their files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tkdebug.compiler.ir import Module
    from tkdebug.compiler.sites.live_memory import AddressRange
    from tkdebug.compiler.targets.backend import Binary
    from tkdebug.compiler.targets.machine_parts import MachineParts
    from tkdebug.records.events import Fault
    from tkdebug.runtime.compile.specialization import Specialization
    from tkdebug.runtime.launch.allocation import Buffer
    from tkdebug.runtime.launch.launches_in_flight import InFlight


@dataclass(frozen=True, slots=True)
class DumpSettings:
    """Settings that switch dumps on.

    Attributes:
        pattern: file name as `CrashDumps.expanded` takes it.
        is_owned: whether the files are tkdebug's, to be deleted once they are read.
        variables: environment variables, to be set before the device is first used.
        pipe: pattern of the file that a request for a dump is written into; None for no requests.
    """

    pattern: str
    is_owned: bool
    variables: Mapping[str, str]
    pipe: str | None = None


@dataclass(frozen=True, slots=True)
class CrashReport:
    """The content of a dump.

    Attributes:
        device: name of the device.
        architecture: the architecture of its code.
        driver: the driver's version, "" if not known.
        faults: one for each place that crashed; () if nothing did.
    """

    device: str
    architecture: str
    driver: str
    faults: tuple[Fault, ...]


class CrashDumps(Protocol):
    """Dumps of one platform."""

    def settings(self, folder: Callable[[], str], by_request: bool) -> DumpSettings | None:
        """Return the settings that switch dumps on, or None if the user's variables forbid it.

        Args:
            folder: makes a folder for them, if the user has not named a file.
            by_request: whether dumps are wanted on request, too.
        """
        ...

    def asked_for_by(self) -> str | None:
        """Return the user's variable that switches dumps on, or None if there is none."""
        ...

    def are_understood(self) -> bool:
        """Whether the driver does as the settings say; asked once they are in force."""
        ...

    def expanded(self, pattern: str) -> str:
        """Return a glob for the dumps of this process, escaped but for the variable parts."""
        ...

    def read(self, path: Path, launches: InFlight | None) -> CrashReport:
        """Read a dump.

        Args:
            path: the file.
            launches: the launches in flight, if the dump is of this process.

        Raises:
            TkError: the file is no dump, or a damaged one.
        """
        ...

    def read_hang(self, path: Path, launches: InFlight, waited: str) -> tuple[Fault, ...]:
        """Read a dump that was asked for: a fault for each line where kernels wait.

        Raises:
            TkError: the file is no dump, or a damaged one.
        """
        ...

    def without_dump(self, error: str, launches: InFlight) -> Fault:
        """The fault for an error of the driver's that left no dump."""
        ...

    def error(self) -> str | None:
        """Wait for the device; return the driver's error if a kernel failed, else None."""
        ...

    def is_busy(self, device: int, stream: int) -> bool:
        """Whether work on that stream has not ended; a failed device is not busy."""
        ...


@dataclass(frozen=True)
class GPUTarget:
    """The target of code: backend, compute capability times ten, threads per warp."""

    backend: str
    arch: int | str
    warp_size: int


# `submit(x, y, z, stream, *arguments)`: launches on a grid of x, y, z.
Submit = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class LaunchableKernel:
    """A kernel on a device.

    Attributes:
        module: the device's handle of the image.
        function: the device's handle of the kernel.
        registers: registers of a thread.
        spills: registers kept in memory, per thread.
        max_threads: most threads a block of it may have.
        submit: launches it; it returns the kernel that ran, if that is another one.
    """

    module: int
    function: int
    registers: int
    spills: int
    max_threads: int
    submit: Submit


class DeviceKernel(Protocol):
    """A kernel compiled for one device, as its platform and launches in flight see it.

    Its handles are None before it is loaded.
    """

    @property
    def name(self) -> str:
        """The kernel's name."""

    @property
    def device(self) -> int:
        """The number of its device."""

    @property
    def src(self) -> Specialization:
        """The specialisation that it was compiled for."""

    @property
    def binary(self) -> Binary:
        """The compiled code."""

    @property
    def gpu_module(self) -> Module:
        """The GPU IR that it was lowered from."""

    @property
    def module(self) -> int | None:
        """The device's handle of the image."""

    @property
    def function(self) -> object:
        """The device's handle of the kernel."""

    def submit_by_pointers(self, x: int, y: int, z: int, stream: int, *passed: Any) -> Any:
        """Launch the kernel that does without tensor maps that launches make."""

    def new_workspace(self, size_bytes: int, alignment: int, stream: int) -> Buffer:
        """Allocate the memory that one launch gives to its programs."""


class Span(Protocol):
    """A length of time on the device; a call returns nanoseconds, None while it lasts."""

    def end(self) -> None:
        """Mark its end."""
        ...

    def __call__(self, wait: bool = False) -> int | None:
        """Return the span's length in nanoseconds; None while it is not known."""
        ...


class SpanTimer(Protocol):
    """Times what runs on a device."""

    def start(self, stream: int) -> Span | None:
        """Begin a span on `stream`; None if nothing is measured."""
        ...


class CheckTable(Protocol):
    """Memory of a device into which one checked launch writes its findings."""

    @property
    def address(self) -> int:
        """Address of its first byte, a multiple of 16."""
        ...

    @property
    def shown(self) -> int:
        """Address of the host's view of the table during the launch; `address` without a view."""
        ...

    @property
    def behind(self) -> int:
        """Address of what follows it in memory, a multiple of 16."""
        ...


@dataclass(frozen=True, slots=True)
class Allocations:
    """Allocations in a device's memory, as far as they are known.

    Attributes:
        live: allocations that are in use; they do not overlap.
        gone: memory of the same allocator that no allocation has.
    """

    live: Sequence[AddressRange] = ()
    gone: Sequence[AddressRange] = ()


class CheckRecords(Protocol):
    """Memory of the host that kernels write records into."""

    @property
    def address(self) -> int:
        """Address of its first byte as the device sees it, a multiple of 16."""
        ...

    def content(self, first_byte: int, size_bytes: int) -> bytes:
        """Return a part of the records, once the launch has ended."""
        ...


class CheckMemory(Protocol):
    """The tables of a device's checked launches; nothing waits unless it says so."""

    def begin(
        self, slots_bytes: int, stream: int, behind: bytes = b"", counters_bytes: int = 0
    ) -> CheckTable | None:
        """Return a table of zeros for the next launch on `stream`, or None while none is free.

        Args:
            slots_bytes: the size of its slots.
            stream: handle of the stream.
            behind: bytes that the launch reads, put after the table.
            counters_bytes: the size of everything else that the launch writes, which follows the
                slots.

        Raises:
            TkError: the device has no memory for it.
        """
        ...

    def end(self, table: CheckTable, stream: int) -> None:
        """Mark the end of the launch that was made on `stream`; `read` asks for it."""
        ...

    def read(self, table: CheckTable, wait: bool = False) -> bytes | None:
        """Return the table as its launch left it, and free it; None before the launch has ended.

        Raises:
            TkError: the launch, or one before it, failed.
        """
        ...

    def show(self, table: CheckTable, launch: int, number: int, sites: int) -> None:
        """Name the launch of a table to the process that reads it while the launch runs.

        Args:
            table: the table of the launch, which is about to be made.
            launch: the launch's id.
            number: the number of the checked build (`running_faults.ShownKernel`).
            sites: the number of its slots.
        """
        ...

    def hide(self, table: CheckTable) -> None:
        """Undo `show`."""
        ...

    def seen(self, table: CheckTable) -> bytes:
        """Return the launch's findings that the host sees now, without asking the device."""
        ...

    def drop(self, table: CheckTable) -> None:
        """Give up a table that was not ended, or that cannot be read."""
        ...

    def begin_captured(self, slots_bytes: int) -> CheckTable | None:
        """Return a table of zeros for a launch that a graph captures; it is never free again.

        Returns:
            None if there are too many, or the host cannot see what a launch writes.

        Raises:
            TkError: the device has no memory for it.
        """
        ...

    def read_captured(self, table: CheckTable) -> bytes:
        """Return the reports of a captured launch since the last call; zeros for nothing.

        Raises:
            TkError: a launch failed.
        """
        ...

    def wait(self) -> None:
        """Wait for all that the device has to do.

        Raises:
            TkError: some of it failed.
        """
        ...

    def begin_records(self, size_bytes: int) -> CheckRecords | None:
        """Memory for the records of one launch; None while the maximum number is in use.

        Raises:
            TkError: the device cannot write to the host's memory, or no memory is left.
        """
        ...

    def end_records(self, records: CheckRecords) -> None:
        """Free records that were read."""
        ...

    def allocations(self) -> Allocations:
        """Return the allocations of the script's allocator in the device's memory."""
        ...

    def is_capturing(self, stream: int) -> bool:
        """Whether launches on `stream` become part of a graph, and do not run now."""
        ...

    def fetch(self, address: int, size_bytes: int) -> bytearray:
        """Copy the device's memory as it is now; it waits for no stream of the script's.

        Raises:
            TkError: the memory cannot be read.
        """
        ...


class Platform(Protocol):
    """One kind of device."""

    def __hash__(self) -> int: ...

    @property
    def backend(self) -> str:
        """Name of the backend that compiles for it."""
        ...

    @property
    def crash_dumps(self) -> CrashDumps | None:
        """The dumps that its devices write of kernels that crash; None if they write none."""
        ...

    @property
    def machine_parts(self) -> MachineParts:
        """The parts of this machine that launches on it use, for `tkdebug doctor`."""
        ...

    def announce_with_torch(self) -> None:
        """Call `HOOKS.device_used` once a script uses the device through torch."""
        ...

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of modules that a first launch imports, in any mode, if such a device is there."""
        ...

    def is_there(self) -> bool:
        """Whether a device of this kind is there, maybe one that nothing is compiled for."""
        ...

    def is_likely(self) -> bool:
        """Whether a device of this kind may be there, answered without loading anything."""
        ...

    def obstacle(self) -> str | None:
        """Return why kernels cannot run on it in this process, or None if they can."""
        ...

    def require(self) -> None:
        """Check that kernels can run on it.

        Raises:
            NoDeviceError: they cannot.
        """
        ...

    def current_target(self) -> GPUTarget:
        """Return the target that kernels are compiled for, or a usual one without a device."""
        ...

    def properties(self, device: int) -> dict[str, int]:
        """Properties of a device by upstream's names: clocks in kHz, bus width in bits."""
        ...

    def load_binary(
        self, name: str, image: bytes, shared_bytes: int, device: int
    ) -> tuple[int, int, int, int, int]:
        """Load a kernel of an image: module, function, registers, spills, most threads."""
        ...

    def getters(self) -> tuple[Callable[[], int], Callable[[int], int]]:
        """Functions for the number of the current device, and for a device's current stream."""
        ...

    def accessible_address(self, kernel: str, argument: str, value: Any, device: int) -> int:
        """The address of a tensor that is not known to be on `device`.

        Raises:
            PointerError: kernels on `device` cannot access it.
        """
        ...

    def load(self, kernel: DeviceKernel) -> LaunchableKernel:
        """Load a kernel on its device.

        Raises:
            OutOfResources: the device has less than the kernel needs.
            NoDeviceError: there is no such device.
        """
        ...

    def span_timer(self, device: int) -> SpanTimer:
        """Return the timer of launches on `device`."""
        ...

    def check_memory(self, device: int) -> CheckMemory | None:
        """Memory for checked launches on `device`; None if launches cannot be checked."""
        ...

    def prestart(self) -> None:
        """Load what the first launch will need."""
        ...


class _InForce:
    """The platform that native launches use; None for CUDA's, which is loaded at first use."""

    platform: Platform | None = None


@lru_cache(maxsize=1)
def _cuda() -> Platform:
    # The only place that names it: what is launched is otherwise the protocol's.
    platform: Platform = import_module("tkdebug.runtime.cuda.platform").CUDA
    return platform


def platform_in_force() -> Platform:
    """Return the platform that native launches run on."""
    return _InForce.platform or _cuda()


@contextmanager
def platform(chosen: Platform) -> Iterator[None]:
    """Run native launches inside on `chosen`; kernels first launched there stay on it."""
    before = _InForce.platform
    _InForce.platform = chosen
    try:
        yield
    finally:
        _InForce.platform = before
