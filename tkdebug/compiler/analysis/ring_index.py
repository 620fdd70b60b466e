"""Where in a ring of buffers a loop is: the phase of indices that step through it modulo its size.

A pipelined loop keeps some buffers in a ring; each iteration reads one and fills another. That the
two differ follows from their phases: an index of phase p is (t + p) % stages in iteration t.
"""

from __future__ import annotations

from dataclasses import dataclass

from tkdebug.compiler.dialects import arith, scf
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.control_flow import iter_arg
from tkdebug.compiler.ir.core import Operation, Value

# Comparisons of x + 1 with the size under which `select` takes x + 1, and those that take 0.
_BELOW = frozenset(("slt", "ult", "ne"))
_REACHED = frozenset(("sge", "uge", "eq"))


@dataclass(frozen=True, slots=True)
class RingIndex:
    """The index (t + phase) % stages in iteration t of `loop`."""

    loop: Operation
    stages: int
    phase: int

    def shifted(self, iterations: int) -> RingIndex:
        """The phase that the same place has when seen from `iterations` later."""
        return RingIndex(self.loop, self.stages, (self.phase - iterations) % self.stages)


def ring_index(value: Value, stages: int) -> RingIndex | None:
    """How `value` steps through a ring of `stages` buffers; None where that is not known."""
    before = _wrapped_increment(value, stages)
    if before is not None:
        ring = ring_index(before, stages)
        return None if ring is None else ring.shifted(-1)
    op = value.defining_op
    if op is not None:
        if arith.IntegerRemainder.matches(op) and constant_value(arith.Binary(op).rhs) == stages:
            return _of_count(arith.Binary(op).lhs, stages)
        return None
    carried, start = iter_arg(value), _start(value)
    if carried is None or start is None or not 0 <= start < stages:
        return None
    if _wrapped_increment(carried.yielded, stages) is not value:
        return None
    return RingIndex(carried.loop, stages, start)


def _of_count(value: Value, stages: int) -> RingIndex | None:
    """The remainder of a value that grows by one in each iteration."""
    offset = 0
    while (added := _plus_constant(value)) is not None:
        value, amount = added
        offset += amount
    carried, start = iter_arg(value), _start(value)
    if carried is None:
        counter = _loop_counter(value)
        if counter is None:
            return None
        loop, start = counter
    elif _plus_constant(carried.yielded) == (value, 1):
        loop = carried.loop
    else:
        return None
    # Remainders of negative numbers do not wrap.
    if start is None or start + offset < 0:
        return None
    return RingIndex(loop, stages, (start + offset) % stages)


def _loop_counter(value: Value) -> tuple[Operation, int] | None:
    """The loop whose variable this is, and where it starts; only with a step of one."""
    loop = None if isinstance(value.owner, Operation) else value.owner.parent_op
    if loop is None or not scf.For.matches(loop) or value.index != 0:
        return None
    lower, step = constant_value(scf.For(loop).lower), constant_value(scf.For(loop).step)
    return (loop, int(lower)) if lower is not None and step == 1 else None


def _start(value: Value) -> int | None:
    """The constant that a value carried by scf.for starts from."""
    carried = iter_arg(value)
    start = None if carried is None else constant_value(carried.initial)
    return start if isinstance(start, int) else None


def _plus_constant(value: Value) -> tuple[Value, int] | None:
    op = value.defining_op
    if op is None or not arith.AddI.matches(op):
        return None
    for x, y in arith.AddI(op).both_orders:
        amount = constant_value(y)
        if isinstance(amount, int):
            return x, amount
    return None


def _wrapped_increment(value: Value, stages: int) -> Value | None:
    """The x for which `value` is x + 1, or 0 when that reaches `stages`."""
    op = value.defining_op
    if op is None:
        return None
    rest = arith.IntegerRemainder.cast(op)
    if rest is not None and constant_value(rest.rhs) == stages:
        added = _plus_constant(rest.lhs)
        if added is None or added[1] != 1:
            return None
        carried = iter_arg(added[0])
        counts = carried is None or _plus_constant(carried.yielded) is not None
        return None if counts else added[0]
    if not arith.Select.matches(op):
        return None
    test, yes, no = op.operands
    comparison = test.defining_op
    if comparison is None or not arith.CmpI.matches(comparison):
        return None
    predicate = arith.CmpI(comparison).predicate
    if predicate in _REACHED:
        yes, no = no, yes
    elif predicate not in _BELOW:
        return None
    added = _plus_constant(yes)
    if added is None or added[1] != 1 or constant_value(no) != 0:
        return None
    left, right = comparison.operands
    same = left is yes or _plus_constant(left) == added
    return added[0] if same and constant_value(right) == stages else None
