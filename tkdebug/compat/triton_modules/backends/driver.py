"""`triton.backends.driver`."""

from __future__ import annotations

from tkdebug.runtime.device.driver import Driver as DriverBase
from tkdebug.runtime.device.driver import Driver as GPUDriver

__all__ = ["DriverBase", "GPUDriver"]
