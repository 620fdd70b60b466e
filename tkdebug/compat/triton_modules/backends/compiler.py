"""`triton.backends.compiler`."""

from __future__ import annotations

from tkdebug.compat.triton_api.compiler import BaseBackend
from tkdebug.runtime.device.platform import GPUTarget

__all__ = ["BaseBackend", "GPUTarget"]
