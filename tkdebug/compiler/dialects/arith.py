"""MLIR's arith dialect: constants, arithmetic, comparisons, selects and conversions."""

from __future__ import annotations

from tkdebug.compiler.dialects.interfaces import Cast, OneResult
from tkdebug.compiler.ir.core import Value
from tkdebug.compiler.ir.op_view import (
    CONDITIONS,
    FLOATS,
    VALUES,
    AttributeDef,
    attribute_def,
    operand_def,
)


class Constant(OneResult):
    """A constant, or a tile of one."""

    name = "arith.constant"
    value = AttributeDef[bool | int | float]("value", (bool, int, float))


class Binary(OneResult):
    """Two operands of one type."""

    lhs = operand_def(VALUES)
    rhs = operand_def(VALUES)

    @property
    def both_orders(self) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
        """Its operands, and its operands the other way round."""
        return (self.lhs, self.rhs), (self.rhs, self.lhs)


class IntegerBinary(Binary):
    """Two integers of one type."""


class FloatBinary(Binary):
    """Two floats of one type."""


class AddI(IntegerBinary):
    """Integer sum, wrapping."""

    name = "arith.addi"


class SubI(IntegerBinary):
    """Integer difference, wrapping."""

    name = "arith.subi"


class MulI(IntegerBinary):
    """Integer product, wrapping."""

    name = "arith.muli"


class DivSI(IntegerBinary):
    """Signed quotient toward zero."""

    name = "arith.divsi"


class DivUI(IntegerBinary):
    """Unsigned quotient."""

    name = "arith.divui"


class RemSI(IntegerBinary):
    """Signed remainder, sign of the dividend."""

    name = "arith.remsi"


class RemUI(IntegerBinary):
    """Unsigned remainder."""

    name = "arith.remui"


class AndI(IntegerBinary):
    """Bitwise and."""

    name = "arith.andi"


class OrI(IntegerBinary):
    """Bitwise or."""

    name = "arith.ori"


class XOrI(IntegerBinary):
    """Bitwise exclusive or."""

    name = "arith.xori"


class ShLI(IntegerBinary):
    """Shift left."""

    name = "arith.shli"


class ShRSI(IntegerBinary):
    """Arithmetic shift right."""

    name = "arith.shrsi"


class ShRUI(IntegerBinary):
    """Logical shift right."""

    name = "arith.shrui"


class MinSI(IntegerBinary):
    """Signed minimum."""

    name = "arith.minsi"


class MaxSI(IntegerBinary):
    """Signed maximum."""

    name = "arith.maxsi"


class MinUI(IntegerBinary):
    """Unsigned minimum."""

    name = "arith.minui"


class MaxUI(IntegerBinary):
    """Unsigned maximum."""

    name = "arith.maxui"


class MulHiUI(IntegerBinary):
    """High half of the unsigned product."""

    name = "arith.mulhiui"


class Compare(Binary):
    """A comparison, which gives i1."""

    predicate = attribute_def("predicate", str)


class CmpI(Compare):
    """Integer comparison."""

    name = "arith.cmpi"


class CmpF(Compare):
    """Float comparison; ordered predicates are false on NaN."""

    name = "arith.cmpf"


class Select(OneResult):
    """Chooses element by element; a scalar condition chooses whole values."""

    name = "arith.select"
    condition = operand_def(CONDITIONS)
    true_value = operand_def(VALUES)
    false_value = operand_def(VALUES)


class AddF(FloatBinary):
    """Float sum."""

    name = "arith.addf"


class SubF(FloatBinary):
    """Float difference."""

    name = "arith.subf"


class MulF(FloatBinary):
    """Float product."""

    name = "arith.mulf"


class DivF(FloatBinary):
    """Float quotient."""

    name = "arith.divf"
    # Natively the fastest instruction, which is for fp32 and has an error of 2 ULP.
    approx = attribute_def("approx", bool, False)


class RemF(FloatBinary):
    """Float remainder, sign of the dividend."""

    name = "arith.remf"


class NegF(OneResult):
    """Float negation."""

    name = "arith.negf"
    source = operand_def(FLOATS)


class MaxNumF(FloatBinary):
    """Maximum that ignores NaN."""

    name = "arith.maxnumf"


class MinNumF(FloatBinary):
    """Minimum that ignores NaN."""

    name = "arith.minnumf"


class MaximumF(FloatBinary):
    """Maximum that propagates NaN."""

    name = "arith.maximumf"


class MinimumF(FloatBinary):
    """Minimum that propagates NaN."""

    name = "arith.minimumf"


class ExtSI(Cast):
    """Sign extension."""

    name = "arith.extsi"


class ExtUI(Cast):
    """Zero extension."""

    name = "arith.extui"


class TruncI(Cast):
    """Truncation to fewer bits."""

    name = "arith.trunci"


class SIToFP(Cast):
    """Signed integer to float, to nearest even."""

    name = "arith.sitofp"


class UIToFP(Cast):
    """Unsigned integer to float."""

    name = "arith.uitofp"


class FPToSI(Cast):
    """Float to signed integer, toward zero, saturating; to i8, the low byte of an i16."""

    name = "arith.fptosi"


class FPToUI(Cast):
    """Float to unsigned integer, toward zero, saturating; to i8, the low byte of an i16."""

    name = "arith.fptoui"


class ExtF(Cast):
    """Float to a wider float, exact."""

    name = "arith.extf"


class TruncF(Cast):
    """Float to a narrower float, to nearest even."""

    name = "arith.truncf"
