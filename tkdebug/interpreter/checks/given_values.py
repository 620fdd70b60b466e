"""Values that a kernel was given: from memory, arguments or its source, and not yet changed."""

from __future__ import annotations

from tkdebug.compiler.analysis.data_flow import traced
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.interfaces import Cast
from tkdebug.compiler.ir import Block, Operation, Value
from tkdebug.compiler.ir.op_view import names_of

# Through these, values stay what they were.
_HAND_ON = names_of(Cast, tt.Rearrangement)


def is_function_of_input(op: Operation) -> bool:
    """Whether `op` is a function of values as the kernel was given them, as in sqrt(load(x))."""
    if not (op.name.startswith("math.") or tt.ExternElementwise.matches(op)):
        return False
    return all(_is_given(traced(value, _HAND_ON)) for value in op.operands)


def gives_function_of_input(value: Value) -> bool:
    """Whether `value`, in whatever type, is what such a function gave."""
    source = traced(value, _HAND_ON).defining_op
    return source is not None and is_function_of_input(source)


def _is_given(value: Value) -> bool:
    source = value.defining_op
    if source is None:
        return isinstance(value.owner, Block) and tt.Func.matches(value.owner.parent_op)
    return any(view.matches(source) for view in (tt.Load, tt.DescriptorLoad, arith.Constant))
