"""MLIR's gpu dialect."""

from __future__ import annotations

from tkdebug.compiler.dialects.interfaces import ProgramBarrier


class Barrier(ProgramBarrier):
    """All warps of the program wait for each other."""

    name = "gpu.barrier"
