"""`triton.runtime.errors`."""

from __future__ import annotations

from tkdebug.errors import TkError as TritonError
from tkdebug.runtime.errors import AutotunerError, InterpreterError, OutOfResources, PTXASError

__all__ = ["AutotunerError", "InterpreterError", "OutOfResources", "PTXASError", "TritonError"]
