"""Errors of lowering: what an op cannot become on this target."""

from __future__ import annotations

from tkdebug.compiler.ir import Operation
from tkdebug.errors import CompileError


class LoweringError(CompileError):
    """An op that native mode does not support, or not in this form."""

    @classmethod
    def at(cls, op: Operation, message: str) -> LoweringError:
        """The error at the op's place in the source."""
        return cls(message, frames=op.location.frames)
