"""Which conversions to a narrower type may lose what is not meant to be lost.

Integers are cut on purpose in hashes, random numbers and packed words. So conversions of what bit
operations or large factors made are left alone, and so are those that only bit operations use; a
word whose upper half is shifted out elsewhere is taken apart. `tl.sum` and `tl.cumsum` widen narrow
integers by themselves: where their result is stored as the type that was summed, it wraps as x + y
of that type does. A function such as exp(x) of the input that is too large for the tensor it is
stored to is Inf there by right.
"""

from __future__ import annotations

from tkdebug.compiler.analysis.data_flow import traced
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.interfaces import Cast
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, incoming
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.interpreter.checks.given_values import gives_function_of_input
from tkdebug.interpreter.checks.shadow_values import is_in_kernel, stored_value

TO_INTEGER = arith.FloatToInteger.names
TO_FLOAT = names_of(arith.TruncF, tt.FpToFp, arith.IntegerToFloat)
BIT_OPS = names_of(
    *(arith.Bitwise, arith.Shift, arith.MulHiUI),
    *(tt.Bitcast, tt.PtrToInt, tt.ElementwiseInlineAsm, tt.ExternElementwise),
)
# Factors of hashes; those of offsets are smaller as a rule.
_HASH_FACTOR = 1 << 15
_RESHAPING = names_of(tt.ExpandDims, tt.Reshape, tt.Broadcast, tt.Splat, tt.Trans)


def may_lose(op: Operation) -> bool:
    """Whether a run of `op` may lose a value that is not meant to be lost."""
    if arith.IntegerToFloat.matches(op) and str(ir.element_of(op.result.type)) != "f16":
        return False  # any other float takes all integers
    if op.name in TO_INTEGER or op.name in TO_FLOAT:
        return is_in_kernel(op) and bits_of(Cast(op).source) > 8 and not _is_too_large_itself(op)
    if not arith.TruncI.matches(op) or bits_of(op.result) == 1 or not is_in_kernel(op):
        return False
    source = arith.TruncI(op).source
    if any(user.name in BIT_OPS for user in source.uses):
        return False  # a word that is taken apart
    return not (_is_of_bits(source) or _is_widened_sum(source, bits_of(op.result)))


def _is_too_large_itself(op: Operation) -> bool:
    """Whether `op` only stores a function of the input: pow(x) that fp16 has no number for."""
    is_stored = all(stored_value(user) is op.result for user in op.result.uses)
    return op.name in TO_FLOAT and is_stored and gives_function_of_input(Cast(op).source)


def bits_of(value: Value) -> int:
    """How many bits an element has."""
    return ir.element_of(value.type).bits


def _is_of_bits(value: Value) -> bool:
    """Whether bit operations, or a factor as hashes have, went into an integer."""
    seen, left = set[Value](), [value]
    while left:
        value = left.pop()
        if value in seen:
            continue
        seen.add(value)
        op = value.defining_op
        if bits_of(value) == 1:
            continue  # what chooses between numbers goes into none
        if op is None or op.name in CONTROL_FLOW:
            left += incoming(value)
        elif op.name in BIT_OPS or (arith.MulI.matches(op) and any(map(_is_large, op.operands))):
            return True
        elif not (tt.Load.matches(op) or op.name in TO_INTEGER):
            left += op.operands
    return False


def _is_widened_sum(value: Value, bits: int) -> bool:
    """Whether a reduction or scan that widened integers of `bits` bits by itself gave `value`."""
    combining = traced(value, _RESHAPING).defining_op
    while combining is not None and (tt.Reduce.matches(combining) or tt.Scan.matches(combining)):
        widening = traced(tt.Combining(combining).sources[0], _RESHAPING).defining_op
        if widening is not None and arith.IntegerExtension.matches(widening):
            # `x.to(tl.int32)` has a place of its own.
            is_its_own = not set(widening.location.sources).isdisjoint(combining.location.sources)
            return is_its_own and bits_of(Cast(widening).source) == bits
        combining = widening
    return False


def _is_large(value: Value) -> bool:
    number = constant_value(traced(value, names_of(tt.Splat, tt.Broadcast, arith.ExtSI)))
    return isinstance(number, int) and abs(number) >= _HASH_FACTOR
