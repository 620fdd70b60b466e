"""Calls into the CUDA driver, with its answers checked.

Responsible for turning a driver status into an error that names it, and for the unchecked functions
that each launch calls. Not responsible for the meaning of the calls.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from tkdebug.runtime.errors import CudaError

# CUresult values (cuda.h) that the launch path distinguishes.
SUCCESS = 0
INVALID_VALUE = 1
NOT_INITIALIZED = 3
INVALID_CONTEXT = 201
NOT_READY = 600
_HINTS = {
    2: "the GPU's memory is full; free tensors, or lower what other processes use",
    200: "the compiled kernel does not suit this GPU or driver; delete the cache of compiled "
    "kernels (TKDEBUG_CACHE_DIR), or update the driver",
    209: "the kernel was compiled for another architecture; check the option `arch`",
    218: "the driver could not read the PTX; `tkdebug doctor` shows the versions",
    222: "the driver is older than the PTX version; update the driver",
    700: "an earlier kernel accessed memory out of bounds (kernels run asynchronously); "
    "find it with `tkdebug run --coredump`, or `tkdebug run --mode interpret`",
    701: "lower num_warps or maxnreg, or use smaller blocks",
    715: "an earlier kernel ran an illegal instruction, or hit a trap",
    716: "an earlier kernel accessed a misaligned address; "
    "find it with `tkdebug run --mode interpret`",
    717: "an earlier kernel accessed an address outside its address space; "
    "find it with `tkdebug run --mode interpret`",
    719: "an earlier kernel failed; find it with `tkdebug run --coredump`, or "
    "`tkdebug run --mode interpret`",
    720: "a cooperative launch needs all its programs resident at once; use a smaller grid",
}


def driver() -> Any:
    """The bindings.

    Raises:
        CudaError: the bindings are not installed.
    """
    try:
        from cuda.bindings import driver as bindings
    except ImportError as error:
        raise CudaError(
            f"native mode needs the package cuda-bindings ({error}); "
            "install it, or use `tkdebug run --mode interpret`"
        ) from error
    return bindings


def call(name: str, *arguments: Any) -> Any:
    """Call the driver function `name`, and return its results without the status.

    Raises:
        CudaError: the driver answers anything but success.
    """
    function: Callable[..., tuple[Any, ...]] = getattr(driver(), name)
    status, *results = function(*arguments)
    if int(status) != SUCCESS:
        raise cuda_error(int(status), name)
    return results[0] if len(results) == 1 else tuple(results)


def status_name(status: int) -> str:
    """`CUDA_ERROR_INVALID_VALUE` for 1."""
    answer, name = driver().cuGetErrorName(driver().CUresult(status))
    return name.decode() if int(answer) == SUCCESS and name else f"CUDA error {status}"


def cuda_error(status: int, what: str) -> CudaError:
    """The error for a status; `what` is what was being done."""
    try:
        name = status_name(status)
    except ValueError:
        name = f"CUDA error {status}"
    hint = _HINTS.get(status)
    return CudaError(f"{what}: {name} ({status})" + (f"; {hint}" if hint else ""), status)


@cache
def function_address(name: str, version: int) -> int:
    """Address of a driver function as of CUDA `version` (12000 for 12.0).

    Raises:
        CudaError: the driver is too old to have it.
    """
    answer, address, *_ = driver().cuGetProcAddress(name.encode(), version, 0)
    if int(answer) != SUCCESS or not address:
        have = call("cuDriverGetVersion")
        raise CudaError(
            f"the CUDA driver has no {name}: it is for CUDA {have // 1000}.{have % 1000 // 10}, "
            f"expected {version // 1000}.{version % 1000 // 10} or newer; update the driver"
        )
    return int(address)


def raw_function(
    name: str, *arguments: type[Any], version: int = 12000, keeps_gil: bool = False
) -> Callable[..., int]:
    """Return the driver function itself, which takes numbers and returns a status, unchecked.

    The bindings make an object of every number, which takes several times as long.

    Args:
        name: the name of the function.
        arguments: their ctypes types.
        version: the version of CUDA whose form of the function is wanted.
        keeps_gil: for a function that looks at the calling thread's own state alone. Any other one
            may wait for a lock of the driver whose holder waits for a Python callback; but giving
            the GIL up and getting it back, among busy threads, takes longer than the call.

    Raises:
        CudaError: the driver is too old to have it.
    """
    make = ctypes.PYFUNCTYPE if keeps_gil else ctypes.CFUNCTYPE
    return make(ctypes.c_int, *arguments)(function_address(name, version))


def no_gpu() -> str:
    """Return why kernels cannot run natively without a GPU."""
    import torch

    instead = "`tkdebug run --mode interpret` needs none"
    if not hasattr(torch._C, "_cuda_getDeviceCount"):  # noqa: SLF001
        return (
            f"native mode needs a GPU, and this torch ({torch.__version__}) has no CUDA; {instead}"
        )
    return f"native mode needs an NVIDIA GPU, and torch finds none; {instead}"
