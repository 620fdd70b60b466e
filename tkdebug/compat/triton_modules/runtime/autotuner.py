"""`triton.runtime.autotuner`."""

from __future__ import annotations

from tkdebug.runtime.autotune import Autotuner, Config, Heuristics, autotune, heuristics
from tkdebug.runtime.errors import AutotunerError, OutOfResources, PTXASError
from tkdebug.runtime.interface import KernelInterface
from tkdebug.runtime.jit import JITFunction

__all__ = [
    "Autotuner",
    "AutotunerError",
    "Config",
    "Heuristics",
    "JITFunction",
    "KernelInterface",
    "OutOfResources",
    "PTXASError",
    "autotune",
    "heuristics",
]
