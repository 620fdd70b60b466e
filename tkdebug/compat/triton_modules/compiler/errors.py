"""`triton.compiler.errors`: every refusal of a kernel is one type here."""

from __future__ import annotations

from tkdebug.errors import CompileError as CompilationError
from tkdebug.errors import CompileError as CompileTimeAssertionFailure
from tkdebug.errors import CompileError as UnsupportedLanguageConstruct
from tkdebug.errors import TkError as TritonError

__all__ = [
    "CompilationError",
    "CompileTimeAssertionFailure",
    "TritonError",
    "UnsupportedLanguageConstruct",
]
