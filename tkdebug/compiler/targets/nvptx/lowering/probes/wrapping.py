"""Whether a sum or product of two integers does not fit its type, by a few instructions."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

from tkdebug.compiler.dialects import arith
from tkdebug.compiler.targets.nvptx.emitter import Emitter, LLVMValue, integer


def wraps(emit: Emitter, name: str, a: LLVMValue, b: LLVMValue, result: LLVMValue) -> LLVMValue:
    """i1: whether it wraps.

    Args:
        emit: where it is written.
        name: of the op: `arith.addi`, `arith.subi` or `arith.muli`, of signed numbers.
        a: the left operand.
        b: the right one.
        result: what it gives.
    """
    if name == arith.MulI.name:
        number = b.constant if a.constant is None else a.constant
        if number is not None and a.type != "i64":
            return _leaves(emit, b if a.constant is not None else a, number)
        wide = [emit.cast("sext", x, "i64") for x in (a, b, result)]
        return emit.icmp("ne", emit.binary("mul", *wide[:2]), wide[2])
    other = result if name == arith.AddI.name else b
    signs = emit.bit_and(emit.xor(a, other), emit.xor(b if other is result else a, result))
    return emit.icmp("slt", signs, 0)


def _leaves(emit: Emitter, value: LLVMValue, number: int) -> LLVMValue:
    """i1: whether a value times a number does not fit the value's type."""
    half = 1 << int(value.type.removeprefix("i")) - 1
    if number == 0:
        return integer("i1", 0)
    ends = sorted((Fraction(-half, number), Fraction(half - 1, number)))
    least, most = max(-half, ceil(ends[0])), min(half - 1, floor(ends[1]))
    return emit.icmp("ugt", emit.add(value, -least), most - least)
