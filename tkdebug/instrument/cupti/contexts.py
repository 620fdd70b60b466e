"""The primary CUDA contexts of this process, which torch and tkdebug use."""

from __future__ import annotations

import contextlib
import ctypes
import uuid
from collections.abc import Mapping


class PrimaryContexts:
    """Those that were found active so far; each is held until `release`."""

    def __init__(self) -> None:
        self._held: dict[int, int] = {}
        self._driver: ctypes.CDLL | None = None
        with contextlib.suppress(OSError):
            self._driver = ctypes.CDLL("libcuda.so.1")

    def active(self) -> Mapping[int, int]:
        """CUcontexts by device, as CUDA numbers it; none is made."""
        driver, count = self._driver, ctypes.c_int()
        if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)):
            return self._held
        for device in range(count.value):
            flags, is_active, context = ctypes.c_uint(), ctypes.c_int(), ctypes.c_void_p()
            if device in self._held or driver.cuDevicePrimaryCtxGetState(
                device, ctypes.byref(flags), ctypes.byref(is_active)
            ):
                continue
            if is_active.value and not driver.cuDevicePrimaryCtxRetain(
                ctypes.byref(context), device
            ):
                self._held[device] = context.value or 0
        return self._held

    def gpu(self, device: int) -> str:
        """The UUID of a device, "" where the driver does not say."""
        ordinal, identity = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        driver = self._driver
        if driver is None or driver.cuDeviceGet(ctypes.byref(ordinal), device):
            return ""
        if driver.cuDeviceGetUuid_v2(identity, ordinal):
            return ""
        return f"GPU-{uuid.UUID(bytes=bytes(identity))}"

    def release(self) -> None:
        """Hold none of them any more."""
        while self._driver is not None and self._held:
            device, _ = self._held.popitem()
            # _v2 lets go of one use; without a suffix it is CUDA's function of old.
            self._driver.cuDevicePrimaryCtxRelease_v2(device)
