"""`triton.backends.compiler`."""

from __future__ import annotations

from tkdebug.compat.upstream_compiler import BaseBackend
from tkdebug.runtime.device.platform import GPUTarget

__all__ = ["BaseBackend", "GPUTarget"]
