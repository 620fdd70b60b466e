"""NVIDIA GPUs as a platform: the rest of this package, behind `device.platform.Platform`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from tkdebug.runtime.cuda.driver_api import no_gpu
from tkdebug.runtime.device.driver import has_real_gpu
from tkdebug.runtime.device.platform import CheckMemory, GPUTarget, LaunchableKernel, SpanTimer

if TYPE_CHECKING:
    from tkdebug.compiler.targets.machine_parts import MachineParts
    from tkdebug.compiler.targets.nvptx.compile import Binary
    from tkdebug.runtime.device.crash_dumps import CrashDumps
    from tkdebug.runtime.device.platform import DeviceKernel

# The driver's device file: asking torch would import it.
_DEVICE_FILE = "/dev/nvidiactl"
# As the driver reports an H200 (sm_90); clocks in kHz, bus width in bits.
H200_PROPERTIES: Mapping[str, int] = {
    "max_shared_mem": 232448,
    "max_num_regs": 65536,
    "multiprocessor_count": 132,
    "warpSize": 32,
    "sm_clock_rate": 1980000,
    "mem_clock_rate": 3201000,
    "mem_bus_width": 6016,
}
_H200_CAPABILITY, _WARP_SIZE = (9, 0), 32


class CudaPlatform:
    """CUDA devices, with torch's context on them."""

    backend = "nvptx"
    modules = ("tkdebug.runtime.cuda.device",)

    @property
    def crash_dumps(self) -> CrashDumps:
        """GPU core dumps, and the driver's errors."""
        from tkdebug.runtime.cuda.crash_dumps import CRASH_DUMPS

        return CRASH_DUMPS

    @property
    def machine_parts(self) -> MachineParts:
        """The driver, CUPTI and other libraries that NVIDIA's GPUs are used through."""
        from tkdebug.runtime.cuda.machine_parts import PARTS

        return PARTS

    def announce_with_torch(self) -> None:
        """Report CUDA to hooks once torch starts it."""
        from tkdebug.runtime.cuda.first_use import announce_with_torch

        announce_with_torch()

    def is_there(self) -> bool:
        """Whether there is a CUDA device."""
        return has_real_gpu()

    def is_likely(self) -> bool:
        """Whether the driver has its device file."""
        return os.path.exists(_DEVICE_FILE)

    def obstacle(self) -> str | None:
        """Return why kernels cannot run on a GPU in this process, or None if they can."""
        if not has_real_gpu():
            return no_gpu()
        from tkdebug.runtime.cuda import device

        return device.obstacle()

    def require(self) -> None:
        """Check that kernels can run on a GPU.

        Raises:
            NoDeviceError: they cannot.
        """
        from tkdebug.runtime.cuda import device

        device.require_device()

    def current_target(self) -> GPUTarget:
        """The current GPU; an H200 if there is none."""
        from tkdebug.runtime.device.driver import driver

        major, minor = driver.default.get_device_capability()
        return GPUTarget("cuda", major * 10 + minor, _WARP_SIZE)

    def properties(self, device: int) -> dict[str, int]:
        """Properties of a GPU; an H200's if there is none."""
        if not has_real_gpu():
            return dict(H200_PROPERTIES)
        from tkdebug.runtime.cuda.device import device as cuda_device

        found = cuda_device(device)
        return {
            "max_shared_mem": found.max_shared_bytes,
            "max_num_regs": found.max_registers,
            "multiprocessor_count": found.multiprocessors,
            "warpSize": found.warp_size,
            "sm_clock_rate": found.sm_clock_khz,
            "mem_clock_rate": found.memory_clock_khz,
            "mem_bus_width": found.memory_bus_bits,
        }

    def load_binary(
        self, name: str, image: bytes, shared_bytes: int, device: int
    ) -> tuple[int, int, int, int, int]:
        """Load a kernel of a cubin."""
        from tkdebug.runtime.cuda.device import device as cuda_device
        from tkdebug.runtime.cuda.module import load_kernel

        found = load_kernel(cuda_device(device), image, name, 0, shared_bytes)
        return found.module, found.function, found.registers, found.spills, found.max_threads

    def getters(self) -> tuple[Callable[[], int], Callable[[int], int]]:
        """Return torch's functions for current device and stream, below a replaced torch.cuda."""
        import torch

        if not has_real_gpu():
            # A launch is refused before these are asked; a warm-up compiles for the default target.
            return (lambda: 0), (lambda index: 0)
        return torch._C._cuda_getDevice, torch._C._cuda_getCurrentRawStream  # noqa: SLF001

    def accessible_address(self, kernel: str, argument: str, value: Any, device: int) -> int:
        """The address of a tensor that is not known to be on `device`."""
        from tkdebug.runtime.cuda.pointers import accessible_address

        return accessible_address(kernel, argument, value, device)

    def load(self, kernel: DeviceKernel) -> LaunchableKernel:
        """Load a cubin, and write the function that launches it."""
        from tkdebug.runtime.cuda import device as devices
        from tkdebug.runtime.cuda import first_use
        from tkdebug.runtime.cuda.launcher import LaunchShape, make_submit
        from tkdebug.runtime.cuda.module import load_kernel
        from tkdebug.runtime.cuda.packing import kernel_slots
        from tkdebug.runtime.cuda.tensor_maps import SIZE_BYTES

        first_use.announce()
        binary, source = cast("Binary", kernel.binary), kernel.src
        loaded = load_kernel(
            devices.device(kernel.device),
            binary.cubin,
            binary.entry,
            binary.threads,
            binary.shared_bytes,
        )
        shape = LaunchShape(
            loaded.function,
            binary.threads,
            binary.shared_bytes,
            # Code generation makes no use of clusters.
            1,
            source.options.launch_cooperative_grid,
            source.options.launch_pdl,
            binary.workspace_bytes,
        )
        submit = make_submit(
            kernel.name,
            kernel_slots(source.fn.arg_names, source.specs, binary),
            _taken(kernel),
            shape,
            _recovery(kernel),
            by_pointers=kernel.submit_by_pointers,
            new_workspace=lambda size_bytes, stream: kernel.new_workspace(
                size_bytes, SIZE_BYTES, stream
            ),
        )
        return LaunchableKernel(
            loaded.module,
            loaded.function,
            loaded.registers,
            loaded.spills,
            loaded.max_threads,
            submit,
        )

    def span_timer(self, device: int) -> SpanTimer:
        """CUDA events around launches."""
        from tkdebug.runtime.cuda.device import device as cuda_device
        from tkdebug.runtime.cuda.timing import span_timer

        return span_timer(cuda_device(device))

    def check_memory(self, device: int) -> CheckMemory | None:
        """Tables in the GPU's memory, copied to pinned memory of the host."""
        from tkdebug.runtime.cuda.check_memory import check_memory
        from tkdebug.runtime.cuda.device import device as cuda_device

        return check_memory(cuda_device(device)) if has_real_gpu() else None

    def prestart(self) -> None:
        """Load what the first launch will need."""
        for module in ("launcher", "module"):
            import_module(f"tkdebug.runtime.cuda.{module}")


def _taken(kernel: DeviceKernel) -> list[str]:
    """Return the arguments of `submit`, as `kernel_slots` names them."""
    from tkdebug.runtime.cuda.packing import CHECKS

    passed = [f"v{p.num}" for p in kernel.src.fn.params if not p.is_constexpr]
    return passed if kernel.binary.checks is None else [*passed, CHECKS]


def _recovery(kernel: DeviceKernel) -> Callable[[int, bool], None]:
    """Return the function that prepares another try after a failed launch, or raises."""

    def recover(status: int, is_last: bool) -> None:
        from tkdebug.runtime.cuda import driver_api
        from tkdebug.runtime.cuda.device import device

        if status in (driver_api.INVALID_CONTEXT, driver_api.NOT_INITIALIZED) and not is_last:
            # A thread that has called nothing of CUDA yet, such as autograd's.
            device(kernel.device).make_current()
            return
        raise driver_api.cuda_error(status, f"kernel {kernel.name}: launch")

    return recover


CUDA = CudaPlatform()
