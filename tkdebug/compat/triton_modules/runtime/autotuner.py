"""`triton.runtime.autotuner`."""

from __future__ import annotations

from tkdebug.runtime.autotune import Autotuner, autotune
from tkdebug.runtime.config import Config
from tkdebug.runtime.errors import AutotunerError, OutOfResources, PTXASError
from tkdebug.runtime.heuristics import Heuristics, heuristics
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
