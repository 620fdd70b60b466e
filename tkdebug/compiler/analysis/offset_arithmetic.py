"""Integer arithmetic that computes offsets of pointers, and that may wrap.

Sums, differences and products below 64 bits count if only such arithmetic, and ops that move
elements, are between them and a pointer. `h - h // n * n` is a remainder, and so no difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tkdebug.compiler.analysis.data_flow import backward, traced
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, incoming
from tkdebug.compiler.ir.op_view import names_of

REMAINDER = arith.RemSI.name
# Ops that an offset may pass on its way to a pointer. Zero extension is left out: its values
# are unsigned, and have one bit more.
CARRIERS = names_of(arith.ExtSI, arith.Select, tt.Rearrangement, arith.WrappingBinary)
# The most values that are followed back from a difference.
_MOST_STEPS = 64


@dataclass(frozen=True, slots=True)
class OffsetArithmetic:
    """The arithmetic that computes the offsets of a module's pointers.

    Attributes:
        sums: sums, differences and products below 64 bits that offsets are computed from.
        remainders: signed remainders that offsets are computed from.
        hashed: sums, differences and products that reach offsets only through remainders.
    """

    sums: frozenset[Operation] = frozenset()
    remainders: frozenset[Operation] = frozenset()
    hashed: frozenset[Operation] = frozenset()


def offset_arithmetic(module: Module) -> OffsetArithmetic:
    """The arithmetic that computes the offsets of the pointers of `module`."""
    offsets = [tt.AddPtr(op).offset for op in module.walk() if tt.AddPtr.matches(op)]
    sums, remainders = _made_of(offsets)
    hashed, _ = _made_of(arith.RemSI(op).lhs for op in remainders)
    return OffsetArithmetic(frozenset(sums), frozenset(remainders), frozenset(hashed - sums))


def _made_of(values: Iterable[Value]) -> tuple[set[Operation], set[Operation]]:
    """The arithmetic below 64 bits that makes `values`, and the remainders that end the search."""
    sums: set[Operation] = set()
    remainders: set[Operation] = set()

    def operands(value: Value) -> Sequence[Value]:
        made_by = value.defining_op
        if made_by is None or made_by.name in CONTROL_FLOW:
            return incoming(value)
        if made_by.name == REMAINDER:
            remainders.add(made_by)
        elif made_by.name in CARRIERS and not is_remainder(made_by):
            if arith.WrappingBinary.matches(made_by) and 1 < ir.element_of(value.type).bits < 64:
                sums.add(made_by)
            return made_by.operands
        return ()

    backward(values, operands)
    return sums, remainders


def is_remainder(op: Operation) -> bool:
    """Whether `op` subtracts a part of a value from it: a quotient's multiple, or masked bits."""
    if not arith.SubI.matches(op):
        return False
    whole, taken = (traced(operand, tt.Rearrangement.names) for operand in op.operands)
    pending, seen = [(taken, False)], {(taken, False)}
    while pending and len(seen) < _MOST_STEPS:
        value, is_part = pending.pop()
        made_by = value.defining_op
        if is_part and value is whole:
            return True
        if made_by is None or made_by.regions or _is_lowest_part(made_by):
            continue
        is_part = is_part or made_by.name not in CARRIERS
        for operand in made_by.operands:
            step = (traced(operand, tt.Rearrangement.names), is_part)
            if step not in seen:
                seen.add(step)
                pending.append(step)
    return False


def _is_lowest_part(op: Operation) -> bool:
    """Whether `op` gives a remainder or low bits; a value minus these is aligned, not bounded."""
    if arith.AndI.matches(op):
        constants = [
            constant_value(traced(operand, tt.Rearrangement.names)) for operand in op.operands
        ]
        return any(isinstance(bits, int) and bits >= 0 for bits in constants)
    return arith.RemSI.matches(op) or arith.RemUI.matches(op)
