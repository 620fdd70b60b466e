"""Clocks, slowdown reasons and power state of GPUs, by NVML through ctypes.

Responsible for asking. A machine without NVML, or a GPU that does not answer, has no states. Which
GPU is CUDA's number n is asked of the driver, since CUDA_VISIBLE_DEVICES renumbers them.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Callable
from typing import Any

from tkdebug.instrument.device_records import GpuState

_SM_CLOCK, _MEMORY_CLOCK = 1, 2  # nvmlClockType_t
_CHIP = 0  # NVML_TEMPERATURE_GPU
_NAME_BYTES = 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE
# nvmlClocksEventReason…, nvml.h. Those that are no slowdown of what runs: idle, and clocks that
# the user set.
REASONS = {
    0x1: "idle",
    0x2: "clocks set by an application",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "clocks of a sync group",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}
_HARMLESS = 0x1 | 0x2 | 0x100


def slowdown_names(reasons: int) -> tuple[str, ...]:
    """Return the reasons that slow a GPU down, by the bits of nvmlClocksEventReasons."""
    slow = reasons & ~_HARMLESS
    return tuple(name for bit, name in REASONS.items() if slow & bit)


class Nvml:
    """NVML of this machine.

    Raises:
        OSError: it is not there.
    """

    def __init__(self, nvml: str = "libnvidia-ml.so.1", driver: str = "libcuda.so.1") -> None:
        self._nvml = ctypes.CDLL(nvml)
        self._driver = ctypes.CDLL(driver)
        if self._nvml.nvmlInit_v2():
            raise OSError(f"{nvml}: nvmlInit fails")
        self._devices: dict[int, tuple[ctypes.c_void_p, str, str] | None] = {}

    def state(self, device: int, is_busy: bool) -> GpuState | None:
        """Return the state of CUDA's device of that number, or None if NVML does not say."""
        if device not in self._devices:
            self._devices[device] = self._find(device)
        found = self._devices[device]
        if found is None:
            return None
        handle, gpu, name = found
        reasons = self._long("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if reasons is None:
            # Its name in drivers before 535.
            reasons = self._long("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        numbers = (
            self._number("nvmlDeviceGetClockInfo", handle, _SM_CLOCK),
            self._number("nvmlDeviceGetClockInfo", handle, _MEMORY_CLOCK),
            reasons,
            self._number("nvmlDeviceGetPerformanceState", handle),
            self._number("nvmlDeviceGetTemperature", handle, _CHIP),
            self._number("nvmlDeviceGetPowerUsage", handle),
        )
        known = [number for number in numbers if number is not None]
        return GpuState(gpu, name, is_busy, *known) if len(known) == len(numbers) else None

    def driver_version(self) -> str:
        """Return the version of NVIDIA's driver, "" if NVML does not say."""
        text = ctypes.create_string_buffer(_NAME_BYTES)
        function = getattr(self._nvml, "nvmlSystemGetDriverVersion", None)
        if function is None or function(text, _NAME_BYTES):
            return ""
        return text.value.decode("utf-8", "replace")

    def _find(self, device: int) -> tuple[ctypes.c_void_p, str, str] | None:
        handle, identity = ctypes.c_void_p(), (ctypes.c_ubyte * 16)()
        ordinal = ctypes.c_int()
        name = ctypes.create_string_buffer(_NAME_BYTES)
        if self._driver.cuDeviceGet(ctypes.byref(ordinal), device):
            return None
        if self._driver.cuDeviceGetUuid_v2(identity, ordinal):
            return None
        gpu = f"GPU-{uuid.UUID(bytes=bytes(identity))}"
        if self._nvml.nvmlDeviceGetHandleByUUID(gpu.encode(), ctypes.byref(handle)):
            return None
        self._nvml.nvmlDeviceGetName(handle, name, _NAME_BYTES)
        return handle, gpu, name.value.decode("utf-8", "replace")

    def _number(self, function: str, handle: ctypes.c_void_p, *what: int) -> int | None:
        return self._asked(function, ctypes.c_uint(), handle, *what)

    def _long(self, function: str, handle: ctypes.c_void_p) -> int | None:
        return self._asked(function, ctypes.c_ulonglong(), handle)

    def _asked(self, name: str, answer: Any, handle: ctypes.c_void_p, *what: int) -> int | None:
        function: Callable[..., int] | None = getattr(self._nvml, name, None)
        if function is None or function(handle, *what, ctypes.byref(answer)):
            return None
        return int(answer.value)
