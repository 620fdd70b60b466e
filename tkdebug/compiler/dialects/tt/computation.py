"""Matrix products, and what applies a region, assembly or a library function to elements."""

from __future__ import annotations

from tkdebug.compiler.dialects.interfaces import DotLike, OneResult
from tkdebug.compiler.ir.core import Block
from tkdebug.compiler.ir.op_view import (
    NUMBERS,
    TILES,
    VALUES,
    OpView,
    attribute_def,
    optional_attribute_def,
    optional_operand_def,
    variadic_operands_def,
    variadic_results_def,
)


class Dot(DotLike):
    """a @ b + acc, accumulated in acc's dtype; fp32 inputs in input_precision."""

    name = "tt.dot"


class DotScaled(DotLike):
    """a @ b + acc in fp32 of elements times the scales of their groups of 16 or 32 along K."""

    name = "tt.dot_scaled"
    lhs_scale = optional_operand_def(TILES, present="lhs_scaled")
    rhs_scale = optional_operand_def(TILES, present="rhs_scaled")
    lhs_format = attribute_def("lhs_format", str)
    rhs_format = attribute_def("rhs_format", str)
    lhs_k_pack = attribute_def("lhs_k_pack", bool, True)
    rhs_k_pack = attribute_def("rhs_k_pack", bool, True)
    lhs_scaled = attribute_def("lhs_scaled", bool, False)
    rhs_scaled = attribute_def("rhs_scaled", bool, False)
    fast_math = attribute_def("fast_math", bool, False)


class Combining(OpView):
    """Combines elements along an axis with a region of two operands per tile."""

    sources = variadic_operands_def(VALUES)
    results = variadic_results_def()
    axis = attribute_def("axis", int)
    # The name of a combination that is known; the region is what counts.
    combiner = optional_attribute_def("combiner", str)

    @property
    def combine(self) -> Block:
        """The block that combines two elements of each tile."""
        return self.op.regions[0].block


class Reduce(Combining):
    """Combines all elements along an axis with its region."""

    name = "tt.reduce"


class Scan(Combining):
    """Inclusive prefix combination along an axis with its region."""

    name = "tt.scan"
    reverse = attribute_def("reverse", bool, False)


class ReduceReturn(OpView):
    """Ends a combine region."""

    name = "tt.reduce.return"
    values = variadic_operands_def()


class MapElementwise(OpView):
    """Its region applied to `pack` elements of each tile at a time."""

    name = "tt.map_elementwise"
    sources = variadic_operands_def(VALUES)
    results = variadic_results_def()
    pack = attribute_def("pack", int)


class MapElementwiseReturn(OpView):
    """Ends the region of tt.map_elementwise."""

    name = "tt.map_elementwise.return"
    values = variadic_operands_def()


class ElementwiseInlineAsm(OpView):
    """PTX text `asm` applied to `pack` elements of each tile at a time."""

    name = "tt.elementwise_inline_asm"
    sources = variadic_operands_def(VALUES)
    results = variadic_results_def()
    asm = attribute_def("asm", str)
    constraints = attribute_def("constraints", str)
    pack = attribute_def("pack", int)
    pure = attribute_def("pure", bool, False)


class ExternElementwise(OneResult):
    """The libdevice function `function`, element by element."""

    name = "tt.extern_elementwise"
    sources = variadic_operands_def(NUMBERS)
    function = attribute_def("function", str)
    symbol = attribute_def("symbol", str)
    unsigned = attribute_def("unsigned", bool, False)
