"""Cubins on a device: loading one, its limits against the device's.

Invariant: the needs of a kernel are compared with the device's limits before a launch can fail on
them, and the error names the resource and what to lower.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tkdebug.runtime.cuda import driver_api
from tkdebug.runtime.cuda.device import Device
from tkdebug.runtime.errors import CudaError, OutOfResources

# Blocks have this much dynamic shared memory without opting in (CUDA C++ Programming Guide,
# "Shared Memory" of each compute capability).
SHARED_BYTES_WITHOUT_OPT_IN = 48 << 10
_BYTES_PER_SPILL = 4
_LOAD_FAILURES = (200, 209, 218, 222)


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A kernel on a device, by the driver's handles.

    Attributes:
        registers: registers of a thread.
        spills: registers kept in local memory, per thread.
        max_threads: most threads a block of it may have.
    """

    module: int
    function: int
    registers: int
    spills: int
    max_threads: int


def load_kernel(
    device: Device, cubin: bytes, name: str, threads: int, shared_bytes: int
) -> LoadedKernel:
    """Load `name` of `cubin` on `device`, for blocks of `threads` with `shared_bytes` dynamic.

    Raises:
        OutOfResources: the device has less than the kernel needs.
        CudaError: the driver refuses the cubin.
    """
    check_resources(device, threads, shared_bytes)
    with device.entered():
        try:
            module = driver_api.call("cuModuleLoadData", cubin)
        except CudaError as error:
            if error.status in _LOAD_FAILURES:
                error.add(_versions(device))
            raise
        function = driver_api.call("cuModuleGetFunction", module, name.encode())
        loaded = LoadedKernel(
            int(module),
            int(function),
            _attribute(function, "NUM_REGS"),
            _attribute(function, "LOCAL_SIZE_BYTES") // _BYTES_PER_SPILL,
            _attribute(function, "MAX_THREADS_PER_BLOCK"),
        )
        _check_threads(device, threads, loaded)
        if shared_bytes > SHARED_BYTES_WITHOUT_OPT_IN:
            _opt_in(device, function, shared_bytes)
    return loaded


def check_resources(device: Device, threads: int, shared_bytes: int) -> None:
    """Check that a block needs no more than `device` has.

    Raises:
        OutOfResources: it has less.
    """
    if shared_bytes > device.max_shared_bytes:
        raise OutOfResources(shared_bytes, device.max_shared_bytes, "shared memory")
    if threads > device.max_threads:
        raise OutOfResources(threads, device.max_threads, "threads")


def _check_threads(device: Device, threads: int, loaded: LoadedKernel) -> None:
    needed = loaded.registers * threads
    if needed > device.max_registers:
        raise OutOfResources(needed, device.max_registers, "registers")
    if threads > loaded.max_threads:
        raise OutOfResources(threads, loaded.max_threads, "threads")


def _opt_in(device: Device, function: Any, shared_bytes: int) -> None:
    static_bytes = _attribute(function, "SHARED_SIZE_BYTES")
    if static_bytes + shared_bytes > device.max_shared_bytes:
        needed = static_bytes + shared_bytes
        raise OutOfResources(needed, device.max_shared_bytes, "shared memory")
    bindings = driver_api.driver()
    which = bindings.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    driver_api.call("cuFuncSetAttribute", function, which, shared_bytes)


def _attribute(function: Any, name: str) -> int:
    which = getattr(driver_api.driver().CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
    return int(driver_api.call("cuFuncGetAttribute", which, function))


def _versions(device: Device) -> str:
    version = driver_api.call("cuDriverGetVersion")
    major, minor = device.capability
    return (
        f"the device is {device.name} (compute capability {major}.{minor}), "
        f"the driver is for CUDA {version // 1000}.{version % 1000 // 10}"
    )
