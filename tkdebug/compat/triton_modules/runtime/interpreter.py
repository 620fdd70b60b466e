"""`triton.runtime.interpreter`: only the type that libraries test for."""

from __future__ import annotations

from tkdebug.compat.triton_api.compiler import InterpretedFunction
from tkdebug.runtime.errors import InterpreterError

__all__ = ["InterpretedFunction", "InterpreterError"]
