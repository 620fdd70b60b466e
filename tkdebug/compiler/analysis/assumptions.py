"""What `tt.assume` says about integers: divisors and signs.

Only assumptions about scalars are read. One holds wherever the value it is about is defined, if
that is in the block of the assume, and for the whole function if the assume always runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.core import Operation, Value
from tkdebug.compiler.ir.types import shape_of

_MIRRORED = {"slt": "sgt", "sle": "sge", "sgt": "slt", "sge": "sle", "eq": "eq"}


@dataclass(frozen=True, slots=True)
class Assumption:
    """What the kernel lets the compiler assume about a scalar integer.

    Attributes:
        divisor: a power of two that divides it.
        non_negative: it is not negative.
    """

    divisor: int = 1
    non_negative: bool = False

    def __and__(self, other: Assumption) -> Assumption:
        return Assumption(max(self.divisor, other.divisor), self.non_negative or other.non_negative)


def assumptions(function: Operation) -> Mapping[Value, Assumption]:
    """The assumptions of a `tt.func` by the value they are about."""
    found: dict[Value, Assumption] = {}
    body = function.regions[0].block
    for op in function.walk():
        if not tt.Assume.matches(op):
            continue
        for value, assumption in _facts(tt.Assume(op).condition):
            if op.block is body or op.block is value.parent_block:
                found[value] = found.get(value, Assumption()) & assumption
    return found


def _facts(condition: Value) -> Iterator[tuple[Value, Assumption]]:
    op = condition.defining_op
    if op is None or shape_of(condition.type):
        return
    if arith.AndI.matches(op):
        for part in op.operands:
            yield from _facts(part)
    if not arith.CmpI.matches(op):
        return
    left, right = op.operands
    predicate = arith.CmpI(op).predicate
    yield from _comparison(left, predicate, constant_value(right))
    if predicate in _MIRRORED:
        yield from _comparison(right, _MIRRORED[predicate], constant_value(left))


def _comparison(
    value: Value, predicate: str, bound: int | float | bool | None
) -> Iterator[tuple[Value, Assumption]]:
    """`value` against the constant `bound`."""
    if bound is None or isinstance(bound, float):
        return
    if (predicate == "sge" and bound >= 0) or (predicate == "sgt" and bound >= -1):
        yield value, Assumption(non_negative=True)
    part = arith.IntegerBinary.defining(value)
    if predicate != "eq" or bound != 0 or part is None:
        return
    number = constant_value(part.rhs)
    if not isinstance(number, int) or number <= 0:
        return
    if arith.IntegerRemainder.matches(part.op):
        yield part.lhs, Assumption(divisor=number & -number)
    elif arith.AndI.matches(part.op) and number & (number + 1) == 0:
        yield part.lhs, Assumption(divisor=number + 1)
