"""Why an op makes an error: the causes that are told apart, and the one of each op.

The cause of an op follows from what it is, its types, and whether its result is summed up. Three
are of single elements or of many ops instead, and are found where these are seen: values that leave
the range of their type, rounding to one side, and differences of nearly equal numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from tkdebug.compiler.dialects import arith, math, scf, tt
from tkdebug.compiler.dialects.interfaces import DotLike, FloatOp, SameElements
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import IterArg, iter_arg
from tkdebug.compiler.ir.op_view import names_of

Cause = Literal[
    "storage type",
    "accumulator type",
    "tf32",
    "contraction",
    "order of summation",
    "approximate function",
    "cancellation",
    "overflow",
    "underflow",
    "biased rounding",
    "rounding",
]
CAUSES: tuple[Cause, ...] = get_args(Cause)

_NARROWING = names_of(arith.TruncF, tt.FpToFp)
_FLOAT_CASTS = names_of(arith.TruncF, arith.ExtF, tt.FpToFp)
_SUMS = names_of(arith.AddF, arith.SubF)
# They give a number of their operands, or one beside it that every float type has.
EXACT = names_of(
    *(tt.Rearrangement, tt.Pair, tt.Split, tt.Flip, tt.Gather, tt.Sorting, tt.Hint, SameElements),
    *(arith.Select, arith.FloatExtremum, arith.NegF, arith.ExtF, arith.RemF),
    *(math.AbsF, math.Floor, math.Ceil),
)
# Additions in a row at one line that are a loop which the front end has unrolled.
_UNROLLED = 4


def cause_of(op: Operation) -> Cause:
    """Return the cause of what an op rounds."""
    is_narrow = _is_narrow(op)
    if op.name in _NARROWING:
        if tt.FpToFp.matches(op) and tt.FpToFp(op).rounding == "rtz":
            return "biased rounding"
        added = arith.Binary.cast(op.operands[0].defining_op)
        is_sum = added is not None and added.op.name in _SUMS and _accumulates(added.op, op)
        return "accumulator type" if is_sum else "storage type"
    if DotLike.matches(op) or tt.Atomic.matches(op) or _adds_up(op):
        return "accumulator type" if is_narrow else "order of summation"
    if op.name in _SUMS and _accumulates(op, op):
        return "accumulator type" if is_narrow else "order of summation"
    if is_narrow or arith.Constant.matches(op) or arith.IntegerToFloat.matches(op):
        return "storage type"
    if arith.MulF.matches(op) and _is_only_added(op):
        return "contraction"
    if math.FloatFunction.matches(op) or tt.ExternElementwise.matches(op):
        return "approximate function"
    if arith.DivF.matches(op) and arith.DivF(op).approx:
        return "approximate function"
    return "rounding"


def _is_narrow(op: Operation) -> bool:
    floats = [ir.element_of(value.type) for value in op.results or op.operands[1:2]]
    return any(isinstance(one, ir.ScalarType) and one.is_float and one.bits < 32 for one in floats)


def _adds_up(op: Operation) -> bool:
    """Whether it is a reduction or a scan that adds floats."""
    combining = tt.Combining.cast(op)
    if combining is None:
        return False
    return any(inner.name in _SUMS for inner in op.walk()[1:])


def _is_only_added(product: Operation) -> bool:
    users = list(product.result.uses.items())
    return len(users) == 1 and users[0][0].name in _SUMS and users[0][1] == 1


def _accumulates(addition: Operation, last: Operation) -> bool:
    """Whether a sum is added to again and again.

    Args:
        addition: of what was there and a term.
        last: what becomes of it in the round: itself, or its conversion.
    """
    if _chain_length(addition) >= _UNROLLED:
        return True
    carried = _yielded_to(last.result)
    pair = arith.Binary(addition)
    for value, term in pair.both_orders:
        found, is_scaled = _carried(value)
        if found is None or found.argument not in carried:
            continue
        # A state that decays and gets a number is no sum, but one that is rescaled for a softmax.
        return not is_scaled or _is_sum(term)
    return False


def _carried(value: Value) -> tuple[IterArg | None, bool]:
    """The carried value that a value is, converted or scaled, and whether it is scaled."""
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
                op.operands[1],
            )
        elif op is not None and (op.name in _FLOAT_CASTS or SameElements.matches(op)):
            value = op.operands[0]
        else:
            return None, is_scaled


def _is_sum(value: Value) -> bool:
    op = value.defining_op
    while op is not None and op.name in _FLOAT_CASTS:
        op = op.operands[0].defining_op
    return op is not None and (DotLike.matches(op) or _adds_up(op))


def _yielded_to(value: Value) -> frozenset[Value]:
    """The arguments of the loop around it that a value is handed on to."""
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
    """How many additions of the op's line come one after the other up to it."""
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
    op = value.defining_op
    while op is not None and op.name in _FLOAT_CASTS:
        op = op.operands[0].defining_op
    return op


def may_cancel(op: Operation) -> bool:
    """Whether it adds numbers of which the sum may be much smaller than they are."""
    return op.name in _SUMS or DotLike.matches(op) or _adds_up(op) or math.Fma.matches(op)


def is_float_op(op: Operation) -> bool:
    """Whether it is plain arithmetic of floats."""
    return FloatOp.matches(op)
