"""`triton.runtime.autotuner`."""

from __future__ import annotations

from tkdebug.runtime.errors import AutotunerError, OutOfResources, PTXASError
from tkdebug.runtime.jit.function import JITFunction
from tkdebug.runtime.jit.interface import KernelInterface
from tkdebug.runtime.tune.autotune import Autotuner, autotune
from tkdebug.runtime.tune.config import Config
from tkdebug.runtime.tune.heuristics import Heuristics, heuristics

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
