"""`FoldAddIntoAccumulator`: `acc += tl.dot(a, b)` becomes `acc = tl.dot(a, b, acc)`.

A dot adds its third operand at no cost. As a separate op, the product takes as many registers as
the accumulator, and an addition for each: this makes kernels with two accumulators spill.

Only where that adds the same numbers at the same precision: sums of fp32, fp64 and integers. Those
of fp8 products are left as written, since tensor cores add these with fewer bits than an addition
of fp32, which is why kernels write it apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.core import Module, Operation, Value
from tkdebug.compiler.ir.location import fuse
from tkdebug.compiler.ir.types import element_of
from tkdebug.compiler.rewriting.rewriter import Rewriter

_ADDITIONS = (arith.AddF.name, arith.AddI.name)
_SUMS = (ir.F32, ir.F64, ir.I32)


@dataclass(frozen=True, slots=True)
class FoldAddIntoAccumulator:
    """Gives dots that start at zero what is added to them."""

    name: ClassVar[str] = "fold-add-into-accumulator"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Look at every addition."""
        for op in list(module.walk()):
            if op.name in _ADDITIONS:
                _accumulate(op, rewriter)
        rewriter.commit()


def _accumulate(addition: Operation, rewriter: Rewriter) -> None:
    for product, other in arith.Binary(addition).both_orders:
        dot = product.owner
        if isinstance(dot, Operation) and other is not product and _is_part_of(dot, addition):
            break
    else:
        return
    a, b, _ = dot.operands
    new = rewriter.build_before(
        addition,
        tt.Dot,
        (a, b, other),
        (addition.result.type,),
        dot.attributes,
        location=fuse(dot.location, addition.location),
    )
    rewriter.replace_with_values(addition, "accumulate", new.results, (new,))
    rewriter.replace_with_ops(dot, "accumulate", (new,))


def _is_part_of(dot: Operation, addition: Operation) -> bool:
    """Whether `dot` is one that starts at zero and whose result only `addition` wants."""
    if not tt.Dot.matches(dot) or dot.block is not addition.block or len(dot.result.uses) != 1:
        return False
    if element_of(dot.result.type) not in _SUMS or any(
        map(_is_float8, (tt.Dot(dot).a, tt.Dot(dot).b))
    ):
        return False
    return constant_value(tt.Dot(dot).accumulator) == 0


def _is_float8(value: Value) -> bool:
    element = element_of(value.type)
    return element.bits == 8 and element != ir.I8
