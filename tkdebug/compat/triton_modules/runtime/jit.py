"""`triton.runtime.jit`."""

from __future__ import annotations

from tkdebug.runtime.constexpr_function import ConstexprFunction, constexpr_function
from tkdebug.runtime.interface import KernelInterface
from tkdebug.runtime.jit import JITFunction, jit
from tkdebug.runtime.parameters import CANONICAL_NAMES as type_canonicalisation_dict
from tkdebug.runtime.parameters import KernelParam
from tkdebug.runtime.tensor_stand_ins import MockTensor, TensorWrapper, reinterpret

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
