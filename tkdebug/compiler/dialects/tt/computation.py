"""Matrix products, and ops that apply a region, assembly or a library function to elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tkdebug.compiler.dialects.interfaces import (
    DotLike,
    Effects,
    ElementFunction,
    Elementwise,
    OneResult,
    PlainDot,
    SameLayout,
    Terminator,
)
from tkdebug.compiler.dialects.libdevice import FUNCTIONS
from tkdebug.compiler.ir import Type
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Attribute, Block
from tkdebug.compiler.ir.op_view import (
    NUMBERS,
    TILES,
    VALUES,
    attribute_def,
    optional_attribute_def,
    optional_operand_def,
    variadic_operands_def,
    variadic_results_def,
)
from tkdebug.errors import IRError

# The formats of OCP's microscaling specification, and those of factors that need no scale.
SCALED_FORMATS = ("e2m1", "e4m3", "e5m2", "bf16", "fp16")


class Dot(PlainDot):
    """a @ b + acc, accumulated in acc's dtype; fp32 inputs in input_precision."""

    name = "tt.dot"
    makes_inf = True


class DotScaled(DotLike):
    """a @ b + acc in fp32 of elements times the scales of their groups of 16 or 32 along K."""

    name = "tt.dot_scaled"
    takes_any_layout = True
    lhs_scale = optional_operand_def(TILES, present="lhs_scaled")
    rhs_scale = optional_operand_def(TILES, present="rhs_scaled")
    lhs_format = attribute_def("lhs_format", str)
    rhs_format = attribute_def("rhs_format", str)
    lhs_k_pack = attribute_def("lhs_k_pack", bool, True)
    rhs_k_pack = attribute_def("rhs_k_pack", bool, True)
    lhs_scaled = attribute_def("lhs_scaled", bool, False)
    rhs_scaled = attribute_def("rhs_scaled", bool, False)
    fast_math = attribute_def("fast_math", bool, False)

    def verify(self) -> None:
        """Check that formats are known, and each side that is scaled has its scales."""
        op = self.op
        scales = self.lhs_scaled + self.rhs_scaled
        if len(op.operands) != 3 + scales:
            raise IRError(f"{op.name}: got {len(op.operands)} operands, expected {3 + scales}")
        for side in ("lhs_format", "rhs_format"):
            if op.attributes.get(side) not in SCALED_FORMATS:
                raise IRError(f"{op.name}: {side} is {op.attributes.get(side)!r}")


class ReduceReturn(Terminator):
    """Ends a combine region."""

    name = "tt.reduce.return"
    values = variadic_operands_def()


class Combining(ElementFunction):
    """Combines elements along an axis with a region of two operands per tile."""

    terminators = (ReduceReturn,)
    sources = variadic_operands_def(VALUES)
    results = variadic_results_def()
    axis = attribute_def("axis", int)
    # The name of a well-known combination; the region alone defines the result.
    combiner = optional_attribute_def("combiner", str)

    def verify(self) -> None:
        """Check that tiles are of one shape, and the region takes two elements of each."""
        op, count = self.op, len(self.sources)
        shapes = {ir.shape_of(value.type) for value in self.sources}
        if len(shapes) != 1:
            raise IRError(f"{op.name}: operands have different shapes: {sorted(shapes)}")
        if len(op.regions) != 1 or len(self.combine.arguments) != 2 * count:
            raise IRError(f"{op.name}: the combine region must take {2 * count} arguments")

    @property
    def combine(self) -> Block:
        """The block that combines two elements of each tile."""
        return self.op.regions[0].block


class Reduce(Combining):
    """Combines all elements along an axis with its region."""

    name = "tt.reduce"

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """The tiles without the axis."""
        axis = attributes["axis"]
        assert isinstance(axis, int)
        shapes = [ir.shape_of(operand) for operand in operands]
        return tuple(
            ir.tile((*shape[:axis], *shape[axis + 1 :]), ir.element_of(operand))
            for shape, operand in zip(shapes, operands, strict=True)
        )


class Scan(Combining, SameLayout):
    """Inclusive prefix combination along an axis with its region."""

    name = "tt.scan"
    reverse = attribute_def("reverse", bool, False)

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """The types of the operands."""
        return tuple(operands)


class MapElementwiseReturn(Terminator):
    """Ends the region of tt.map_elementwise."""

    name = "tt.map_elementwise.return"
    values = variadic_operands_def()


class MapElementwise(ElementFunction, Elementwise):
    """The region applied to `pack` elements of each tile at a time."""

    name = "tt.map_elementwise"
    terminators = (MapElementwiseReturn,)
    sources = variadic_operands_def(VALUES)
    results = variadic_results_def()
    pack = attribute_def("pack", int)

    def verify(self) -> None:
        """Check that tiles have one shape, and the region takes and gives `pack` of each."""
        op, pack = self.op, self.op.attributes.get("pack")
        shapes = {ir.shape_of(value.type) for value in (*self.sources, *self.results)}
        if len(shapes) != 1:
            raise IRError(
                f"{op.name}: operands and results have different shapes: {sorted(shapes)}"
            )
        if not isinstance(pack, int) or pack < 1:
            raise IRError(f"{op.name}: pack must be a positive int, got {pack!r}")
        block = op.regions[0].block
        if len(block.arguments) != pack * len(self.sources):
            raise IRError(f"{op.name}: the region must take {pack} arguments an operand")
        if len(block.terminator.operands) != pack * len(self.results):
            raise IRError(f"{op.name}: the region must give {pack} values a result")


class ElementwiseInlineAsm(Elementwise):
    """PTX text `asm` applied to `pack` elements of each tile at a time."""

    name = "tt.elementwise_inline_asm"
    # Unless attribute `pure` is set.
    effects = Effects.OTHER
    sources = variadic_operands_def(VALUES)
    results = variadic_results_def()
    asm = attribute_def("asm", str)
    constraints = attribute_def("constraints", str)
    pack = attribute_def("pack", int)
    pure = attribute_def("pure", bool, False)


class ExternElementwise(Elementwise, OneResult):
    """The libdevice function `function`, element by element."""

    name = "tt.extern_elementwise"
    makes_inf = True
    sources = variadic_operands_def(NUMBERS)
    function = attribute_def("function", str)
    symbol = attribute_def("symbol", str)
    unsigned = attribute_def("unsigned", bool, False)

    def verify(self) -> None:
        """Check that libdevice has the function."""
        if self.op.attributes.get("function") not in FUNCTIONS:
            got = self.op.attributes.get("function")
            raise IRError(f"{self.op.name}: libdevice has no {got!r}")
