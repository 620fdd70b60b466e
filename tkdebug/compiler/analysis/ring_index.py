"""Where in a ring of buffers a loop is: the phase of indices that step through it modulo its size.

A pipelined loop keeps some buffers in a ring; each iteration reads one and fills another. That the
two differ follows from their phases: an index of phase p is (t + p) % stages in iteration t.
"""

from __future__ import annotations

from dataclasses import dataclass

from tkdebug.compiler.dialects import arith, scf
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.core import Operation, Value
from tkdebug.compiler.ir.op_view import names_of

_REMAINDERS = names_of(arith.RemSI, arith.RemUI)
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
    """How `value` steps through a ring of `stages` buffers; None where that cannot be told."""
    before = _wrapped_increment(value, stages)
    if before is not None:
        ring = ring_index(before, stages)
        return None if ring is None else ring.shifted(-1)
    op = value.defining_op
    if op is not None:
        if op.name in _REMAINDERS and constant_value(arith.Binary(op).rhs) == stages:
            return _of_count(arith.Binary(op).lhs, stages)
        return None
    carried = _carried(value)
    if carried is None:
        return None
    loop, start, yielded = carried
    if not 0 <= start < stages or _wrapped_increment(yielded, stages) is not value:
        return None
    return RingIndex(loop, stages, start)


def _of_count(value: Value, stages: int) -> RingIndex | None:
    """The remainder of a value that grows by one in each iteration."""
    offset = 0
    while (added := _plus_constant(value)) is not None:
        value, amount = added
        offset += amount
    carried = _carried(value)
    if carried is not None:
        loop, start, yielded = carried
        if _plus_constant(yielded) != (value, 1):
            return None
    else:
        counter = _loop_counter(value)
        if counter is None:
            return None
        loop, start = counter
    # Remainders of negative numbers do not wrap.
    if start + offset < 0:
        return None
    return RingIndex(loop, stages, (start + offset) % stages)


def _loop_counter(value: Value) -> tuple[Operation, int] | None:
    """The loop whose variable this is, and where it starts; only with a step of one."""
    loop = None if isinstance(value.owner, Operation) else value.owner.parent_op
    if loop is None or not scf.For.matches(loop) or value.index != 0:
        return None
    lower, step = constant_value(scf.For(loop).lower), constant_value(scf.For(loop).step)
    return (loop, int(lower)) if lower is not None and step == 1 else None


def _carried(value: Value) -> tuple[Operation, int, Value] | None:
    """For a value carried by scf.for: the loop, the constant it starts from, what is yielded."""
    loop = None if isinstance(value.owner, Operation) else value.owner.parent_op
    if loop is None or not scf.For.matches(loop) or value.index == 0:
        return None
    start = constant_value(scf.For(loop).inits[value.index - 1])
    if not isinstance(start, int):
        return None
    return loop, start, scf.For(loop).yielded[value.index - 1]


def _plus_constant(value: Value) -> tuple[Value, int] | None:
    op = value.defining_op
    if op is None or not arith.AddI.matches(op):
        return None
    for x, y in (op.operands, op.operands[::-1]):
        amount = constant_value(y)
        if isinstance(amount, int):
            return x, amount
    return None


def _wrapped_increment(value: Value, stages: int) -> Value | None:
    """The x for which `value` is x + 1, or 0 when that reaches `stages`."""
    op = value.defining_op
    if op is None:
        return None
    if op.name in _REMAINDERS and constant_value(arith.Binary(op).rhs) == stages:
        added = _plus_constant(arith.Binary(op).lhs)
        if added is not None and added[1] == 1 and _carried(added[0]) is not None:
            return added[0] if _plus_constant(_yielded(added[0])) is None else None
        return None
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


def _yielded(value: Value) -> Value:
    carried = _carried(value)
    assert carried is not None
    return carried[2]
