"""`Canonicalize`: constant folding and peephole rules to a fixed point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.ir.core import Module
from tkdebug.compiler.ir.rewriter import Rewriter, apply_patterns
from tkdebug.compiler.passes.peephole import PATTERNS


@dataclass(frozen=True, slots=True)
class Canonicalize:
    """Rewrites ops to their simplest form; the rules are in `peephole`."""

    name: ClassVar[str] = "canonicalize"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Apply every rule until none matches."""
        apply_patterns(module, rewriter, PATTERNS)
