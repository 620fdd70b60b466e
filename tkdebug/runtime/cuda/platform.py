"""NVIDIA GPUs as a platform: the rest of this package, behind `device.platform.Platform`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from tkdebug.compiler.targets.machine_parts import MachinePart, MachineParts, first_sentence
from tkdebug.compiler.targets.nvptx import architectures
from tkdebug.runtime.cuda import driver_api
from tkdebug.runtime.cuda.driver_api import no_gpu
from tkdebug.runtime.device.driver import has_real_gpu
from tkdebug.runtime.device.platform import CheckMemory, GPUTarget, LaunchableKernel, SpanTimer
from tkdebug.runtime.errors import PointerError

if TYPE_CHECKING:
    from tkdebug.compiler.targets.machine_parts import MachineParts
    from tkdebug.compiler.targets.nvptx.compile import Binary
    from tkdebug.runtime.device.platform import CrashDumps, DeviceKernel

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
        from tkdebug.runtime.cuda.device import load_kernel

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
        return accessible_address(kernel, argument, value, device)

    def load(self, kernel: DeviceKernel) -> LaunchableKernel:
        """Load a cubin, and write the function that launches it."""
        from tkdebug.runtime.cuda import device as devices
        from tkdebug.runtime.cuda import first_use
        from tkdebug.runtime.cuda.device import load_kernel
        from tkdebug.runtime.cuda.launcher import LaunchShape, make_submit
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
        """Tables in the GPU's memory, copied to pinned host memory; None without a GPU."""
        from tkdebug.runtime.cuda.check_memory import check_memory
        from tkdebug.runtime.cuda.device import device as cuda_device

        return check_memory(cuda_device(device)) if has_real_gpu() else None

    def prestart(self) -> None:
        """Load what the first launch will need."""
        for module in ("launcher", "device"):
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


def accessible_address(kernel: str, argument: str, value: Any, device: int) -> int:
    """The address of `value`, a tensor that is not known to be on `device`.

    Pinned host memory and peers are legal, which the driver knows; plain host memory is not.

    Raises:
        PointerError: kernels on `device` cannot access it.
    """
    address = int(value.data_ptr())
    if address == 0 and not _is_meta(value):
        return address
    where = str(getattr(value, "device", "an unknown device"))
    if where != f"cuda:{device}" and not _driver_knows(address):
        raise PointerError(_refusal(kernel, argument, where, device))
    return address


def _is_meta(value: Any) -> bool:
    kind = getattr(getattr(value, "device", None), "type", "")
    return kind == "meta"


def _driver_knows(address: int) -> bool:
    """Whether the driver has an address through which the current context accesses `address`."""
    if address == 0:
        return False
    bindings = driver_api.driver()
    which = bindings.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_POINTER
    status, *_ = bindings.cuPointerGetAttribute(which, bindings.CUdeviceptr(address))
    if int(status) == driver_api.INVALID_VALUE:
        return False
    if int(status) != driver_api.SUCCESS:
        raise driver_api.cuda_error(int(status), "cuPointerGetAttribute")
    return True


def _refusal(kernel: str, argument: str, where: str, device: int) -> str:
    start = f"kernel {kernel}: argument `{argument}` is on {where}, the launch on cuda:{device}: "
    if where.startswith("cuda"):
        return (
            f"{start}there is no peer access between them; launch inside "
            f"`with torch.cuda.device({where.rpartition(':')[2]}):`, or copy the tensor"
        )
    return (
        f"{start}Pointer argument cannot be accessed from Triton ({where} tensor?); "
        f"move it with .to('cuda:{device}'), or pin its memory"
    )


def _device() -> MachinePart:
    name = "CUDA device"
    advice = "none needed: scripts that say device='cuda' run on the CPU under interpret"
    try:
        detail, found = _torch_devices() or _driver_devices(), True
    except Exception as error:
        detail, found = f"none usable ({first_sentence(error)})", False
    if detail:
        return MachinePart(name, found, detail, advice, needed=False)
    return MachinePart(name, False, "none usable", advice, needed=False)


def _torch_devices() -> str:
    import torch

    if not torch.cuda.is_available():
        return ""
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    major, minor = torch.cuda.get_device_capability(0)
    return f"{', '.join(names)} (sm_{major}{minor}{_untried(major, minor)})"


def _untried(major: int, minor: int) -> str:
    target = architectures.find((major, minor))
    if target is None:
        return ", which kernels are not compiled for"
    return "" if target.is_tried else "; tkdebug's kernels never ran on such a GPU"


def _driver_devices() -> str:
    """Names of the devices that the driver reports, for a torch without CUDA; "" for none."""
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return ""
    from cuda.bindings import driver

    if int(driver.cuInit(0)[0]) != 0:
        return ""
    error, count = driver.cuDeviceGetCount()
    if int(error) != 0 or not count:
        return ""
    names = [driver.cuDeviceGetName(128, index)[1] for index in range(count)]
    shown = ", ".join(bytes(name).split(b"\0")[0].decode("utf-8", "replace") for name in names)
    return f"{shown} (not usable by this build of torch)"


def _driver() -> MachinePart:
    name = "CUDA driver"
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return MachinePart(name, False, "unknown: cuda-bindings is not installed", needed=False)
    from cuda.bindings import driver

    try:
        error, version = driver.cuDriverGetVersion()
    except Exception as failure:
        return MachinePart(name, False, f"none ({first_sentence(failure)})", needed=False)
    if int(error) != 0:
        return MachinePart(name, False, "none", needed=False)
    return MachinePart(name, True, f"supports CUDA {version // 1000}.{version % 1000 // 10}")


PARTS: MachineParts = {"CUDA device": _device, "CUDA driver": _driver}
