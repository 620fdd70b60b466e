"""`triton.runtime.driver`."""

from __future__ import annotations

from tkdebug.runtime.device.driver import DriverConfig, driver

__all__ = ["DriverConfig", "driver"]
