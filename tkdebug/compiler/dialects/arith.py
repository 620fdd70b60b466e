"""MLIR's arith dialect: constants, arithmetic, comparisons, selects and conversions.

Integers are signless. Float ops round to their own type after every op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, nan
from typing import Any, ClassVar

from tkdebug.compiler.dialects.interfaces import (
    Cast,
    Elementwise,
    FloatOp,
    LikeFirst,
    OneResult,
    expect_kind,
    expect_one_type,
)
from tkdebug.compiler.ir import Type
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Attribute, Value
from tkdebug.compiler.ir.op_view import (
    CONDITIONS,
    FLOATS,
    INTEGERS,
    VALUES,
    AttributeDef,
    attribute_def,
    operand_def,
)
from tkdebug.errors import IRError


def wrap(value: int, bits: int) -> int:
    """`value` modulo 2**bits as a signed number; i1 stays 0 or 1."""
    if bits == 1:
        return value & 1
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def unsigned(value: int, bits: int) -> int:
    """The unsigned reading of a signless value."""
    return value & ((1 << bits) - 1)


def truncated_division(a: int, b: int) -> int:
    """Quotient rounded toward zero; 0 for division by zero, which is undefined on the GPU."""
    if b == 0:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


class Constant(OneResult):
    """A constant, or a tile of one."""

    name = "arith.constant"
    takes_any_layout = True
    value = AttributeDef[bool | int | float]("value", (bool, int, float))


class Binary(Elementwise, LikeFirst):
    """Two operands of one type.

    Attributes:
        sign: the op's operator in Python, "" for a function.
        combination: name of the reduction that combines with it, "" if there is none.
        identity: the value that leaves the other operand as it is, signs of zero and NaN included,
            on the right and, if the op commutes, on the left; None for none, or if it depends on
            the type.
        absorbing: the value that results for any other operand; of floats, for any finite one.
        commutes: whether both orders of operands give the same bits.
        atomic: the `tl.atomic_…` that does the same to an operand in memory, "" for none.
    """

    lhs = operand_def(VALUES)
    rhs = operand_def(VALUES)
    sign: ClassVar[str] = ""
    combination: ClassVar[str] = ""
    identity: ClassVar[float | None] = None
    absorbing: ClassVar[float | None] = None
    commutes: ClassVar[bool] = False
    atomic: ClassVar[str] = ""

    @property
    def both_orders(self) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
        """The operands in their order, and in the other order."""
        return (self.lhs, self.rhs), (self.rhs, self.lhs)

    @property
    def neutral(self) -> float | None:
        """The identity as a constant of this op's type; None if it has none."""
        return self.identity


class IntegerBinary(Binary):
    """Two integers of one type."""

    @staticmethod
    def compute(a: int, b: int, bits: int) -> int:
        """The result for two numbers, before it wraps at the given width."""
        raise NotImplementedError

    def verify(self) -> None:
        """Check that all operands are integers of one type."""
        expect_one_type(self.op)
        expect_kind(self.op, self.lhs.type, INTEGERS)

    @property
    def bits(self) -> int:
        """The width of its elements."""
        return ir.element_of(self.lhs.type).bits

    @property
    def neutral(self) -> float | None:
        """The identity as a constant of this op's type; None if it has none."""
        return None if self.identity is None else wrap(int(self.identity), self.bits)

    def fold(self, numbers: Sequence[Any]) -> Any:
        """The result for two numbers."""
        a, b = map(int, numbers)
        return wrap(self.compute(a, b, self.bits), self.bits)


class FloatBinary(Binary, FloatOp):
    """Two floats of one type."""


# Integers


class WrappingBinary(IntegerBinary):
    """A sum, a difference or a product, which wraps at the width of its type."""


class AddI(WrappingBinary):
    """Integer sum, wrapping."""

    name = "arith.addi"
    atomic = "add"
    sign = "+"
    combination, identity, commutes = "add", 0, True
    compute = staticmethod(lambda a, b, bits: a + b)


class SubI(WrappingBinary):
    """Integer difference, wrapping."""

    name = "arith.subi"
    atomic = "add"
    sign = "-"
    identity = 0
    compute = staticmethod(lambda a, b, bits: a - b)


class MulI(WrappingBinary):
    """Integer product, wrapping."""

    name = "arith.muli"
    sign = "*"
    combination, identity, absorbing, commutes = "mul", 1, 0, True
    compute = staticmethod(lambda a, b, bits: a * b)


class IntegerDivision(IntegerBinary):
    """A quotient or a remainder, undefined for a divisor of 0."""


class DivSI(IntegerDivision):
    """Signed quotient toward zero."""

    name = "arith.divsi"
    sign = "//"
    identity = 1
    compute = staticmethod(lambda a, b, bits: truncated_division(a, b))


class DivUI(IntegerDivision):
    """Unsigned quotient."""

    name = "arith.divui"
    sign = "//"
    identity = 1
    compute = staticmethod(
        lambda a, b, bits: truncated_division(unsigned(a, bits), unsigned(b, bits))
    )


class IntegerRemainder(IntegerDivision):
    """A remainder, undefined for a divisor of 0."""

    sign = "%"


class RemSI(IntegerRemainder):
    """Signed remainder, sign of the dividend."""

    name = "arith.remsi"
    compute = staticmethod(lambda a, b, bits: a - truncated_division(a, b) * b)


class RemUI(IntegerRemainder):
    """Unsigned remainder."""

    name = "arith.remui"

    @staticmethod
    def compute(a: int, b: int, bits: int) -> int:
        """The remainder of the unsigned readings."""
        a, b = unsigned(a, bits), unsigned(b, bits)
        return a - truncated_division(a, b) * b


class Bitwise(IntegerBinary):
    """Combines the bits of two integers place by place."""


class AndI(Bitwise):
    """Bitwise and."""

    name = "arith.andi"
    atomic = "and"
    sign = "&"
    combination, identity, absorbing, commutes = "and", -1, 0, True
    compute = staticmethod(lambda a, b, bits: a & b)


class OrI(Bitwise):
    """Bitwise or."""

    name = "arith.ori"
    atomic = "or"
    sign = "|"
    combination, identity, absorbing, commutes = "or", 0, -1, True
    compute = staticmethod(lambda a, b, bits: a | b)


class XOrI(Bitwise):
    """Bitwise exclusive or."""

    name = "arith.xori"
    atomic = "xor"
    sign = "^"
    combination, identity, commutes = "xor", 0, True
    compute = staticmethod(lambda a, b, bits: a ^ b)


class Shift(IntegerBinary):
    """A shift; by the width of an element or more it is undefined."""

    identity = 0


class ShLI(Shift):
    """Shift left."""

    name = "arith.shli"
    sign = "<<"
    compute = staticmethod(lambda a, b, bits: a << b if 0 <= b < bits else 0)


class ShRSI(Shift):
    """Arithmetic shift right."""

    name = "arith.shrsi"
    sign = ">>"
    compute = staticmethod(lambda a, b, bits: a >> (b if 0 <= b < bits else bits - 1))


class ShRUI(Shift):
    """Logical shift right."""

    name = "arith.shrui"
    sign = ">>"
    compute = staticmethod(lambda a, b, bits: unsigned(a, bits) >> b if 0 <= b < bits else 0)


class IntegerExtremum(IntegerBinary):
    """The larger or the smaller of two integers."""

    commutes = True


class MinSI(IntegerExtremum):
    """Signed minimum."""

    name = "arith.minsi"
    atomic = "min"
    combination = "minsi"
    compute = staticmethod(lambda a, b, bits: min(a, b))

    @property
    def neutral(self) -> float | None:
        """The largest number of the type."""
        return wrap((1 << (self.bits - 1)) - 1, self.bits)


class MaxSI(IntegerExtremum):
    """Signed maximum."""

    name = "arith.maxsi"
    atomic = "max"
    combination = "maxsi"
    compute = staticmethod(lambda a, b, bits: max(a, b))

    @property
    def neutral(self) -> float | None:
        """The smallest number of the type."""
        return -(1 << (self.bits - 1))


class MinUI(IntegerExtremum):
    """Unsigned minimum."""

    name = "arith.minui"
    atomic = "min"
    combination, identity = "minui", -1
    compute = staticmethod(lambda a, b, bits: min(unsigned(a, bits), unsigned(b, bits)))


class MaxUI(IntegerExtremum):
    """Unsigned maximum."""

    name = "arith.maxui"
    atomic = "max"
    combination, identity = "maxui", 0
    compute = staticmethod(lambda a, b, bits: max(unsigned(a, bits), unsigned(b, bits)))


class MulHiUI(IntegerBinary):
    """High half of the unsigned product."""

    name = "arith.mulhiui"
    compute = staticmethod(lambda a, b, bits: (unsigned(a, bits) * unsigned(b, bits)) >> bits)


# Comparisons and choices


class Compare(Binary):
    """A comparison, which gives i1."""

    predicate = attribute_def("predicate", str)
    predicates: ClassVar[tuple[str, ...]]

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """An i1 for each element."""
        return (ir.with_element(operands[0], ir.I1),)

    def verify(self) -> None:
        """Check that operands are of one type, and the predicate is known."""
        expect_one_type(self.op)
        if self.op.attributes.get("predicate") not in self.predicates:
            got = self.op.attributes.get("predicate")
            raise IRError(f"{self.op.name}: unknown predicate {got!r}")


_INTEGER_PREDICATES: dict[str, Callable[[int, int, int], bool]] = {
    "eq": lambda a, b, bits: a == b,
    "ne": lambda a, b, bits: a != b,
    "slt": lambda a, b, bits: a < b,
    "sle": lambda a, b, bits: a <= b,
    "sgt": lambda a, b, bits: a > b,
    "sge": lambda a, b, bits: a >= b,
    "ult": lambda a, b, bits: unsigned(a, bits) < unsigned(b, bits),
    "ule": lambda a, b, bits: unsigned(a, bits) <= unsigned(b, bits),
    "ugt": lambda a, b, bits: unsigned(a, bits) > unsigned(b, bits),
    "uge": lambda a, b, bits: unsigned(a, bits) >= unsigned(b, bits),
}


class CmpI(Compare):
    """Integer comparison."""

    name = "arith.cmpi"
    predicates = tuple(_INTEGER_PREDICATES)

    def verify(self) -> None:
        """Check that operands are integers of one type, and the predicate is known."""
        super().verify()
        expect_kind(self.op, self.lhs.type, INTEGERS)

    def fold(self, numbers: Sequence[Any]) -> Any:
        """1 where the predicate holds, else 0."""
        bits = ir.element_of(self.lhs.type).bits
        return int(_INTEGER_PREDICATES[self.predicate](int(numbers[0]), int(numbers[1]), bits))


class CmpF(Compare):
    """Float comparison; ordered predicates are false on NaN."""

    name = "arith.cmpf"
    predicates = ("oeq", "olt", "ole", "ogt", "oge", "one", "une", "ord", "uno")

    def verify(self) -> None:
        """Check that operands are floats of one type, and the predicate is known."""
        super().verify()
        expect_kind(self.op, self.lhs.type, FLOATS)


class Select(Elementwise, OneResult):
    """Chooses element by element; a scalar condition chooses whole values."""

    name = "arith.select"
    makes_nan = False
    condition = operand_def(CONDITIONS)
    true_value = operand_def(VALUES)
    false_value = operand_def(VALUES)

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """The type of the first value."""
        return (operands[1],)

    def verify(self) -> None:
        """Check that both values are of one type, and the condition is one i1 or a tile of them."""
        name, condition = self.op.name, self.condition.type
        chosen, other = self.true_value.type, self.false_value.type
        if chosen != other:
            raise IRError(f"{name}: operand types differ: {chosen}, {other}")
        if ir.element_of(condition) != ir.I1:
            raise IRError(f"{name}: got a condition of {condition}, expected i1")
        if ir.shape_of(condition) not in ((), ir.shape_of(chosen)):
            raise IRError(f"{name}: got a condition of {condition} for values of {chosen}")


# Floats


class AddF(FloatBinary):
    """Float sum."""

    name = "arith.addf"
    atomic = "add"
    torch, sign = "add", "+"
    makes_inf = True
    combination, identity, commutes = "add", -0.0, True


class SubF(FloatBinary):
    """Float difference."""

    name = "arith.subf"
    atomic = "add"
    torch, sign = "sub", "-"
    makes_inf = True
    identity = 0.0


class MulF(FloatBinary):
    """Float product."""

    name = "arith.mulf"
    torch, sign = "mul", "*"
    makes_inf = True
    combination, identity, absorbing, commutes = "mul", 1.0, 0.0, True


class FloatDivision(FloatBinary):
    """A quotient of floats."""

    torch, sign = "div", "/"
    makes_inf = True
    identity = 1.0


class DivF(FloatDivision):
    """Float quotient."""

    name = "arith.divf"
    # Natively the fastest instruction, which is for fp32 and has an error of 2 ULP.
    approx = attribute_def("approx", bool, False)


class RemF(FloatBinary):
    """Float remainder, sign of the dividend."""

    name = "arith.remf"
    sign = "%"


class NegF(FloatOp):
    """Float negation."""

    name = "arith.negf"
    torch = "neg"
    makes_nan = False
    source = operand_def(FLOATS)


class FloatExtremum(FloatBinary):
    """The larger or the smaller of two floats."""

    makes_nan = False
    commutes = True


class MaxNumF(FloatExtremum):
    """Maximum that ignores NaN."""

    name = "arith.maxnumf"
    atomic = "max"
    torch = "fmax"
    combination, identity = "maxnum", nan


class MinNumF(FloatExtremum):
    """Minimum that ignores NaN."""

    name = "arith.minnumf"
    atomic = "min"
    torch = "fmin"
    combination, identity = "minnum", nan


class MaximumF(FloatExtremum):
    """Maximum that propagates NaN."""

    name = "arith.maximumf"
    atomic = "max"
    torch = "maximum"
    combination, identity = "maximum", -inf


class MinimumF(FloatExtremum):
    """Minimum that propagates NaN."""

    name = "arith.minimumf"
    atomic = "min"
    torch = "minimum"
    combination, identity = "minimum", inf


# Conversions


class IntegerCast(Cast):
    """Changes the width of integers."""

    takes = gives = INTEGERS


class IntegerExtension(IntegerCast):
    """Widens integers, which keeps their value."""

    width = "wider"


class ExtSI(IntegerExtension):
    """Sign extension."""

    name = "arith.extsi"

    def fold(self, numbers: Sequence[Any]) -> Any:
        """The number, which is -1 for a set i1."""
        return int(numbers[0]) if ir.element_of(self.source.type).bits > 1 else -int(numbers[0])


class ExtUI(IntegerExtension):
    """Zero extension."""

    name = "arith.extui"

    def fold(self, numbers: Sequence[Any]) -> Any:
        """The unsigned reading."""
        return unsigned(int(numbers[0]), ir.element_of(self.source.type).bits)


class TruncI(IntegerCast):
    """Truncation to fewer bits."""

    name = "arith.trunci"
    width = "narrower"

    def fold(self, numbers: Sequence[Any]) -> Any:
        """The low bits."""
        return wrap(int(numbers[0]), ir.element_of(self.result.type).bits)


class IntegerToFloat(Cast):
    """Integers as floats."""

    takes, gives = INTEGERS, FLOATS
    makes_nan = False


class SIToFP(IntegerToFloat):
    """Signed integer to float, to nearest even."""

    name = "arith.sitofp"


class UIToFP(IntegerToFloat):
    """Unsigned integer to float."""

    name = "arith.uitofp"


class FloatToInteger(Cast):
    """Floats as integers."""

    takes, gives = FLOATS, INTEGERS


class FPToSI(FloatToInteger):
    """Float to signed integer, toward zero, saturating; to i8, the low byte of an i16."""

    name = "arith.fptosi"


class FPToUI(FloatToInteger):
    """Float to unsigned integer, toward zero, saturating; to i8, the low byte of an i16."""

    name = "arith.fptoui"


class FloatCast(Cast):
    """Floats of one type as floats of another."""

    takes = gives = FLOATS


class ExtF(FloatCast):
    """Float to a wider float, exact."""

    name = "arith.extf"
    width = "wider"
    makes_nan = False


class TruncF(FloatCast):
    """Float to a narrower float, to nearest even."""

    name = "arith.truncf"
    width = "narrower"
    makes_nan = False
