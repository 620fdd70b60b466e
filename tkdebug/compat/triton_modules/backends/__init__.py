"""`triton.backends`: the one there is."""

from __future__ import annotations

from tkdebug.compat.triton_api.compiler import BACKENDS as backends
from tkdebug.compat.triton_api.compiler import Backend, BaseBackend
from tkdebug.runtime.device.driver import Driver as DriverBase

from . import compiler, driver

__all__ = ["Backend", "BaseBackend", "DriverBase", "backends", "compiler", "driver"]
