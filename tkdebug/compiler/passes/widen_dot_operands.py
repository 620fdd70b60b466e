"""`WidenDotOperands`: fp8 products that the target's tensor cores do not have become fp16 products.

Every value of an 8-bit float format is one of fp16, so nothing is lost; FMA units, the alternative,
are more than ten times slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Module, Operation
from tkdebug.compiler.ir.types import element_of
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.compiler.targets.target import FP8_MMA, Target

# What `mma` and `wgmma` take (PTX ISA, "Matrix Data-types"); both may be mixed.
_MULTIPLIED = ("f8E4M3FN", "f8E5M2")


@dataclass(frozen=True, slots=True)
class WidenDotOperands:
    """Widens the operands of such dots.

    Attributes:
        target: what it is compiled for.
    """

    target: Target
    name: ClassVar[str] = "widen-dot-operands"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Look at every dot."""
        for op in list(module.walk()):
            if tt.Dot.matches(op) and self._lacks(op):
                _widen(op, OpBuilder(rewriter, op, "widen-fp8"))
        rewriter.commit()

    def _lacks(self, op: Operation) -> bool:
        """Whether it is an fp8 dot that no tensor core of the target computes."""
        elements = [element_of(value.type) for value in (tt.Dot(op).a, tt.Dot(op).b)]
        if not all(element.bits == 8 and str(element) != "i8" for element in elements):
            return False
        if not self.target.has(FP8_MMA) or any(str(e) not in _MULTIPLIED for e in elements):
            return True
        return element_of(op.result.type) != ir.F32


def _widen(op: Operation, build: OpBuilder) -> None:
    a, b, acc = op.operands
    wide = [build.cast(tt.FpToFp, value, ir.F16, rounding="rtne") for value in (a, b)]
    build.replace(tt.Dot, (*wide, acc), op.attributes)
