"""`RaiseToDot`: `tl.sum(x[:, :, None] * y[None, :, :], 1)` becomes the matrix product that it is.

In that form all M x N x K products exist at once; a dot needs only the operands and the sums. The
dot is one of "ieee" precision: products and sums are those of the elements' own type, in the order
of dots.

Only for tiles that `tl.dot` would take: smaller ones gain nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Module, Operation, Value
from tkdebug.compiler.ir.location import fuse
from tkdebug.compiler.ir.types import element_of, shape_of, tile
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


@dataclass(frozen=True, slots=True)
class _Spread:
    """A tile of two axes in one of three.

    Attributes:
        tile: the former.
        repeated: the axis of the latter along which it is repeated.
    """

    tile: Value
    repeated: int

    @staticmethod
    def of(value: Value) -> _Spread | None:
        """What `value` is made of; None when it is made otherwise."""
        repeat = value.defining_op
        if repeat is None or not tt.Broadcast.matches(repeat):
            return None
        expand = tt.Broadcast(repeat).source.defining_op
        if expand is None or not tt.ExpandDims.matches(expand):
            return None
        axis = tt.ExpandDims(expand).axis
        narrow, wide = shape_of(expand.result.type), shape_of(value.type)
        if narrow[:axis] + narrow[axis + 1 :] != wide[:axis] + wide[axis + 1 :]:
            return None
        return _Spread(tt.ExpandDims(expand).source, axis)


def _form(reduce: Operation, rewriter: Rewriter) -> None:
    product = tt.Reduce(reduce).sources[0].defining_op
    if len(reduce.operands) != 1 or not _adds(reduce) or product is None:
        return
    if not arith.MulF.matches(product) or list(product.result.uses.values()) != [1]:
        return
    shape, element = shape_of(product.result.type), element_of(product.result.type)
    if len(shape) != 3 or element not in _ELEMENTS or min(shape) < _SMALLEST:
        return
    spreads = [_Spread.of(value) for value in product.operands]
    axis = tt.Reduce(reduce).axis
    # The first axis of the result is the one along which the second operand is repeated.
    by_repeated = {spread.repeated: spread for spread in spreads if spread is not None}
    rows, columns = (d for d in range(3) if d != axis)
    if set(by_repeated) != {rows, columns}:
        return
    location = fuse(product.location, *(inner.location for inner in reduce.walk()))
    build = OpBuilder(rewriter, reduce, "form-dot", location)
    a, b = by_repeated[columns].tile, by_repeated[rows].tile
    if axis < rows:
        a = build.trans(a, (1, 0))
    if columns < axis:
        b = build.trans(b, (1, 0))
    # What a sum of nothing but -0.0 starts from.
    start = build.constant(tile((shape[rows], shape[columns]), element), -0.0)
    dot = build.op(tt.Dot, (a, b, start), input_precision="ieee")
    maker = dot.defining_op
    assert maker is not None
    for user in list(reduce.result.uses):
        user.replace_operand(reduce.result, dot)
        rewriter.record_change(user, "form-dot")
    rewriter.note_replaced(reduce.result, dot)
    rewriter.replace_with_ops(reduce, "form-dot", [maker])
    rewriter.replace_with_ops(product, "form-dot", [maker])


def _adds(reduce: Operation) -> bool:
    names = [op.name for op in reduce.regions[0].block.operations]
    return names == [arith.AddF.name, tt.ReduceReturn.name]
