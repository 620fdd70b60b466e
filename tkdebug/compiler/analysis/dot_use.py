"""Whether a value ends up as an operand of a dot, and whether it comes from one."""

from __future__ import annotations

from tkdebug.compiler.analysis.layout_inference import is_elementwise
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import DotLike
from tkdebug.compiler.ir import Value


def feeds_dot(value: Value) -> bool:
    """Whether a dot multiplies `value`, or something computed from it in the same block."""
    # Not recursive: unrolled loops make chains of thousands of ops.
    seen, pending = {value}, [value]
    while pending:
        current = pending.pop()
        for user in current.uses:
            if tt.Dot.matches(user):
                if current in (DotLike(user).a, DotLike(user).b):
                    return True
            elif not user.regions:
                pending += (result for result in user.results if result not in seen)
                seen.update(user.results)
    return False


def comes_from_dot(value: Value) -> bool:
    """Whether `value` is a dot's result, or computed from one element by element in its block."""
    seen, pending = {value}, [value]
    while pending:
        op = pending.pop().defining_op
        if op is None:
            continue
        if tt.Dot.matches(op):
            return True
        if is_elementwise(op):
            operands = [operand for operand in op.operands if operand not in seen]
            pending += operands
            seen.update(operands)
    return False
