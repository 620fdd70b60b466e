"""Dots among the values of a kernel: which values feed one or come from one, and hidden products.

A hidden product is a sum of products of two broadcast tiles,
`tl.sum(x[:, :, None] * y[None, :, :], 1)`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tkdebug.compiler.analysis.layout_inference import is_elementwise
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.interfaces import DotLike
from tkdebug.compiler.ir.core import Operation, Value
from tkdebug.compiler.ir.types import shape_of


def feeds_dot(value: Value) -> bool:
    """Whether a dot multiplies `value`, or something computed from it in the same block."""
    # Not recursive: unrolled loops make chains of thousands of ops.
    seen, pending = {value}, [value]
    while pending:
        current = pending.pop()
        for user in current.uses:
            if tt.Dot.matches(user):
                if current in (DotLike(user).a, DotLike(user).b):
                    return True
            elif not user.regions:
                pending += (result for result in user.results if result not in seen)
                seen.update(user.results)
    return False


def comes_from_dot(value: Value) -> bool:
    """Whether `value` is a dot's result, or computed from one element by element in its block."""
    seen, pending = {value}, [value]
    while pending:
        op = pending.pop().defining_op
        if op is None:
            continue
        if tt.Dot.matches(op):
            return True
        if is_elementwise(op):
            operands = [operand for operand in op.operands if operand not in seen]
            pending += operands
            seen.update(operands)
    return False


_AXES = 3


@dataclass(frozen=True, slots=True)
class BroadcastProduct:
    """A hidden product: a matrix product as a sum over products of two broadcast tiles.

    Attributes:
        product: the multiplication.
        rows: the tile that is repeated along the result's columns, of two axes.
        columns: the tile that is repeated along the result's rows.
        row_axis: the axis of `product` that becomes the first axis of the result.
        sum_axis: the axis of `product` that is summed.
        column_axis: the axis of `product` that becomes the second axis of the result.
    """

    product: Operation
    rows: Value
    columns: Value
    row_axis: int
    sum_axis: int
    column_axis: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The rows and columns of the result, and the elements that each sum adds."""
        shape = shape_of(self.product.result.type)
        return shape[self.row_axis], shape[self.column_axis], shape[self.sum_axis]

    @staticmethod
    def of(reduce: Operation) -> BroadcastProduct | None:
        """Return the product that a reduction sums up, or None if it sums up none."""
        if len(reduce.operands) != 1 or not _adds_up(reduce):
            return None
        product = tt.Reduce(reduce).sources[0].defining_op
        if product is None or not arith.MulF.matches(product):
            return None
        if len(shape_of(product.result.type)) != _AXES:
            return None
        by_repeated = dict(spread for v in product.operands if (spread := _spread(v)) is not None)
        axis = tt.Reduce(reduce).axis
        row_axis, column_axis = (d for d in range(_AXES) if d != axis)
        if set(by_repeated) != {row_axis, column_axis}:
            return None
        rows, columns = by_repeated[column_axis], by_repeated[row_axis]
        return BroadcastProduct(product, rows, columns, row_axis, axis, column_axis)


def _spread(value: Value) -> tuple[int, Value] | None:
    """The new axis along which `value` repeats a tile, and that tile; None if it repeats none."""
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
    return axis, tt.ExpandDims(expand).source


def _adds_up(reduce: Operation) -> bool:
    names = [op.name for op in reduce.regions[0].block.operations]
    return names == [arith.AddF.name, tt.ReduceReturn.name]
