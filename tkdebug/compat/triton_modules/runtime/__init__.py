"""`triton.runtime`."""

from __future__ import annotations

from tkdebug.runtime.autotune import Autotuner, autotune
from tkdebug.runtime.config import Config
from tkdebug.runtime.errors import InterpreterError, OutOfResources
from tkdebug.runtime.heuristics import Heuristics, heuristics
from tkdebug.runtime.interface import KernelInterface
from tkdebug.runtime.jit import JITFunction
from tkdebug.runtime.tensor_stand_ins import MockTensor, TensorWrapper, reinterpret

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
