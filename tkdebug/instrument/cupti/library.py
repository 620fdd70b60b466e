"""libcupti: its place, and the few functions that are called, by ctypes.

Responsible for saying why it cannot be used. The order of places: the copy that this process has
loaded already (a second copy would be a second client), NVIDIA's packages, the CUDA toolkit, and
the loader's paths.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tkdebug.errors import TkError
from tkdebug.instrument.cupti.layouts import LAYOUTS, Layout, layout_of

MAJORS = (13, 12)
_TOOLKIT_FOLDERS = ("extras/CUPTI/lib64", "lib64")
# CUptiResult (cupti_result.h) for which the message says more than the name.
SUCCESS = 0
_RESULTS = {
    1: ("CUPTI_ERROR_INVALID_PARAMETER", ""),
    7: ("CUPTI_ERROR_INVALID_OPERATION", ""),
    8: ("CUPTI_ERROR_OUT_OF_MEMORY", "the GPU's memory is full"),
    12: ("CUPTI_ERROR_MAX_LIMIT_REACHED", ""),
    14: ("CUPTI_ERROR_NOT_COMPATIBLE", ""),
    15: ("CUPTI_ERROR_NOT_INITIALIZED", "no CUDA driver, or one older than this libcupti"),
    21: ("CUPTI_ERROR_INVALID_KIND", ""),
    26: ("CUPTI_ERROR_HARDWARE_BUSY", "another process profiles this GPU"),
    27: ("CUPTI_ERROR_NOT_SUPPORTED", ""),
    33: ("CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED", "the GPU is virtualised"),
    35: (
        "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
        "the driver lets only root profile: load it with NVreg_RestrictProfilingToAdminUsers=0",
    ),
    39: (
        "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
        "another profiler, such as Nsight or torch.profiler, uses CUPTI in this process",
    ),
    40: ("CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES", "the GPU is virtualised"),
    41: ("CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED", "confidential computing is on"),
    42: ("CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED", ""),
    43: ("CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED", "the GPU is a MIG slice"),
    45: ("CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED", "the GPU is WSL's"),
    999: ("CUPTI_ERROR_UNKNOWN", ""),
}
# Function -> types of its arguments; all give a CUptiResult.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuptiGetVersion": (ctypes.POINTER(ctypes.c_uint32),),
    "cuptiActivityRegisterCallbacks": (ctypes.c_void_p, ctypes.c_void_p),
    "cuptiActivityEnable": (ctypes.c_int,),
    "cuptiActivityDisable": (ctypes.c_int,),
    "cuptiActivityFlushAll": (ctypes.c_uint32,),
    "cuptiActivityGetNumDroppedRecords": (
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.POINTER(ctypes.c_size_t),
    ),
    "cuptiSetThreadIdType": (ctypes.c_int,),
    "cuptiSubscribe": (ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_void_p),
    "cuptiUnsubscribe": (ctypes.c_void_p,),
    "cuptiEnableCallback": (
        ctypes.c_uint32,
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_uint32,
    ),
}


# Called with the GIL held: otherwise another thread might run in the middle of a reading of the
# clocks, which is only as exact as it is short. The function returns at once.
_TIMESTAMP = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_uint64))


class CuptiError(TkError):
    """libcupti cannot be used; the message says why.

    Attributes:
        status: the CUptiResult; 0 if there is no library.
    """

    def __init__(self, message: str, status: int = SUCCESS) -> None:
        super().__init__(message)
        self.status = status


class Cupti:
    """One loaded libcupti.

    Attributes:
        path: its path.
        version: the result of `cuptiGetVersion`.
        layout: the layout of its records in memory.

    Raises:
        CuptiError: it cannot be loaded, or is of a version whose records are not known.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            library = ctypes.CDLL(path)
            self._calls = _functions(library)
        except (OSError, AttributeError) as error:
            raise CuptiError(f"{path}: cannot be loaded ({error})") from error
        version = ctypes.c_uint32()
        self.call("cuptiGetVersion", version)
        self.version = version.value
        layout = layout_of(version.value)
        if layout is None:
            known = f"{LAYOUTS[0].first} to {LAYOUTS[-1].last}"
            raise CuptiError(
                f"{path}: CUPTI version {version.value} is not known (expected {known})"
            )
        self.layout: Layout = layout

    def status(self, name: str, *arguments: Any) -> int:
        """Call the function `name`, and return its status."""
        return self._calls[name](*arguments)

    def call(self, name: str, *arguments: Any) -> None:
        """Call the function `name`.

        Raises:
            CuptiError: the result is not success.
        """
        status = self.status(name, *arguments)
        if status != SUCCESS:
            raise CuptiError(f"{name}: {result_text(status)}", status)

    def timestamp_ns(self) -> int:
        """The time by the clock of the records."""
        time_ns = ctypes.c_uint64()
        self.call("cuptiGetTimestamp", time_ns)
        return time_ns.value

    def register(self, requested: int, completed: int) -> None:
        """Register the functions at these addresses that provide and take buffers.

        Raises:
            CuptiError: the functions are refused.
        """
        self.call("cuptiActivityRegisterCallbacks", requested, completed)

    def subscribe(self, called: int | None = None) -> ctypes.c_void_p:
        """Subscribe to calls, as the one client of this process, until `cuptiUnsubscribe`.

        Args:
            called: address of the function that enabled calls are reported to; None for none.

        Raises:
            CuptiError: another client has subscribed.
        """
        subscriber = ctypes.c_void_p()
        self.call("cuptiSubscribe", subscriber, called, None)
        return subscriber


def _functions(library: ctypes.CDLL) -> dict[str, Callable[..., int]]:
    found: dict[str, Callable[..., int]] = {}
    for name, types in _FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = types, ctypes.c_int
        found[name] = function
    found["cuptiGetTimestamp"] = _TIMESTAMP(("cuptiGetTimestamp", library))
    return found


def result_text(status: int) -> str:
    """Return the name of a CUptiResult, with its meaning if that helps."""
    name, meaning = _RESULTS.get(status, ("CUPTI error", ""))
    return f"{name} ({status})" + (f": {meaning}" if meaning else "")


def find_cupti() -> str:
    """Return the path of libcupti.

    Raises:
        CuptiError: it was not found.
    """
    for path in _candidates():
        return path
    others = _of_other_releases()
    what = "libcupti is not installed"
    if others:
        expected = " or ".join(f"libcupti.so.{major}" for major in MAJORS)
        what = f"{others[0]}: is of another release (expected {expected})"
    raise CuptiError(f"{what}; pip install nvidia-cuda-cupti (of the CUDA that torch is for)")


def _of_other_releases() -> list[Path]:
    """Return the copies of releases that are not known."""
    packages = [Path(folder).glob("nvidia/cu*/lib/libcupti.so.*") for folder in sys.path]
    toolkits = [
        (root / inner).glob("libcupti.so.*") for root in _toolkits() for inner in _TOOLKIT_FOLDERS
    ]
    return [path for found in (*packages, *toolkits) for path in sorted(found)]


def _candidates() -> Iterator[str]:
    yield from _loaded()
    for folder in map(Path, sys.path):
        for major in MAJORS:
            for inner in (f"cu{major}", "cuda_cupti"):
                yield from _existing(folder / "nvidia" / inner / "lib", major)
    for root in _toolkits():
        for major in MAJORS:
            for inner in _TOOLKIT_FOLDERS:
                yield from _existing(root / inner, major)
    for major in MAJORS:
        name = f"libcupti.so.{major}"
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        yield name


def _loaded() -> Iterator[str]:
    """The copy that is mapped into this process, which torch's profiler may have loaded."""
    try:
        maps = Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return
    for found in re.finditer(r"(/\S*/libcupti\.so\.\d+\S*)$", maps, re.MULTILINE):
        yield found[1]
        return


def _existing(folder: Path, major: int) -> Iterator[str]:
    path = folder / f"libcupti.so.{major}"
    if path.is_file():
        yield str(path)


def _toolkits() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    yield Path("/usr/local/cuda")
