"""`triton`, as scripts import it: tkdebug under upstream's name."""

from __future__ import annotations

from tkdebug.compat.finder import upstream_version
from tkdebug.compat.triton_api.compiler import compile
from tkdebug.compiler.aggregates import aggregate
from tkdebug.errors import CompileError as CompilationError
from tkdebug.errors import TkError as TritonError
from tkdebug.language.markers import must_use_result
from tkdebug.runtime.arguments.tensor_stand_ins import MockTensor, TensorWrapper, reinterpret
from tkdebug.runtime.errors import InterpreterError, OutOfResources
from tkdebug.runtime.jit.constexpr_function import cdiv, constexpr_function, next_power_of_2
from tkdebug.runtime.jit.function import JITFunction, jit
from tkdebug.runtime.jit.interface import KernelInterface
from tkdebug.runtime.launch.allocation import set_allocator
from tkdebug.runtime.tune.autotune import autotune
from tkdebug.runtime.tune.config import Config
from tkdebug.runtime.tune.heuristics import heuristics

from . import backends, compiler, errors, knobs, language, runtime, testing, tools

__version__ = upstream_version()
__all__ = [
    "CompilationError",
    "Config",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "TensorWrapper",
    "TritonError",
    "__version__",
    "aggregate",
    "autotune",
    "backends",
    "cdiv",
    "compile",
    "compiler",
    "constexpr_function",
    "errors",
    "heuristics",
    "jit",
    "knobs",
    "language",
    "must_use_result",
    "next_power_of_2",
    "reinterpret",
    "runtime",
    "set_allocator",
    "testing",
    "tools",
]
