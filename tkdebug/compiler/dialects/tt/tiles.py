"""What makes tiles, converts their elements, moves them about or picks some of them."""

from __future__ import annotations

from tkdebug.compiler.dialects.interfaces import Cast, OneResult
from tkdebug.compiler.ir.op_view import (
    CONDITIONS,
    FLOATS,
    INTEGERS,
    NUMBERS,
    TILES,
    VALUES,
    OperandDef,
    OpView,
    attribute_def,
    operand_def,
    optional_attribute_def,
    optional_operand_def,
    result_def,
)


class FpToFp(Cast):
    """Float conversion with a rounding mode, fp8 saturating."""

    name = "tt.fp_to_fp"
    # "rtz" toward zero; to nearest even otherwise.
    rounding = optional_attribute_def("rounding", str)


class Bitcast(Cast):
    """The same bits under another type of equal width."""

    name = "tt.bitcast"


class PtrToInt(Cast):
    """Address of a pointer in bytes."""

    name = "tt.ptr_to_int"


class IntToPtr(Cast):
    """Pointer to an address in bytes."""

    name = "tt.int_to_ptr"


class PreciseDivF(OneResult):
    """Quotient, rounded to nearest even."""

    name = "tt.precise_divf"
    lhs = operand_def(FLOATS)
    rhs = operand_def(FLOATS)


class PreciseSqrt(OneResult):
    """Square root, rounded to nearest even."""

    name = "tt.precise_sqrt"
    source = operand_def(VALUES)


class MakeRange(OneResult):
    """The integers start, start + 1, … end - 1.

    With `rereads_thread` the number of the thread is read again for it, so that the assembler does
    not take it for an equal one and keep that in registers.
    """

    name = "tt.make_range"
    start = attribute_def("start", int)
    end = attribute_def("end", int)
    rereads_thread = attribute_def("rereads_thread", bool, False)


class Rearrangement(OneResult):
    """Puts the elements of one tile or scalar elsewhere, and looks at none of them."""

    source: OperandDef


class Splat(Rearrangement):
    """A scalar in every element of a tile."""

    name = "tt.splat"
    source = operand_def(VALUES)


class Unsplat(Rearrangement):
    """The only element of a one-element tile."""

    name = "tt.unsplat"
    source = operand_def(VALUES)


class ExpandDims(Rearrangement):
    """A new axis of extent 1."""

    name = "tt.expand_dims"
    source = operand_def(TILES)
    axis = attribute_def("axis", int)


class Broadcast(Rearrangement):
    """Axes of extent 1 repeated."""

    name = "tt.broadcast"
    source = operand_def(VALUES)


class Reshape(Rearrangement):
    """The elements in row-major order under another shape."""

    name = "tt.reshape"
    source = operand_def(VALUES)


class Trans(Rearrangement):
    """Axes permuted."""

    name = "tt.trans"
    source = operand_def(TILES)
    order = attribute_def("order", tuple[int, ...])


class Pair(OneResult):
    """Two tiles of one type."""

    lhs = operand_def(VALUES)
    rhs = operand_def(VALUES)


class Join(Pair):
    """Two tiles side by side in a new last axis."""

    name = "tt.join"


class Split(OpView):
    """The two halves along a last axis of extent 2."""

    name = "tt.split"
    source = operand_def(TILES)
    low = result_def()
    high = result_def()


class Cat(Pair):
    """Two tiles one after the other along the first axis."""

    name = "tt.cat"


class AlongAxis(OneResult):
    """Moves the elements of a tile along one axis."""

    source = operand_def(VALUES)
    axis = attribute_def("axis", int)


class Gather(AlongAxis):
    """The elements of the first tile at the indices of the second along `axis`."""

    name = "tt.gather"
    indices = operand_def(INTEGERS)


class Histogram(OneResult):
    """How many elements (where the mask holds) equal 0, 1, … bins - 1; others count nowhere."""

    name = "tt.histogram"
    source = operand_def(INTEGERS)
    mask = optional_operand_def(CONDITIONS)
    bins = attribute_def("bins", int)
    unsigned = attribute_def("unsigned", bool, False)


class Flip(AlongAxis):
    """The elements in reverse order along `axis`."""

    name = "tt.flip"


class Sorting(OneResult):
    """Puts the elements along the last axis in order."""

    source = operand_def(NUMBERS)
    descending = attribute_def("descending", bool, False)
    unsigned = attribute_def("unsigned", bool, False)


class Sort(Sorting):
    """The elements in order along the last axis."""

    name = "tt.sort"


class TopK(Sorting):
    """The `k` first elements along the last axis, once it is in order."""

    name = "tt.topk"
    k = attribute_def("k", int)


class BitonicMerge(Sorting):
    """log2(extent) rounds of compare-and-swap, which sort a bitonic sequence."""

    name = "tt.bitonic_merge"
