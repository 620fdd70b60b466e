"""`triton.runtime.jit`."""

from __future__ import annotations

from tkdebug.runtime.arguments.tensor_stand_ins import MockTensor, TensorWrapper, reinterpret
from tkdebug.runtime.jit.constexpr_function import ConstexprFunction, constexpr_function
from tkdebug.runtime.jit.function import JITFunction, jit
from tkdebug.runtime.jit.interface import KernelInterface
from tkdebug.runtime.jit.parameters import CANONICAL_NAMES as type_canonicalisation_dict
from tkdebug.runtime.jit.parameters import KernelParam

# Upstream's base class of jit functions that are not launched themselves.
JITCallable = JITFunction

__all__ = [
    "ConstexprFunction",
    "JITCallable",
    "JITFunction",
    "KernelInterface",
    "KernelParam",
    "MockTensor",
    "TensorWrapper",
    "constexpr_function",
    "jit",
    "reinterpret",
    "type_canonicalisation_dict",
]
