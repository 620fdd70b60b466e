"""`triton.compiler.compiler`."""

from __future__ import annotations

from tkdebug.compat.triton_api.compiler import (
    ASTSource,
    IRSource,
    compile,
    make_backend,
    triton_key,
)
from tkdebug.compat.triton_api.launch_hooks import LazyDict
from tkdebug.runtime.device.platform import GPUTarget
from tkdebug.runtime.errors import OutOfResources
from tkdebug.runtime.launch.compiled_kernel import CompiledKernel

__all__ = [
    "ASTSource",
    "CompiledKernel",
    "GPUTarget",
    "IRSource",
    "LazyDict",
    "OutOfResources",
    "compile",
    "make_backend",
    "triton_key",
]
