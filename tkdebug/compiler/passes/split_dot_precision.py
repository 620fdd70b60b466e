"""`SplitDotPrecision`: fp32 products by bf16 tensor cores, as sums of products of parts.

A number is a sum of bf16 parts; each part is what the parts before leave over. "bf16x3" keeps two
parts and three products, "bf16x6" three parts and six. Small products are summed first. Where these
sums are NaN (an infinity less itself), only the product of the leading parts counts.

Source: Henry, Tang, Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype for
Higher-Precision Computations" (arXiv:1904.06376).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Module, Operation, Value
from tkdebug.compiler.ir.types import element_of
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter

# Precision -> parts of each operand, and which parts are multiplied before the leading ones.
_PRODUCTS: dict[str, tuple[int, tuple[tuple[int, int], ...]]] = {
    "bf16x3": (2, ((1, 0), (0, 1))),
    "bf16x6": (3, ((1, 1), (2, 0), (0, 2), (1, 0), (0, 1))),
}


@dataclass(frozen=True, slots=True)
class SplitDotPrecision:
    """Replaces every fp32 `tt.dot` of precision bf16x3 or bf16x6."""

    name: ClassVar[str] = "split-dot-precision"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Split one by one."""
        for op in list(module.walk()):
            if tt.Dot.matches(op) and element_of(tt.Dot(op).a.type) == ir.F32:
                products = _PRODUCTS.get(str(tt.Dot(op).input_precision))
                if products is not None:
                    _split(op, OpBuilder(rewriter, op, self.name), *products)
        rewriter.commit()


def _split(op: Operation, build: OpBuilder, count: int, small: tuple[tuple[int, int], ...]) -> None:
    a, b, acc = op.operands
    lhs, rhs = _parts(build, a, count), _parts(build, b, count)
    zero = build.constant(acc.type, 0.0)
    total = zero
    for i, j in small:
        total = build.op(tt.Dot, (lhs[i], rhs[j], total), input_precision="ieee")
    is_number = build.op(arith.CmpF, (total, total), predicate="oeq")
    total = build.op(arith.Select, (is_number, total, zero), total.type)
    total = build.op(tt.Dot, (lhs[0], rhs[0], total), input_precision="ieee")
    build.replace(arith.AddF, (total, acc), {})


def _parts(build: OpBuilder, value: Value, count: int) -> list[Value]:
    """The leading bf16 part, then that of the rest, and so on."""
    parts = []
    for index in range(count):
        part = build.cast(arith.TruncF, value, ir.BF16)
        parts.append(part)
        if index + 1 < count:
            value = build.binary(arith.SubF, value, build.cast(arith.ExtF, part, ir.F32))
    return parts
