"""`RaiseToDot`: `tl.sum(x[:, :, None] * y[None, :, :], 1)` becomes the matrix product that it is.

In that form all M x N x K products exist at once; a dot needs only the operands and the sums. The
dot is one of "ieee" precision: products and sums are those of the elements' own type, in the order
of dots.

Only for tiles that `tl.dot` would take: smaller ones gain nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis.dot_use import BroadcastProduct
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Module, Operation
from tkdebug.compiler.ir.location import fuse
from tkdebug.compiler.ir.types import element_of, tile
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter

_ELEMENTS = (ir.F32, ir.F64)
_SMALLEST = 16


@dataclass(frozen=True, slots=True)
class RaiseToDot:
    """Looks for sums of products of two broadcast tiles."""

    name: ClassVar[str] = "raise-to-dot"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Look at every reduction."""
        for op in list(module.walk()):
            if tt.Reduce.matches(op):
                _form(op, rewriter)
        rewriter.commit()


def _form(reduce: Operation, rewriter: Rewriter) -> None:
    found = BroadcastProduct.of(reduce)
    if found is None or list(found.product.result.uses.values()) != [1]:
        return
    product, element = found.product, element_of(found.product.result.type)
    if element not in _ELEMENTS or min(found.sizes) < _SMALLEST:
        return
    location = fuse(product.location, *(inner.location for inner in reduce.walk()))
    build = OpBuilder(rewriter, reduce, "form-dot", location)
    a, b = found.rows, found.columns
    if found.sum_axis < found.row_axis:
        a = build.trans(a, (1, 0))
    if found.column_axis < found.sum_axis:
        b = build.trans(b, (1, 0))
    rows, columns, _ = found.sizes
    # What a sum of nothing but -0.0 starts from.
    start = build.constant(tile((rows, columns), element), -0.0)
    dot = build.op(tt.Dot, (a, b, start), input_precision="ieee")
    maker = dot.defining_op
    assert maker is not None
    for user in list(reduce.result.uses):
        user.replace_operand(reduce.result, dot)
        rewriter.record_change(user, "form-dot")
    rewriter.note_replaced(reduce.result, dot)
    rewriter.replace_with_ops(reduce, "form-dot", [maker])
    rewriter.replace_with_ops(product, "form-dot", [maker])
