"""`triton.runtime`."""

from __future__ import annotations

from tkdebug.runtime.arguments.tensor_stand_ins import MockTensor, TensorWrapper, reinterpret
from tkdebug.runtime.errors import InterpreterError, OutOfResources
from tkdebug.runtime.jit.function import JITFunction
from tkdebug.runtime.jit.interface import KernelInterface
from tkdebug.runtime.tune.autotune import Autotuner, autotune
from tkdebug.runtime.tune.config import Config
from tkdebug.runtime.tune.heuristics import Heuristics, heuristics

from . import autotuner, cache, errors, interpreter, jit

# Through the submodule: a later `import triton.runtime.driver` finds it loaded and leaves the name
# to the object.
from .driver import driver

__all__ = [
    "Autotuner",
    "Config",
    "Heuristics",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "TensorWrapper",
    "autotune",
    "autotuner",
    "cache",
    "driver",
    "errors",
    "heuristics",
    "interpreter",
    "jit",
    "reinterpret",
]
