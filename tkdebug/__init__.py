"""tkdebug: debugger and profiler for Triton-style tile kernels, around its own compiler."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tkdebug import instrument, knobs, language
    from tkdebug.causes.expectations import expect
    from tkdebug.compat.interactive import install
    from tkdebug.compat.recording import record
    from tkdebug.errors import CompileError, LaunchError, TkError, UnsupportedError
    from tkdebug.instrument.notebook import Run
    from tkdebug.precision.interactive import numerics
    from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor
    from tkdebug.runtime.arguments.tensor_stand_ins import MockTensor, TensorWrapper, reinterpret
    from tkdebug.runtime.benchmark import testing
    from tkdebug.runtime.device.driver import driver
    from tkdebug.runtime.device.modes import current_mode, mode
    from tkdebug.runtime.errors import OutOfResources
    from tkdebug.runtime.jit.constexpr_function import cdiv, constexpr_function, next_power_of_2
    from tkdebug.runtime.jit.function import JITFunction, jit
    from tkdebug.runtime.launch.allocation import set_allocator
    from tkdebug.runtime.launch.compiled_kernel import CompiledKernel
    from tkdebug.runtime.tune.autotune import Autotuner, autotune
    from tkdebug.runtime.tune.parameters import Config, Heuristics, heuristics
    from tkdebug.verification import verify
    from tkdebug.watches.in_force import watch

__version__ = "0.1.0"

# Name -> the module that has it. Loaded at first use: the compiler, and torch with it, take long.
_WHERE = {
    "Autotuner": "tkdebug.runtime.tune.autotune",
    "CompileError": "tkdebug.errors",
    "CompiledKernel": "tkdebug.runtime.launch.compiled_kernel",
    "Config": "tkdebug.runtime.tune.parameters",
    "Heuristics": "tkdebug.runtime.tune.parameters",
    "JITFunction": "tkdebug.runtime.jit.function",
    "LaunchError": "tkdebug.errors",
    "MockTensor": "tkdebug.runtime.arguments.tensor_stand_ins",
    "OutOfResources": "tkdebug.runtime.errors",
    "TensorDescriptor": "tkdebug.runtime.arguments.tensor_descriptor",
    "TensorWrapper": "tkdebug.runtime.arguments.tensor_stand_ins",
    "Run": "tkdebug.instrument.notebook",
    "TkError": "tkdebug.errors",
    "UnsupportedError": "tkdebug.errors",
    "autotune": "tkdebug.runtime.tune.autotune",
    "cdiv": "tkdebug.runtime.jit.constexpr_function",
    "constexpr_function": "tkdebug.runtime.jit.constexpr_function",
    "current_mode": "tkdebug.runtime.device.modes",
    "driver": "tkdebug.runtime.device.driver",
    "expect": "tkdebug.causes.expectations",
    "heuristics": "tkdebug.runtime.tune.parameters",
    "install": "tkdebug.compat.interactive",
    "jit": "tkdebug.runtime.jit.function",
    "load_ipython_extension": "tkdebug.compat.interactive",
    "mode": "tkdebug.runtime.device.modes",
    "next_power_of_2": "tkdebug.runtime.jit.constexpr_function",
    "numerics": "tkdebug.precision.interactive",
    "record": "tkdebug.compat.recording",
    "reinterpret": "tkdebug.runtime.arguments.tensor_stand_ins",
    "set_allocator": "tkdebug.runtime.launch.allocation",
    "verify": "tkdebug.verification",
    "watch": "tkdebug.watches.in_force",
    "unload_ipython_extension": "tkdebug.compat.interactive",
}
_MODULES = {
    "instrument": "tkdebug.instrument",
    "knobs": "tkdebug.knobs",
    "language": "tkdebug.language",
    "testing": "tkdebug.runtime.benchmark.testing",
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
    "Run",
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
    "expect",
    "heuristics",
    "install",
    "instrument",
    "jit",
    "knobs",
    "language",
    "mode",
    "next_power_of_2",
    "numerics",
    "record",
    "reinterpret",
    "set_allocator",
    "testing",
    "verify",
    "watch",
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
