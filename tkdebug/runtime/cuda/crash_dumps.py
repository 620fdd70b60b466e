"""GPU core dumps behind `device.platform.CrashDumps`: variables, file names, driver errors.

The meaning of a dump is in `crashes`, its format in `linemap.nvidia.core_dumps`.
"""

from __future__ import annotations

import ctypes
import glob
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug.errors import TkError
from tkdebug.runtime.cuda import driver_api
from tkdebug.runtime.cuda.device import device
from tkdebug.runtime.device.platform import CrashReport, DumpSettings

if TYPE_CHECKING:
    from tkdebug.records.events import Fault
    from tkdebug.runtime.launch.launches_in_flight import InFlight

_ENABLE, _FILE = "CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "CUDA_COREDUMP_FILE"
_FLAGS = "CUDA_COREDUMP_GENERATION_FLAGS"
# A byte that is written into the pipe, which the driver makes, asks for a dump.
_ON_REQUEST, _PIPE = "CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "CUDA_COREDUMP_PIPE"
# Parts that make a dump large or slow; and the process is to live, so that torch raises its error.
_SKIPPED = (
    "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,"
    "skip_constbank_memory,skip_abort"
)
_DEFAULT_FILE = "core_%t_%h_%p.nvcudmp"  # the driver's own
_SUFFIX, _PIPE_SUFFIX = ".core", ".pipe"
# CUDA 12.5 (driver 555) knows the flags; older ones would dump all memory and end the process.
_OLDEST_DRIVER = 12050
# CUstreamCaptureMode (cuda.h): what this thread asks does not break a capture.
_RELAXED = 2


class CudaCrashDumps:
    """Dumps that NVIDIA's driver writes (CUDA-GDB documentation, "GPU Core Dump Support")."""

    def settings(self, folder: Callable[[], str], by_request: bool) -> DumpSettings | None:
        """Return settings that switch dumps on, or None; variables that the user has set stay."""
        if os.environ.get(_ENABLE, "1") != "1":
            return None
        is_owned = _FILE not in os.environ and _ENABLE not in os.environ
        if not is_owned:
            pattern = os.path.abspath(os.environ.get(_FILE, _DEFAULT_FILE))
            return DumpSettings(pattern, False, self._missing(pattern))
        made = folder()
        pattern = os.path.join(made, f"%p{_SUFFIX}")
        variables = self._missing(pattern)
        if not by_request or _ON_REQUEST in os.environ:
            return DumpSettings(pattern, True, variables)
        pipe = os.path.join(made, f"%p{_PIPE_SUFFIX}")
        return DumpSettings(pattern, True, {**variables, _ON_REQUEST: "1", _PIPE: pipe}, pipe)

    @staticmethod
    def _missing(pattern: str) -> dict[str, str]:
        wanted = {_ENABLE: "1", _FILE: pattern, _FLAGS: _SKIPPED}
        return {name: value for name, value in wanted.items() if name not in os.environ}

    def asked_for_by(self) -> str | None:
        """Return the variable that switches dumps on if the user has set it, else None."""
        return f"{_ENABLE}=1" if os.environ.get(_ENABLE) == "1" else None

    def are_understood(self) -> bool:
        """Whether the driver knows the flags."""
        return driver_version() >= _OLDEST_DRIVER

    def expanded(self, pattern: str) -> str:
        """A glob for this process's dumps, as the driver expands %p, %h and %t."""
        name = pattern.replace("%p", str(os.getpid())).replace("%h", platform.node())
        return glob.escape(name).replace("%t", "*")

    def read(self, path: Path, launches: InFlight | None) -> CrashReport:
        """Read a dump."""
        from tkdebug.linemap.nvidia.core_dumps import read_core_dump
        from tkdebug.runtime.cuda.crashes import faults_of

        dump = read_core_dump(path)
        faults = faults_of(dump, launches)
        return CrashReport(dump.device, dump.architecture, dump.driver, faults)

    def read_hang(self, path: Path, launches: InFlight, waited: str) -> tuple[Fault, ...]:
        """A fault for each line where warps wait."""
        from tkdebug.linemap.nvidia.core_dumps import read_core_dump
        from tkdebug.runtime.cuda.crashes import hang_faults

        return hang_faults(read_core_dump(path), launches, waited)

    def without_dump(self, error: str, launches: InFlight) -> Fault:
        """The fault for a CUDA error that left no dump."""
        from tkdebug.runtime.cuda.crashes import no_dump_fault

        return no_dump_fault(error, launches)

    def error(self) -> str | None:
        """Wait for the current context; return the driver's error if a kernel failed, else None."""
        from tkdebug.runtime.cuda import driver_api

        with suppress(TkError, AttributeError):
            status = int(driver_api.driver().cuCtxSynchronize()[0])
            if status not in (driver_api.SUCCESS, driver_api.INVALID_CONTEXT):
                return driver_api.status_name(status)
        return None

    def is_busy(self, device: int, stream: int) -> bool:
        """Whether work on that stream of that GPU has not ended."""
        return is_busy(device, stream)


def driver_version() -> int:
    """The CUDA version of the driver, 13000 for 13.0; 0 if there is none."""
    from tkdebug.runtime.cuda import driver_api

    try:
        # Needs no cuInit, and starts nothing.
        return int(driver_api.call("cuDriverGetVersion"))
    except (TkError, RuntimeError):
        # The bindings raise RuntimeError where there is no driver library.
        return 0


CRASH_DUMPS = CudaCrashDumps()


@cache
def _calls() -> tuple[Callable[..., int], Callable[..., int]]:
    handle = ctypes.c_void_p
    return (
        driver_api.raw_function("cuStreamQuery", handle),
        driver_api.raw_function("cuThreadExchangeStreamCaptureMode", handle, keeps_gil=True),
    )


def is_busy(index: int, stream: int) -> bool:
    """Whether work on that stream of that GPU has not ended; a failed GPU is not busy."""
    query, exchange_capture_mode = _calls()
    mode = ctypes.c_int(_RELAXED)
    with device(index).entered():
        exchange_capture_mode(ctypes.addressof(mode))
        try:
            return query(stream) == driver_api.NOT_READY
        finally:
            exchange_capture_mode(ctypes.addressof(mode))
