"""tkdebug: debugger and profiler for Triton-style tile kernels, around its own compiler."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tkdebug import instrument, knobs, language
    from tkdebug.compat.interactive import install
    from tkdebug.errors import CompileError, LaunchError, TkError, UnsupportedError
    from tkdebug.runtime import testing
    from tkdebug.runtime.allocation import set_allocator
    from tkdebug.runtime.autotune import Autotuner, autotune
    from tkdebug.runtime.compiled import CompiledKernel
    from tkdebug.runtime.config import Config
    from tkdebug.runtime.constexpr_function import cdiv, constexpr_function, next_power_of_2
    from tkdebug.runtime.driver import driver
    from tkdebug.runtime.errors import OutOfResources
    from tkdebug.runtime.heuristics import Heuristics, heuristics
    from tkdebug.runtime.jit import JITFunction, jit
    from tkdebug.runtime.modes import current_mode, mode
    from tkdebug.runtime.tensor_descriptor import TensorDescriptor
    from tkdebug.runtime.tensor_stand_ins import MockTensor, TensorWrapper, reinterpret

__version__ = "0.1.0"

# Name -> the module that has it. Loaded at first use: the compiler, and torch with it, take long.
_WHERE = {
    "Autotuner": "tkdebug.runtime.autotune",
    "CompileError": "tkdebug.errors",
    "CompiledKernel": "tkdebug.runtime.compiled",
    "Config": "tkdebug.runtime.config",
    "Heuristics": "tkdebug.runtime.heuristics",
    "JITFunction": "tkdebug.runtime.jit",
    "LaunchError": "tkdebug.errors",
    "MockTensor": "tkdebug.runtime.tensor_stand_ins",
    "OutOfResources": "tkdebug.runtime.errors",
    "TensorDescriptor": "tkdebug.runtime.tensor_descriptor",
    "TensorWrapper": "tkdebug.runtime.tensor_stand_ins",
    "TkError": "tkdebug.errors",
    "UnsupportedError": "tkdebug.errors",
    "autotune": "tkdebug.runtime.autotune",
    "cdiv": "tkdebug.runtime.constexpr_function",
    "constexpr_function": "tkdebug.runtime.constexpr_function",
    "current_mode": "tkdebug.runtime.modes",
    "driver": "tkdebug.runtime.driver",
    "heuristics": "tkdebug.runtime.heuristics",
    "install": "tkdebug.compat.interactive",
    "jit": "tkdebug.runtime.jit",
    "load_ipython_extension": "tkdebug.compat.interactive",
    "mode": "tkdebug.runtime.modes",
    "next_power_of_2": "tkdebug.runtime.constexpr_function",
    "reinterpret": "tkdebug.runtime.tensor_stand_ins",
    "set_allocator": "tkdebug.runtime.allocation",
    "unload_ipython_extension": "tkdebug.compat.interactive",
}
_MODULES = {
    "instrument": "tkdebug.instrument",
    "knobs": "tkdebug.knobs",
    "language": "tkdebug.language",
    "testing": "tkdebug.runtime.testing",
}

__all__ = [
    "Autotuner",
    "CompileError",
    "CompiledKernel",
    "Config",
    "Heuristics",
    "JITFunction",
    "LaunchError",
    "MockTensor",
    "OutOfResources",
    "TensorDescriptor",
    "TensorWrapper",
    "TkError",
    "UnsupportedError",
    "__version__",
    "autotune",
    "cdiv",
    "constexpr_function",
    "current_mode",
    "driver",
    "heuristics",
    "install",
    "instrument",
    "jit",
    "knobs",
    "language",
    "mode",
    "next_power_of_2",
    "reinterpret",
    "set_allocator",
    "testing",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        value: object = import_module(_MODULES[name])
    elif name in _WHERE:
        value = getattr(import_module(_WHERE[name]), name)
    else:
        raise AttributeError(f"module 'tkdebug' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
