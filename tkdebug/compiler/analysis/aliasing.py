"""The bytes of shared-memory buffers that a value may show.

A buffer value comes from a `ttg.local_alloc` through views, loops and branches. Each value has
the regions it may be; two values share storage only where regions of theirs overlap.

A pipelined loop keeps some buffers in a ring; each iteration reads one and fills another. That the
two differ follows from their phases: an index of phase p is (t + p) % stages in iteration t.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tkdebug.compiler.analysis.data_flow import ForwardAnalysis
from tkdebug.compiler.dialects import arith, scf, ttg
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.control_flow import iter_arg
from tkdebug.compiler.ir.core import Operation, Value
from tkdebug.compiler.ir.types import MemDescType

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
        """The ring index that names the same buffer `iterations` iterations later."""
        return RingIndex(self.loop, self.stages, (self.phase - iterations) % self.stages)


def ring_index(value: Value, stages: int) -> RingIndex | None:
    """Index `value` of a ring of `stages` buffers as a `RingIndex`, or None if unknown."""
    before = _wrapped_increment(value, stages)
    if before is not None:
        ring = ring_index(before, stages)
        return None if ring is None else ring.shifted(-1)
    op = value.defining_op
    if op is not None:
        if arith.IntegerRemainder.matches(op) and constant_value(arith.Binary(op).rhs) == stages:
            return _of_counter(arith.Binary(op).lhs, stages)
        return None
    carried, start = iter_arg(value), _start(value)
    if carried is None or start is None or not 0 <= start < stages:
        return None
    if _wrapped_increment(carried.yielded, stages) is not value:
        return None
    return RingIndex(carried.loop, stages, start)


def _of_counter(value: Value, stages: int) -> RingIndex | None:
    """The ring index `value` % `stages`, if `value` grows by one an iteration, else None."""
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
    """The loop whose counter is `value` and its constant start, if the step is 1; else None."""
    loop = None if isinstance(value.owner, Operation) else value.owner.parent_op
    if loop is None or not scf.For.matches(loop) or value.index != 0:
        return None
    lower, step = constant_value(scf.For(loop).lower), constant_value(scf.For(loop).step)
    return (loop, int(lower)) if lower is not None and step == 1 else None


def _start(value: Value) -> int | None:
    """The constant that a loop-carried value starts from, or None if it is not a constant."""
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
    """The x of which `value` is the successor: x + 1, or 0 where that is `stages`; else None."""
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


ALLOC = ttg.LocalAlloc.name


@dataclass(frozen=True, slots=True)
class Region:
    """A part of one op's shared memory.

    Attributes:
        owner: the `ttg.local_alloc`, or the op that owns the scratch memory.
        start_bytes: its distance from the beginning of the owner's memory.
        ring: the index by which a loop picks one of the buffers in this region, if known.
    """

    owner: Operation
    start_bytes: int
    size_bytes: int
    ring: RingIndex | None = None

    def overlaps(self, other: Region) -> bool:
        """Whether both may share a byte; before AllocateShared, different owners share none."""
        if self.owner is other.owner:
            a, b = self.ring, other.ring
            if a is not None and b is not None:
                if (a.loop, a.stages) == (b.loop, b.stages) and a.phase != b.phase:
                    return False
            mine, theirs = self.start_bytes, other.start_bytes
        else:
            offsets = offset_of(self.owner), offset_of(other.owner)
            if offsets[0] is None or offsets[1] is None:
                return False
            mine, theirs = offsets[0] + self.start_bytes, offsets[1] + other.start_bytes
        return mine < theirs + other.size_bytes and theirs < mine + self.size_bytes


def offset_of(owner: Operation) -> int | None:
    """The byte offset that AllocateShared gave an op's buffer or scratch memory."""
    name = "offset" if owner.name == ALLOC else "scratch_offset"
    offset = owner.attributes.get(name)
    return offset if isinstance(offset, int) else None


class BufferAliases:
    """The regions of every buffer value of a function."""

    def __init__(self, regions: Mapping[Value, frozenset[Region]]) -> None:
        self._regions = regions

    def regions(self, value: Value) -> frozenset[Region]:
        """The regions that `value` may show; empty if it is not a buffer."""
        return self._regions.get(value, frozenset())

    def owners(self, value: Value) -> frozenset[Operation]:
        """The allocations that `value` may be or be part of."""
        return frozenset(region.owner for region in self.regions(value))

    def values_of(self) -> dict[Operation, list[Value]]:
        """Return the values that may show each allocation."""
        values: dict[Operation, list[Value]] = {}
        for value in self._regions:
            for owner in self.owners(value):
                values.setdefault(owner, []).append(value)
        return values


def buffer_aliases(function: Operation) -> BufferAliases:
    """Find the regions of all buffers of a `tt.func`."""
    analysis = _Analysis()
    analysis.run(function.regions[0].block)
    return BufferAliases(analysis.facts)


class _Analysis(ForwardAnalysis[frozenset[Region]]):
    def visit(self, op: Operation) -> None:
        """Set the regions of the buffer that `op` allocates or views."""
        if op.name == ALLOC:
            type_ = op.result.type
            assert isinstance(type_, MemDescType)
            self.set(op.result, frozenset([Region(op, 0, type_.size_bytes)]))
        elif ttg.MemDescView.matches(op):
            viewed = self.facts.get(ttg.MemDescView(op).buffer, frozenset())
            self.set(op.result, frozenset(_viewed(op, region) for region in viewed))

    def join(
        self, value: Value, known: frozenset[Region], fact: frozenset[Region]
    ) -> frozenset[Region]:
        """The regions of both facts together."""
        return known | fact


def _viewed(view: Operation, region: Region) -> Region:
    """The region that a view of `region` shows."""
    if not ttg.MemDescIndex.matches(view):
        return region
    type_ = ttg.MemDescIndex(view).buffer.type
    assert isinstance(type_, MemDescType)
    index = constant_value(ttg.MemDescIndex(view).index)
    if isinstance(index, int):
        start = region.start_bytes + index * type_.buffer_bytes
        return Region(region.owner, start, type_.buffer_bytes)
    return replace(region, ring=ring_index(ttg.MemDescIndex(view).index, type_.buffers))
