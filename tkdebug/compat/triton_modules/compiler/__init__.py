"""`triton.compiler`."""

from __future__ import annotations

from tkdebug.compat.triton_api.compiler import ASTSource, IRSource, compile, make_backend
from tkdebug.compat.triton_api.launch_hooks import LazyDict
from tkdebug.errors import CompileError as CompilationError
from tkdebug.runtime.launch.compiled_kernel import CompiledKernel

from . import compiler, errors

__all__ = [
    "ASTSource",
    "CompilationError",
    "CompiledKernel",
    "IRSource",
    "LazyDict",
    "compile",
    "compiler",
    "errors",
    "make_backend",
]
