"""Numbers that a loop counts up before it uses them.

Persistent kernels number the tiles of their epilogue so: the number starts one step too low, and
each iteration adds the step first. What is used is never below where it would have started.
"""

from __future__ import annotations

from tkdebug.compiler.dialects import arith
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.control_flow import iter_arg
from tkdebug.compiler.ir.core import Operation, Value

_SIGNS = {arith.AddI.name: 1, arith.SubI.name: -1}


def first_count(op: Operation) -> Value | None:
    """The least value of `op`, a sum that counts a carried value of a loop up; None for others."""
    if not arith.AddI.matches(op):
        return None
    for carried, step in arith.AddI(op).both_orders:
        count = constant_value(step)
        argument = iter_arg(carried)
        if argument is None or not isinstance(count, int) or count <= 0:
            continue
        if argument.yielded is op.result:
            return _plus(argument.initial, count)
    return None


def _plus(value: Value, count: int) -> Value | None:
    """The value of which `value` is less by `count`, if it is plain to see."""
    op = value.defining_op
    if op is None or op.name not in _SIGNS:
        return None
    number = constant_value(arith.Binary(op).rhs)
    if not isinstance(number, int) or _SIGNS[op.name] * number != -count:
        return None
    return arith.Binary(op).lhs
