"""Which bytes of which shared-memory buffers a value may show.

A buffer value comes from a `ttg.local_alloc` through views, loops and branches. Each value has
the regions it may be; two values share storage only where regions of theirs overlap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tkdebug.compiler.analysis.data_flow import ForwardAnalysis
from tkdebug.compiler.analysis.ring_index import RingIndex, ring_index
from tkdebug.compiler.dialects import ttg
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.core import Operation, Value
from tkdebug.compiler.ir.types import MemDescType

ALLOC = ttg.LocalAlloc.name


@dataclass(frozen=True, slots=True)
class Region:
    """A part of what one op owns in shared memory.

    Attributes:
        owner: the `ttg.local_alloc`, or the op whose scratch memory it is.
        start_bytes: from the beginning of what the owner has.
        ring: which of the buffers in this region, where it is known how a loop steps through them.
    """

    owner: Operation
    start_bytes: int
    size_bytes: int
    ring: RingIndex | None = None

    def overlaps(self, other: Region) -> bool:
        """Whether both may have a byte in common; before AllocateShared owners share none."""
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
    """Where AllocateShared put an op's buffer or scratch memory, in bytes."""
    name = "offset" if owner.name == ALLOC else "scratch_offset"
    offset = owner.attributes.get(name)
    return offset if isinstance(offset, int) else None


class BufferAliases:
    """The regions of every buffer value of a function."""

    def __init__(self, regions: Mapping[Value, frozenset[Region]]) -> None:
        self._regions = regions

    def regions(self, value: Value) -> frozenset[Region]:
        """What `value` may show; nothing for values that are no buffers."""
        return self._regions.get(value, frozenset())

    def owners(self, value: Value) -> frozenset[Operation]:
        """The allocations that `value` may be or be part of."""
        return frozenset(region.owner for region in self.regions(value))

    def values_of(self) -> dict[Operation, list[Value]]:
        """For every allocation the values that may show it."""
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
        """Set the regions of a buffer that is made or viewed."""
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
        """The regions of either."""
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
