"""Causes of errors: which there are, and the one of each op.

The cause of an op follows from what it is, its types, and whether its result is summed up. Three
are of single elements or of many ops instead, and are found where these are seen: values that leave
the range of their type, rounding to one side, and differences of nearly equal numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal, get_args

from tkdebug.compiler.analysis.data_flow import source_of, traced
from tkdebug.compiler.dialects import arith, math, scf, tt
from tkdebug.compiler.dialects.interfaces import Cast, DotLike, SameElements, Writing, stored
from tkdebug.compiler.ir import Block, Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.control_flow import IterArg, iter_arg
from tkdebug.compiler.ir.op_view import names_of

Cause = Literal[
    "storage",
    "accumulator",
    "tf32",
    "contraction",
    "order",
    "approximate",
    "cancellation",
    "overflow",
    "underflow",
    "biased",
    "rounding",
]
CAUSES: tuple[Cause, ...] = get_args(Cause)

_NARROWING = names_of(arith.TruncF, tt.FpToFp)
_FLOAT_CASTS = names_of(arith.TruncF, arith.ExtF, tt.FpToFp)
_SUMS = names_of(arith.AddF, arith.SubF)
# These round nothing: a result is a number of an operand, or one that its type has exactly.
EXACT = names_of(
    *(tt.Rearrangement, tt.Pair, tt.Split, tt.Flip, tt.Gather, tt.Sorting, tt.Hint, SameElements),
    *(arith.Select, arith.FloatExtremum, arith.NegF, arith.ExtF, arith.RemF),
    *(math.AbsF, math.Floor, math.Ceil),
)
# So many chained additions at one line count as a loop that the front end has unrolled.
_UNROLLED = 4


def cause_of(op: Operation) -> Cause:
    """Return the cause of an op's rounding errors."""
    is_narrow = _is_narrow(op)
    if tt.Bitcast.matches(op):
        return "storage"  # of a float that was put together of another's bits
    if op.name in _NARROWING:
        if tt.FpToFp.matches(op) and tt.FpToFp(op).rounding == "rtz":
            return "biased"
        added = arith.Binary.cast(Cast(op).source.defining_op)
        is_sum = added is not None and added.op.name in _SUMS and _accumulates(added.op, op)
        return "accumulator" if is_sum else "storage"
    if DotLike.matches(op) or tt.Atomic.matches(op) or _adds_up(op):
        return "accumulator" if is_narrow else "order"
    if op.name in _SUMS and _accumulates(op, op):
        return "accumulator" if is_narrow else "order"
    if is_narrow or arith.Constant.matches(op) or arith.IntegerToFloat.matches(op):
        return "storage"
    if arith.MulF.matches(op) and fma_of(op) is not None:
        return "contraction"
    if math.FloatFunction.matches(op) or tt.ExternElementwise.matches(op) or approximated(op):
        return "approximate"
    if arith.DivF.matches(op) and arith.DivF(op).approx:
        return "approximate"
    return "rounding"


def _is_narrow(op: Operation) -> bool:
    values = op.results or ([stored(op)] if Writing.matches(op) else [])
    floats = [ir.element_of(value.type) for value in values]
    return any(isinstance(one, ir.ScalarType) and one.is_float and one.bits < 32 for one in floats)


def _adds_up(op: Operation) -> bool:
    """Whether an op is a reduction or a scan that adds floats."""
    combining = tt.Combining.cast(op)
    if combining is None:
        return False
    return any(inner.name in _SUMS for inner in op.walk()[1:])


def fma_of(product: Operation) -> Operation | None:
    """Return the fma whose addend is the rounded product, as in fma(a, b, c * d), or None."""
    value = product.result
    while list(value.uses.values()) == [1]:
        (user,) = value.uses
        if math.Fma.matches(user):
            return user if math.Fma(user).c is value else None
        if not arith.NegF.matches(user):
            return None
        value = user.result
    return None


def _accumulates(addition: Operation, last: Operation) -> bool:
    """Whether a sum is added to again and again.

    Args:
        addition: the addition of the old sum and a term.
        last: the op that gives the iteration's sum: the addition, or a conversion of it.
    """
    if _chain_length(addition) >= _UNROLLED:
        return True
    carried = _yielded_to(last.result)
    pair = arith.Binary(addition)
    for value, term in pair.both_orders:
        found, is_scaled = _carried(value)
        if found is None or found.argument not in carried:
            continue
        # A state that decays and gets a number is no sum; a sum that is rescaled for a softmax is.
        return not is_scaled or _is_sum(term)
    return False


def _carried(value: Value) -> tuple[IterArg | None, bool]:
    """The iter arg that a value is, converted or scaled, or None; and whether it is scaled."""
    is_scaled = False
    while True:
        found = iter_arg(value)
        if found is not None:
            return found, is_scaled
        op = value.defining_op
        if op is not None and arith.MulF.matches(op):
            is_scaled = True
            value = next(
                (x for x, _ in arith.Binary(op).both_orders if _carried(x)[0] is not None),
                arith.Binary(op).rhs,
            )
        elif (source := source_of(value, _FLOAT_CASTS | names_of(SameElements))) is not None:
            value = source
        else:
            return None, is_scaled


def _is_sum(value: Value) -> bool:
    op = traced(value, _FLOAT_CASTS).defining_op
    return op is not None and (DotLike.matches(op) or _adds_up(op))


def _yielded_to(value: Value) -> frozenset[Value]:
    """The arguments of the loop around it that a value is yielded to, converted or selected."""
    return frozenset(_handed_on(value))


def _handed_on(value: Value) -> Iterator[Value]:
    for user in value.uses:
        loop = None if user.block is None else user.block.parent_op
        if scf.Yield.matches(user) and loop is not None and scf.For.matches(loop):
            arguments = loop.regions[0].block.arguments[1:]
            for operand, argument in zip(user.operands, arguments, strict=True):
                if operand is value:
                    yield argument
        elif user.name in _FLOAT_CASTS or arith.Select.matches(user):
            yield from _handed_on(user.result)


def _chain_length(op: Operation) -> int:
    """Count the chained additions at an op's line that end at it, up to `_UNROLLED`."""
    line, count, at = op.location.primary.line, 0, [op]
    while at and count < _UNROLLED:
        count += 1
        at = [
            made
            for each in at
            for value in each.operands
            if (made := _without_casts(value)) is not None
            and made.name in _SUMS
            and made.location.primary.line == line
        ]
    return count


def _without_casts(value: Value) -> Operation | None:
    return traced(value, _FLOAT_CASTS).defining_op


def rounds_to_one_side(op: Operation) -> bool:
    """Whether an op is a floor, a ceil or a cast to integers, and its operand is no `x ± 0.5`."""
    if not (math.Floor.matches(op) or math.Ceil.matches(op) or arith.FloatToInteger.matches(op)):
        return False
    (rounded,) = op.operands
    added = rounded.defining_op
    halves = () if added is None or not arith.AddF.matches(added) else added.operands
    return not any(constant_value(value) in (0.5, -0.5) for value in halves)


def is_fixed(value: Value) -> bool:
    """Whether a value is a constant or an argument of the kernel, or a rearrangement of one."""
    value = traced(value, names_of(tt.Rearrangement))
    if value.defining_op is not None:
        return arith.Constant.matches(value.defining_op)
    return isinstance(value.owner, Block) and tt.Func.matches(value.owner.parent_op)


def may_cancel(op: Operation) -> bool:
    """Whether an op adds numbers whose sum may be much smaller than they are."""
    return op.name in _SUMS or DotLike.matches(op) or _adds_up(op) or math.Fma.matches(op)


# The largest relative errors on a GPU of instructions and functions that it approximates, and that
# are computed to full precision when they are interpreted.
# Sources: PTX ISA, "Floating Point Instructions"; CUDA C++ Programming Guide, "Intrinsic
# Functions".
_ULP = 2.0**-23
_INSTRUCTION_ERRORS: Mapping[str, float] = {
    "tanh": 2.0**-11,
    "ex2": 2.0**-22,
    "lg2": 2.0**-22,
    "sin": 2.0**-20.9,
    "cos": 2.0**-20.9,
    "sqrt": 2.0**-23,
    "rsqrt": 2.0**-22.9,
    "rcp": _ULP,
}
_FUNCTION_ERRORS: Mapping[str, float] = {
    "fast_tanhf": 2.0**-11,
    "fast_sinf": 2.0**-21.19,
    "fast_cosf": 2.0**-21.19,
    "fast_tanf": 2.0**-20,
    "fast_expf": 4 * _ULP,
    "fast_exp10f": 4 * _ULP,
    "fast_logf": 2.0**-21.41,
    "fast_log2f": 2.0**-22,
    "fast_log10f": 2.0**-21.41,
    "fast_powf": 2.0**-19,
    "fast_dividef": 2 * _ULP,
}
_APPROXIMATED = re.compile(r"\s*(\w+)\.approx(?:\.ftz)?\.f32\s+\$0\s*,\s*\$1\s*;?\s*")


def approximated(op: Operation) -> str | None:
    """Return the only instruction of inline assembly of fp32 if it approximates, else None."""
    asm = tt.ElementwiseInlineAsm.cast(op)
    if asm is None or len(asm.results) != 1 or len(asm.sources) != 1:
        return None
    types = [ir.element_of(value.type) for value in (*asm.sources, *asm.results)]
    match = _APPROXIMATED.fullmatch(asm.asm)
    if match is None or any(each != ir.F32 for each in types):
        return None
    name = match.group(1)
    return name if name in _INSTRUCTION_ERRORS else None


def known_error(op: Operation) -> float:
    """Return the largest relative error that an op has on a GPU and not here; 0 for none."""
    extern = tt.ExternElementwise.cast(op)
    if extern is not None:
        return _FUNCTION_ERRORS.get(extern.function, 0.0)
    name = approximated(op)
    return 0.0 if name is None else _INSTRUCTION_ERRORS[name]
