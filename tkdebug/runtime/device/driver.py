"""`driver.active`: the answers to scripts that ask about the device their kernels run on.

With a usable GPU the answers are the GPU's. Without one they are an H200's, because scripts divide
by them to size their grids; `torch.device` is then the CUDA stand-in's if it is in force, and the
CPU otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from tkdebug.knobs import KNOBS
from tkdebug.runtime.device.platform import GPUTarget, platform_in_force
from tkdebug.runtime.errors import OptionValueError

if TYPE_CHECKING:
    import torch

# Larger than any L2, so that zeroing it evicts what a benchmark left there.
L2_EVICTION_BYTES = 256 << 20


@cache
def has_real_gpu() -> bool:
    """Whether a CUDA device is there, not counting a stand-in for torch.cuda."""
    import torch

    # torch.cuda may be stood in for; the bindings below it are not.
    count = getattr(torch._C, "_cuda_getDeviceCount", None)  # noqa: SLF001
    return count is not None and count() > 0


class DriverUtils:
    """Device queries below torch's."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        """Properties of `device`: clocks in kHz, bus width in bits, memory in bytes.

        Raises:
            NoDeviceError: there is no device of that number.
        """
        return platform_in_force().properties(device)

    def load_binary(
        self, name: str, cubin: bytes, shared_bytes: int, device: int
    ) -> tuple[int, int, int, int, int]:
        """Load kernel `name` of a cubin: module, function, registers, spills, most threads.

        Raises:
            OutOfResources: the device has less than the kernel needs.
            CudaError: the driver refuses the cubin.
        """
        return platform_in_force().load_binary(name, cubin, shared_bytes, device)


class Driver:
    """The CUDA driver as upstream's scripts see it."""

    def __init__(self) -> None:
        self.utils = DriverUtils()
        # Set by `runtime.benchmark.testing`, which asks the driver, and so cannot be imported here.
        self.benchmarker: Callable[..., Any] | None = None

    @staticmethod
    def is_active() -> bool:
        """Whether kernels of this driver can be launched; always, as they can be interpreted."""
        return True

    def get_device_interface(self) -> Any:
        """`torch.cuda`, real or the stand-in's; `torch.cpu` if there is neither."""
        import torch

        return torch.cuda if torch.cuda.is_available() else torch.cpu

    def get_current_device(self) -> int:
        """Index of the current device."""
        import torch

        return int(torch.cuda.current_device()) if torch.cuda.is_available() else 0

    def set_current_device(self, device: int) -> None:
        """Make `device` the current one."""
        import torch

        if torch.cuda.is_available():
            torch.cuda.set_device(device)

    def get_current_stream(self, device: int | None = None) -> int:
        """Handle of the current stream; 0 is the default stream."""
        import torch

        if not torch.cuda.is_available():
            return 0
        if has_real_gpu():
            index = self.get_current_device() if device is None else device
            return int(torch._C._cuda_getCurrentRawStream(index))  # noqa: SLF001
        return int(torch.cuda.current_stream(device).cuda_stream)

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        """Compute capability."""
        import torch

        if not has_real_gpu():
            return (9, 0)
        major, minor = torch.cuda.get_device_capability(device)
        return (int(major), int(minor))

    def get_active_torch_device(self) -> torch.device:
        """The device on which scripts are to make their tensors."""
        import torch

        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", self.get_current_device())

    def get_current_target(self) -> GPUTarget:
        """Return the target that kernels are compiled for."""
        return platform_in_force().current_target()

    def get_benchmarker(self) -> Callable[..., Any]:
        """The default `do_bench` of tuners."""
        assert self.benchmarker is not None, "the benchmarks are not imported"
        return self.benchmarker

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """Memory to zero between timed runs, so that none finds its data in L2."""
        import torch

        # Nothing to evict without a GPU, and a quarter gigabyte would be felt.
        size_bytes = L2_EVICTION_BYTES if has_real_gpu() else 4
        return torch.empty(size_bytes // 4, dtype=torch.int, device=self.get_active_torch_device())

    def clear_cache(self, cache: torch.Tensor) -> None:
        """Evict the L2 cache by zeroing what `get_empty_cache_for_benchmark` gave."""
        cache.zero_()


class DriverConfig:
    """Holds the active driver; scripts may put another in its place."""

    def __init__(self) -> None:
        self.default = Driver()
        self._active: Any = self.default

    @property
    def active(self) -> Any:
        """The driver in force."""
        return self._active

    def set_active(self, driver: Any) -> None:
        """Put `driver` in force."""
        self._active = driver

    def reset_active(self) -> None:
        """Put the default driver back in force."""
        self._active = self.default


driver = DriverConfig()


def compute_capability(arch: str | int | None) -> int:
    """Compute capability times ten of `arch` ("sm90", "90a", 90); of the active target for None.

    Raises:
        OptionValueError: `arch` names none.
    """
    if arch is None:
        arch = driver.active.get_current_target().arch
    capability = _capability(arch)
    if capability is None:
        asked = "TKDEBUG_OVERRIDE_ARCH" if arch == KNOBS.override_arch else "arch"
        raise OptionValueError(f"{asked}: got {arch!r}, expected one such as 'sm90'")
    return capability


@cache
def _capability(arch: str | int) -> int | None:
    match = re.fullmatch(r"(?:sm_?)?(\d{2,3})[af]?", str(arch))
    if match is not None:
        return int(match[1])
    from tkdebug.compiler.targets.registered_backends import backends

    for backend in backends():
        target = backend.find(arch)
        if target is not None:
            return target.capability[0] * 10 + target.capability[1]
    return None
