"""Builds the ops that a lowering pass puts in the place of one op.

Everything gets the location of the replaced op and is recorded as new under the pass's rule.
Result types come from the operands, as in the op table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Attribute, Operation, Value
from tkdebug.compiler.ir.location import Location
from tkdebug.compiler.ir.op_view import OpName, op_name
from tkdebug.compiler.ir.types import ScalarType, Type, element_of, shape_of, tile
from tkdebug.compiler.rewriting.rewriter import Rewriter


class OpBuilder:
    """Builds ops before `anchor`.

    Args:
        rewriter: the rewriter.
        anchor: the op before which ops are built, and that `replace` replaces.
        rule: the rule under which they are recorded.
        location: the location of the ops; None for the location of `anchor`.
    """

    def __init__(
        self,
        rewriter: Rewriter,
        anchor: Operation,
        rule: str,
        location: Location | None = None,
    ) -> None:
        self._rewriter = rewriter
        self._anchor = anchor
        self._rule = rule
        self._location = anchor.location if location is None else location

    def op(
        self,
        name: OpName,
        operands: Sequence[Value],
        result: Type | None = None,
        **attributes: Attribute,
    ) -> Value:
        """Build op `name` and return its result; its type is inferred unless `result` is given."""
        if result is None:
            results = OPS[op_name(name)].infer([value.type for value in operands], attributes)
            assert results is not None, f"{op_name(name)} needs its result type"
            (result,) = results
        built = self._rewriter.build_before(
            self._anchor, name, operands, (result,), attributes, location=self._location
        )
        self._rewriter.record_new(built, self._rule)
        return built.result

    def effect(self, name: OpName, operands: Sequence[Value], **attributes: Attribute) -> Operation:
        """Build an op `name` without results, and return it."""
        built = self._rewriter.build_before(
            self._anchor, name, operands, (), attributes, location=self._location
        )
        self._rewriter.record_new(built, self._rule)
        return built

    def replace(
        self,
        name: OpName,
        operands: Sequence[Value],
        attributes: Mapping[str, Attribute],
        result_types: Sequence[Type] | None = None,
    ) -> Operation:
        """Replace the anchor by op `name`; its results keep their types unless types are given."""
        return self._rewriter.replace_with_op(
            self._anchor, self._rule, name, operands, attributes, result_types=result_types
        )

    def constant(self, type_: Type, value: int | float) -> Value:
        """A constant of `type_`; for a tile type, all elements are `value`."""
        return self.op(arith.Constant, (), type_, value=value)

    def binary(self, op: type[arith.Binary], a: Value, b: Value | int | float) -> Value:
        """`op` of two values, or of a value and a constant."""
        other = b if isinstance(b, Value) else self.constant(a.type, b)
        return self.op(op, (a, other))

    def compare(self, predicate: str, a: Value, b: Value) -> Value:
        """A comparison of integers."""
        return self.op(arith.CmpI, (a, b), predicate=predicate)

    def cast(
        self, name: OpName, value: Value, element: ScalarType, **attributes: Attribute
    ) -> Value:
        """`value` with its elements converted by op `name`."""
        if element_of(value.type) == element:
            return value
        return self.op(name, (value,), ir.with_element(value.type, element), **attributes)

    def range(self, extent: int) -> Value:
        """The i32 numbers from 0 to `extent` - 1."""
        return self.op(tt.MakeRange, (), tile((extent,), ir.I32), start=0, end=extent)

    def splat(self, value: Value, shape: tuple[int, ...]) -> Value:
        """A tile of `shape` whose elements all are the scalar `value`."""
        return self.op(tt.Splat, (value,), tile(shape, element_of(value.type)))

    def expand_dims(self, value: Value, axis: int) -> Value:
        """`value` with a new axis of extent 1 at `axis`."""
        return self.op(tt.ExpandDims, (value,), axis=axis)

    def along(self, value: Value, axis: int, rank: int) -> Value:
        """A tile of one axis as a tile of `rank` axes: along `axis`, the others of extent 1."""
        for place in range(rank):
            if place != axis:
                value = self.expand_dims(value, place)
        return value

    def broadcast(self, value: Value, shape: tuple[int, ...]) -> Value:
        """`value` as a tile of `shape`: its axes of extent 1 are repeated."""
        if shape_of(value.type) == shape:
            return value
        return self.op(tt.Broadcast, (value,), tile(shape, element_of(value.type)))

    def reshape(self, value: Value, shape: tuple[int, ...]) -> Value:
        """`value` as a tile of `shape` with the same elements in row-major order."""
        if shape_of(value.type) == shape:
            return value
        return self.op(tt.Reshape, (value,), tile(shape, element_of(value.type)))

    def trans(self, value: Value, order: tuple[int, ...]) -> Value:
        """`value` with its axes permuted by `order`."""
        return self.op(tt.Trans, (value,), order=order)
