"""`DropAsserts`: device asserts cost nothing in kernels that are not compiled for debugging.

As upstream's: they are checked with `debug=True` or TRITON_DEBUG. Interpretation always does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir.core import Module
from tkdebug.compiler.rewriting.rewriter import Rewriter


@dataclass(frozen=True, slots=True)
class DropAsserts:
    """Erases every `tt.assert`, with a record of the lines."""

    name: ClassVar[str] = "drop-asserts"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Erase one by one."""
        for op in module.walk():
            if tt.Assert.matches(op):
                rewriter.erase_unreachable(op, "drop-assert")
        rewriter.commit()
