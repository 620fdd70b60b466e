"""Live intervals of shared-memory buffers, on one line through the whole function.

Ops are numbered in program order; an op with regions spans the numbers of all that is inside it.
A buffer is live from its allocation to the last use of any view of it; across a whole loop when it
enters the loop from outside or from an iteration before; and past its last use until the wait that
covers the accesses that were started on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tkdebug.compiler.analysis.aliasing import ALLOC, BufferAliases, buffer_aliases
from tkdebug.compiler.dialects import scf, ttg, ttng
from tkdebug.compiler.ir.core import Operation, Value

# Accesses that an op starts go on until such a wait leaves none pending: (wait, its count).
_WAITS = {
    ttg.AsyncCopyGlobalToLocal.name: (ttg.AsyncWait.name, "num"),
    ttng.WarpGroupDot.name: (ttng.WarpGroupDotWait.name, "pendings"),
    ttng.AsyncTmaCopyLocalToGlobal.name: (ttng.AsyncTmaStoreWait.name, "pendings"),
}


@dataclass(frozen=True, slots=True)
class Interval:
    """The numbers `start` to `end` of a timeline, both included."""

    start: int
    end: int

    def overlaps(self, other: Interval) -> bool:
        """Whether two intervals have a number in common."""
        return self.start <= other.end and other.start <= self.end

    def hull(self, other: Interval) -> Interval:
        """The smallest interval that contains both."""
        return Interval(min(self.start, other.start), max(self.end, other.end))


class Timeline:
    """The numbers of all ops of a function, in program order."""

    def __init__(self, function: Operation) -> None:
        self._spans: dict[Operation, Interval] = {}
        self.length = 0
        self._number(function)

    def span(self, op: Operation) -> Interval:
        """The numbers from the beginning of an op to the end of everything inside it."""
        return self._spans[op]

    def _number(self, op: Operation) -> None:
        start = self.length
        self.length += 1
        for region in op.regions:
            for block in region.blocks:
                for inner in block.operations:
                    self._number(inner)
        if op.regions:
            self.length += 1
        self._spans[op] = Interval(start, self.length - 1)

    def live(self, value: Value) -> Interval:
        """Return the interval from a value's definition to its last use, loops included."""
        owner = value.owner
        if isinstance(owner, Operation):
            start = self.span(owner).end if owner.regions else self.span(owner).start
            home = owner.block
        else:
            assert owner.parent_op is not None
            start, home = self.span(owner.parent_op).start, owner
        end = start
        for user in value.uses:
            last = self.span(user).start
            outer = user
            while outer.block is not home:
                assert outer.block is not None
                assert outer.block.parent_op is not None
                outer = outer.block.parent_op
                if scf.Loop.matches(outer):
                    last = self.span(outer).end
            end = max(end, last)
        return Interval(start, end)


def live_buffers(
    function: Operation, timeline: Timeline, aliases: BufferAliases | None = None
) -> Mapping[Operation, Interval]:
    """Return the live interval of each `ttg.local_alloc`'s buffer.

    Args:
        function: a `tt.func`.
        timeline: the timeline of the same function.
        aliases: the aliases of the same function, if they are known already.
    """
    if aliases is None:
        aliases = buffer_aliases(function)
    live: dict[Operation, Interval] = {}
    for owner, values in aliases.values_of().items():
        assert owner.name == ALLOC
        interval = timeline.live(owner.result)
        for value in values:
            interval = interval.hull(timeline.live(value))
            for user in value.uses:
                if user.name in _WAITS:
                    interval = interval.hull(_until_wait(user, timeline))
        live[owner] = interval
    return live


def _until_wait(op: Operation, timeline: Timeline) -> Interval:
    """Return the interval of the accesses that `op` starts: to the wait that leaves none pending.

    Loops around `op` that the wait is not in are included whole; without such a wait the interval
    ends with the function.
    """
    if ttng.WarpGroupDot.matches(op) and not ttng.WarpGroupDot(op).is_async:
        return timeline.span(op)
    wait, count = _WAITS[op.name]
    begin = timeline.span(op).start
    inner = op
    while inner.block is not None:
        later = inner.block.operations[inner.block.operations.index(inner) + 1 :]
        for other in later:
            if other.name == wait and other.attributes.get(count) == 0:
                return Interval(begin, timeline.span(other).start)
        parent = inner.block.parent_op
        if parent is None:
            break
        if scf.Loop.matches(parent):
            # The access may still go on in the next iteration.
            begin = min(begin, timeline.span(parent).start)
        inner = parent
    return Interval(begin, timeline.length - 1)
