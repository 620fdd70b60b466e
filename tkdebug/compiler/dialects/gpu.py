"""MLIR's gpu dialect."""

from __future__ import annotations

from tkdebug.compiler.ir.op_view import OpView


class Barrier(OpView):
    """All warps of the program wait for each other."""

    name = "gpu.barrier"
