"""Ops that make tiles, convert their elements, move them about or pick some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tkdebug.compiler.dialects.arith import FloatCast, FloatDivision
from tkdebug.compiler.dialects.interfaces import (
    Cast,
    FloatOp,
    LikeFirst,
    Moving,
    OneResult,
    SameElements,
    SameLayout,
)
from tkdebug.compiler.ir import TensorType, Type
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Attribute
from tkdebug.compiler.ir.op_view import (
    CONDITIONS,
    INTEGERS,
    NUMBERS,
    POINTERS,
    TILES,
    VALUES,
    OperandDef,
    attribute_def,
    operand_def,
    optional_attribute_def,
    optional_operand_def,
    result_def,
)
from tkdebug.errors import IRError


class FpToFp(FloatCast):
    """Float conversion with a rounding mode, fp8 saturating."""

    name = "tt.fp_to_fp"
    # "rtz" toward zero; to nearest even otherwise.
    rounding = optional_attribute_def("rounding", str)


class Bitcast(Cast):
    """Reinterprets bits under another type of equal width."""

    name = "tt.bitcast"
    takes = gives = VALUES
    width = "of equal width"


class PtrToInt(Cast):
    """Address of a pointer in bytes."""

    name = "tt.ptr_to_int"
    takes, gives = POINTERS, INTEGERS


class IntToPtr(Cast):
    """Pointer to an address in bytes."""

    name = "tt.int_to_ptr"
    takes, gives = INTEGERS, POINTERS


class PreciseDivF(FloatDivision):
    """Quotient, rounded to nearest even."""

    name = "tt.precise_divf"


class PreciseSqrt(FloatOp):
    """Square root, rounded to nearest even."""

    name = "tt.precise_sqrt"
    source = operand_def(VALUES)


class MakeRange(OneResult):
    """The integers start, start + 1, … end - 1.

    With `rereads_thread` the thread's number is read again, so that the assembler does not merge
    the range with an equal one that it would keep in registers.
    """

    name = "tt.make_range"
    takes_any_layout = True
    start = attribute_def("start", int)
    end = attribute_def("end", int)
    rereads_thread = attribute_def("rereads_thread", bool, False)

    def verify(self) -> None:
        """Check that the range fills the tile."""
        (extent,) = ir.shape_of(self.result.type)
        if self.end - self.start != extent:
            raise IRError(
                f"{self.name}: range [{self.start}, {self.end}) does not fill {self.result.type}"
            )


class Rearrangement(Moving, SameElements, OneResult):
    """Moves the elements of one tile or scalar elsewhere, whatever their values are."""

    source: OperandDef


class Splat(Rearrangement):
    """A scalar in every element of a tile."""

    name = "tt.splat"
    takes_any_layout = True
    source = operand_def(VALUES)


class Unsplat(Rearrangement):
    """The only element of a one-element tile."""

    name = "tt.unsplat"
    takes_any_layout = True
    source = operand_def(VALUES)

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """The element's type."""
        return (ir.element_of(operands[0]),)


class ExpandDims(Rearrangement):
    """A new axis of extent 1."""

    name = "tt.expand_dims"
    source = operand_def(TILES)
    axis = attribute_def("axis", int)

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """The tile with one more axis, of extent 1."""
        (source,) = operands
        axis = attributes["axis"]
        assert isinstance(source, TensorType)
        assert isinstance(axis, int)
        return (TensorType((*source.shape[:axis], 1, *source.shape[axis:]), source.element),)


class Broadcast(Rearrangement):
    """Axes of extent 1 repeated."""

    name = "tt.broadcast"
    source = operand_def(VALUES)


class Reshape(Rearrangement):
    """The elements in row-major order under another shape."""

    name = "tt.reshape"
    source = operand_def(VALUES)

    def verify(self) -> None:
        """Check that operand and result have the same number of elements."""
        source, target = self.source.type, self.result.type
        if prod(ir.shape_of(source)) != prod(ir.shape_of(target)):
            raise IRError(f"{self.name}: {source} and {target} have different numbers of elements")


class Trans(Rearrangement):
    """Axes permuted."""

    name = "tt.trans"
    source = operand_def(TILES)
    order = attribute_def("order", tuple[int, ...])

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """The tile with its axes permuted."""
        (source,) = operands
        order = attributes["order"]
        assert isinstance(source, TensorType)
        assert isinstance(order, tuple)
        return (TensorType(tuple(source.shape[axis] for axis in order), source.element),)  # type: ignore[index]


class Pair(Moving, OneResult):
    """Two tiles of one type."""

    lhs = operand_def(VALUES)
    rhs = operand_def(VALUES)


class Join(Pair):
    """Two tiles side by side in a new last axis."""

    name = "tt.join"

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """The tiles' type with an axis of extent 2 more."""
        return (ir.tile((*ir.shape_of(operands[0]), 2), ir.element_of(operands[0])),)


class Split(Moving):
    """The two halves along a last axis of extent 2."""

    name = "tt.split"
    source = operand_def(TILES)
    low = result_def()
    high = result_def()

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """The tile's type without the last axis, twice."""
        half = ir.tile(ir.shape_of(operands[0])[:-1], ir.element_of(operands[0]))
        return (half, half)


class Cat(Pair):
    """Two tiles one after the other along the first axis."""

    name = "tt.cat"

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """A tile as long as both."""
        a, b = (ir.shape_of(operand) for operand in operands)
        return (ir.tile((a[0] + b[0], *a[1:]), ir.element_of(operands[0])),)


class AlongAxis(OneResult):
    """Moves the elements of a tile along one axis."""

    source = operand_def(VALUES)
    axis = attribute_def("axis", int)


class Gather(AlongAxis):
    """The elements of the first tile at the indices of the second along `axis`."""

    name = "tt.gather"
    takes_any_layout = True
    indices = operand_def(INTEGERS)

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """Elements of the first operand in the shape of the second."""
        return (ir.tile(ir.shape_of(operands[1]), ir.element_of(operands[0])),)

    def verify(self) -> None:
        """Check that both tiles are of one shape but for the axis."""
        source, index = ir.shape_of(self.source.type), ir.shape_of(self.indices.type)
        axis, name = self.axis, self.name
        if len(source) != len(index) or not isinstance(axis, int) or not 0 <= axis < len(source):
            raise IRError(f"{name}: {source} cannot be gathered by {index} along axis {axis}")
        for place, (have, want) in enumerate(zip(index, source, strict=True)):
            if place != axis and have != want:
                raise IRError(f"{name}: {source} and {index} differ along axis {place}")


class Histogram(OneResult):
    """Counts elements (where the mask holds) that equal 0, 1, … bins - 1; others count nowhere."""

    name = "tt.histogram"
    source = operand_def(INTEGERS)
    mask = optional_operand_def(CONDITIONS)
    bins = attribute_def("bins", int)
    unsigned = attribute_def("unsigned", bool, False)

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """An i32 for each bin."""
        bins = attributes["bins"]
        assert isinstance(bins, int)
        return (ir.tile((bins,), ir.I32),)


class Flip(AlongAxis, Moving, SameLayout, LikeFirst):
    """The elements in reverse order along `axis`."""

    name = "tt.flip"
    takes_any_layout = True

    def verify(self) -> None:
        """Check that the tile has the axis."""
        rank, axis = len(ir.shape_of(self.source.type)), self.axis
        if not isinstance(axis, int) or not 0 <= axis < rank:
            raise IRError(f"{self.name}: axis {axis} is outside a tile of {rank} axes")


class Sorting(LikeFirst):
    """Puts the elements along the last axis in order."""

    takes_any_layout = True
    source = operand_def(NUMBERS)
    descending = attribute_def("descending", bool, False)
    unsigned = attribute_def("unsigned", bool, False)

    def verify(self) -> None:
        """Check that the operand is a tile of numbers."""
        type_ = self.source.type
        if not ir.shape_of(type_) or not isinstance(ir.element_of(type_), ir.ScalarType):
            raise IRError(f"{self.name}: expected a tile of numbers, got {type_}")


class Sort(Sorting, SameLayout):
    """The elements in order along the last axis."""

    name = "tt.sort"


class TopK(Sorting):
    """The `k` first elements along the last axis, once it is in order."""

    name = "tt.topk"
    k = attribute_def("k", int)

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """The tile with a last axis of `k` elements."""
        k = attributes["k"]
        assert isinstance(k, int)
        return (ir.tile((*ir.shape_of(operands[0])[:-1], k), ir.element_of(operands[0])),)

    def verify(self) -> None:
        """Check that the last axis has at least `k` elements."""
        super().verify()
        k, extent = self.k, ir.shape_of(self.source.type)[-1]
        if not isinstance(k, int) or not 0 < k <= extent:
            raise IRError(f"{self.name}: k is {k}, the last axis has {extent} elements")


class BitonicMerge(Sorting, SameLayout):
    """log2(extent) rounds of compare-and-swap, which sort a bitonic sequence."""

    name = "tt.bitonic_merge"
