"""The GPU that kernels are launched on: its name, its limits, torch's context on it.

Responsible for saying why there is none. Invariant: kernels are loaded into the primary context,
the one torch's tensors live in.

Cubins are loaded on it here. Invariant: the needs of a kernel are compared with the device's limits
before a launch can fail on them, and the error names the resource and what to lower.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.targets.registered_backends import unsupported_gpu
from tkdebug.errors import TkError, UnsupportedError
from tkdebug.runtime.cuda import driver_api
from tkdebug.runtime.cuda.driver_api import no_gpu
from tkdebug.runtime.device.driver import has_real_gpu
from tkdebug.runtime.errors import CudaError, NoDeviceError, OutOfResources

if TYPE_CHECKING:
    from tkdebug.compiler.targets import Target

# cuLaunchKernelEx and PTX ISA 7.8 and up came with it.
OLDEST_DRIVER = 12000
# name in `Device` -> CUdevice_attribute
_ATTRIBUTES = {
    "major": "COMPUTE_CAPABILITY_MAJOR",
    "minor": "COMPUTE_CAPABILITY_MINOR",
    "max_shared_bytes": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "max_threads": "MAX_THREADS_PER_BLOCK",
    "max_registers": "MAX_REGISTERS_PER_BLOCK",
    "multiprocessors": "MULTIPROCESSOR_COUNT",
    "warp_size": "WARP_SIZE",
    "sm_clock_khz": "CLOCK_RATE",
    "memory_clock_khz": "MEMORY_CLOCK_RATE",
    "memory_bus_bits": "GLOBAL_MEMORY_BUS_WIDTH",
    "maps_host_memory": "CAN_MAP_HOST_MEMORY",
}
# Blocks have this much dynamic shared memory without opting in (CUDA C++ Programming Guide,
# "Shared Memory" of each compute capability).
SHARED_BYTES_WITHOUT_OPT_IN = 48 << 10
_BYTES_PER_SPILL = 4
_LOAD_FAILURES = (200, 209, 218, 222)


class EnteredContext:
    """A context made current in the `with` block; each checked launch enters one.

    Raises:
        CudaError: the driver refuses.
    """

    __slots__ = ("_context",)

    def __init__(self, context: int) -> None:
        self._context = context

    def __enter__(self) -> None:
        """Make the context current."""
        status = _context_calls()[0](self._context)
        if status:
            raise driver_api.cuda_error(status, "cuCtxPushCurrent")

    def __exit__(self, *raised: object) -> None:
        """Make the former context current again."""
        status = _context_calls()[1](ctypes.addressof(_LEFT))
        if status:
            raise driver_api.cuda_error(status, "cuCtxPopCurrent")


# Where the driver writes which context was left, which nobody reads.
_LEFT = ctypes.c_void_p()


@cache
def _context_calls() -> tuple[Callable[[int], int], Callable[[int], int]]:
    handle = ctypes.c_void_p
    return (
        driver_api.raw_function("cuCtxPushCurrent", handle, keeps_gil=True),
        driver_api.raw_function("cuCtxPopCurrent", handle, keeps_gil=True),
    )


@dataclass(frozen=True)
class Device:
    """One GPU; the limits are those of one block.

    Attributes:
        index: the number that torch and the driver give it.
        context: handle of its primary context.
        maps_host_memory: whether kernels can write to memory of the host.
    """

    index: int
    name: str
    context: int
    major: int
    minor: int
    max_shared_bytes: int
    max_threads: int
    max_registers: int
    multiprocessors: int
    warp_size: int
    sm_clock_khz: int
    memory_clock_khz: int
    memory_bus_bits: int
    maps_host_memory: int = 1

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability."""
        return self.major, self.minor

    @property
    def target(self) -> Target:
        """The target that kernels on it are compiled for.

        Raises:
            UnsupportedError: tkdebug does not compile for it.
        """
        from tkdebug.compiler.targets import target_of

        return target_of(self.capability)

    def make_current(self) -> None:
        """Make the device's context current in the calling thread."""
        driver_api.call("cuCtxSetCurrent", driver_api.driver().CUcontext(self.context))

    def entered(self) -> EnteredContext:
        """Return a `with` block in which the device's context is current."""
        return EnteredContext(self.context)


@cache
def device(index: int) -> Device:
    """The GPU numbered `index`.

    Raises:
        NoDeviceError: there is no GPU of that number, or the driver is too old.
        CudaError: the driver fails.
    """
    driver_api.call("cuInit", 0)
    version = driver_api.call("cuDriverGetVersion")
    if version < OLDEST_DRIVER:
        raise NoDeviceError(
            f"the CUDA driver is for CUDA {version // 1000}.{version % 1000 // 10}, "
            f"expected {OLDEST_DRIVER // 1000}.0 or newer; "
            "update the driver, or use `tkdebug run --mode interpret`"
        )
    count = driver_api.call("cuDeviceGetCount")
    if not 0 <= index < count:
        raise NoDeviceError(f"CUDA device {index}: there are {count}, counted from 0")
    handle = driver_api.call("cuDeviceGet", index)
    name = driver_api.call("cuDeviceGetName", 128, handle)
    context = driver_api.call("cuDevicePrimaryCtxRetain", handle)
    return Device(index, name.decode().rstrip("\0"), int(context), **_read_attributes(handle))


def _read_attributes(handle: Any) -> dict[str, int]:
    known = driver_api.driver().CUdevice_attribute
    return {
        name: int(
            driver_api.call(
                "cuDeviceGetAttribute", getattr(known, f"CU_DEVICE_ATTRIBUTE_{attribute}"), handle
            )
        )
        for name, attribute in _ATTRIBUTES.items()
    }


def current_device() -> Device:
    """Torch's current device.

    Raises:
        NoDeviceError: there is no usable GPU.
    """
    import torch

    if not has_real_gpu():
        raise NoDeviceError(no_gpu())
    # Below torch.cuda, which may be stood in for; it initialises CUDA where nothing has yet.
    torch.cuda.init()  # type: ignore[no-untyped-call]
    return device(int(torch._C._cuda_getDevice()))  # noqa: SLF001


def require_device() -> None:
    """Check that kernels can run natively in this process.

    Raises:
        NoDeviceError: they cannot.
    """
    reason = obstacle()
    if reason is not None:
        raise NoDeviceError(reason)


@cache
def obstacle() -> str | None:
    """Return why kernels cannot run natively in this process, or None if they can."""
    if not has_real_gpu():
        return no_gpu()
    try:
        found = current_device()
        sentence = unsupported_gpu(found.capability)
        if sentence is not None:
            return f"{found.name}: {sentence}"
    except (TkError, UnsupportedError, RuntimeError) as error:
        return str(error)
    return None


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
        OutOfResources: the device has less than a block needs.
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
