"""What must hold of every module: SSA, structure, the op table, and the layouts of GPU IR."""

from tkdebug.compiler.verifier.structure import verify

__all__ = ["verify"]
