"""A pass: two negations of a float give the operand itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.dialects.arith import NegF
from tkdebug.compiler.ir.core import Module, Operation
from tkdebug.compiler.passes import PassPlugin
from tkdebug.compiler.rewriting.rewriter import Pattern, Rewriter, apply_patterns, by_root


def _cancel(op: Operation, rewriter: Rewriter) -> bool:
    inner = NegF.defining(NegF(op).source)
    if inner is None:
        return False
    rewriter.replace_with_values(op, "cancel-negations", (inner.source,))
    return True


@dataclass(frozen=True, slots=True)
class CancelNegations:
    """Replaces `-(-x)` by `x`; what nothing uses then goes with dead code."""

    name: ClassVar[str] = "cancel-negations"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Look at every negation."""
        patterns = by_root([Pattern("cancel-negations", (NegF.name,), _cancel)])
        apply_patterns(module, rewriter, patterns)


PLUGIN = PassPlugin(CancelNegations(), after="canonicalize")
