"""Accesses of warps to shared memory, and to tiles of global memory, before they next wait.

`HazardState` holds the accesses that may have happened since the last barrier, and those that were
started and may still be under way. An op that conflicts with one of them needs a barrier before
itself. Invariant: states only grow when they are joined, so that loops reach a fixed point.

An async copy begins to write where it is issued (so what it overwrites must have been read) and
has written at the wait that covers it (so others need a barrier after that). An async dot, and a
bulk copy to memory, reads from where it is issued to its wait.

A bulk copy to a buffer is issued by one thread and waited for by all at its mbarrier, so nobody
needs a barrier to see it. Making an mbarrier and ending it write its word; a thread that
announces bytes to it or waits at it in between sees it whole, so these count as reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tkdebug.compiler.analysis.aliasing import ALLOC, BufferAliases, Region, RingIndex, offset_of
from tkdebug.compiler.analysis.global_memory import Tile
from tkdebug.compiler.dialects import ttg, ttng
from tkdebug.compiler.dialects.interfaces import DotLike
from tkdebug.compiler.ir.core import Operation
from tkdebug.compiler.ir.types import MemDescType

# Ops that change which accesses are under way.
QUEUE_OPS = frozenset(
    (
        ttg.AsyncCommitGroup.name,
        ttg.AsyncWait.name,
        ttng.WarpGroupDotWait.name,
        ttng.AsyncTmaStoreWait.name,
    )
)
# Ages are counted up to this number, which means this age or older.
_MAX_AGE = 8

Touched = Region | Tile
# Returns the scratch memory that the lowering of an op needs for itself; the target knows.
ScratchBytes = Callable[[Operation], int]


@dataclass(frozen=True, slots=True)
class Accesses:
    """The accesses of one op to shared memory when it runs.

    Attributes:
        reads: memory that it reads from where it is issued.
        writes: memory that it has written when it ends.
        starts: memory that it begins to write, and has written only at a later wait.
        lands_at_barrier: whether all threads wait for that write at an mbarrier.
        lasting: memory that it goes on reading until a wait.
    """

    reads: frozenset[Touched] = frozenset()
    writes: frozenset[Touched] = frozenset()
    starts: frozenset[Region] = frozenset()
    lands_at_barrier: bool = False
    lasting: frozenset[Region] = frozenset()


def accesses(op: Operation, aliases: BufferAliases) -> Accesses:
    """The reads and writes of `op`, scratch memory not counted."""
    match op.name:
        case ttg.LocalAlloc.name if op.operands:
            return Accesses(writes=aliases.regions(op.result))
        case ttg.LocalLoad.name:
            return Accesses(reads=aliases.regions(ttg.LocalLoad(op).buffer))
        case ttg.LocalStore.name:
            return Accesses(writes=aliases.regions(ttg.LocalStore(op).buffer))
        case ttg.AsyncCopyGlobalToLocal.name:
            return Accesses(starts=aliases.regions(ttg.AsyncCopyGlobalToLocal(op).buffer))
        case ttg.LocalDot.name:
            return Accesses(reads=_factors(op, aliases))
        case ttng.WarpGroupDot.name:
            read = _factors(op, aliases)
            return Accesses(
                reads=read, lasting=read if ttng.WarpGroupDot(op).is_async else frozenset()
            )
        case ttng.InitBarrier.name | ttng.InvalBarrier.name:
            return Accesses(writes=aliases.regions(ttng.BarrierOp(op).barrier))
        case ttng.BarrierExpect.name | ttng.WaitBarrier.name:
            return Accesses(reads=aliases.regions(ttng.BarrierOp(op).barrier))
        case ttng.AsyncTmaCopyGlobalToLocal.name:
            copy = ttng.AsyncTmaCopyGlobalToLocal(op)
            buffer, barrier = aliases.regions(copy.buffer), aliases.regions(copy.barrier)
            return Accesses(reads=barrier, starts=buffer, lands_at_barrier=True)
        case ttng.AsyncTmaCopyLocalToGlobal.name:
            read = aliases.regions(ttng.BulkCopy(op).buffer)
            return Accesses(reads=read, lasting=read)
    return Accesses()


def scratch_region(op: Operation, size_bytes: int) -> Region | None:
    """The scratch memory that AllocateShared gave `op`."""
    if op.name == ALLOC or offset_of(op) is None:
        return None
    return Region(op, 0, size_bytes)


@dataclass(frozen=True, slots=True)
class Ages:
    """The minimum and maximum number of groups that were made after a group."""

    least: int = 0
    most: int = 0

    def older(self) -> Ages:
        """Return the ages after one more group."""
        return Ages(min(self.least + 1, _MAX_AGE), min(self.most + 1, _MAX_AGE))

    def may_reach(self, count: int) -> bool:
        """Whether `count` or more groups may have been made after."""
        return self.most >= min(count, _MAX_AGE)

    def join(self, other: Ages) -> Ages:
        """The ages after either of two paths."""
        return Ages(min(self.least, other.least), max(self.most, other.most))


InFlight = Mapping[Region, Ages]


@dataclass(frozen=True)
class HazardState:
    """The accesses that may have happened or may be under way at one place of a function.

    Attributes:
        reads: memory that was read since the last barrier.
        writes: memory that was written since the last barrier.
        started: memory that copies which belong to no group yet may write.
        copies: memory that committed copies may still write, with the ages of their groups.
        dots: memory that asynchronous dots may still read, with the ages of the dots.
        stores: memory that bulk copies to memory may still read, with the ages of the copies.
    """

    reads: frozenset[Touched] = frozenset()
    writes: frozenset[Touched] = frozenset()
    started: frozenset[Region] = frozenset()
    copies: InFlight = field(default_factory=dict)
    dots: InFlight = field(default_factory=dict)
    stores: InFlight = field(default_factory=dict)

    def join(self, other: HazardState) -> HazardState:
        """The state after either of two paths."""
        return HazardState(
            self.reads | other.reads,
            self.writes | other.writes,
            self.started | other.started,
            _joined(self.copies, other.copies),
            _joined(self.dots, other.dots),
            _joined(self.stores, other.stores),
        )

    def conflicts(self, op: Accesses) -> bool:
        """Whether warps must wait for each other before `op`."""
        written = op.writes | op.starts
        return _overlap(op.reads | written, self.writes) or _overlap(written, self.reads)

    def synchronised(self) -> HazardState:
        """Return the state after a barrier."""
        return replace(self, reads=frozenset(), writes=frozenset())

    def after(self, op: Operation, done: Accesses) -> HazardState:
        """Return the state after `op`, which does `done`."""
        state = replace(
            self,
            reads=self.reads | done.reads,
            writes=self.writes | done.writes,
            started=self.started if done.lands_at_barrier else self.started | done.starts,
        )
        if ttg.AsyncCommitGroup.matches(op):
            return state.committed()
        if ttg.AsyncWait.matches(op):
            return state.copies_landed(_count(op, "num"))
        if ttng.WarpGroupDot.matches(op) and ttng.WarpGroupDot(op).is_async:
            return replace(state, dots=_with_newest(state.dots, done.lasting))
        if op.name == ttng.AsyncTmaCopyLocalToGlobal.name:
            return replace(state, stores=_with_newest(state.stores, done.lasting))
        if ttng.WarpGroupDotWait.matches(op):
            ended, left = _waited(state.dots, _count(op, "pendings"))
            return replace(state, reads=state.reads | ended, dots=left)
        if op.name == ttng.AsyncTmaStoreWait.name:
            ended, left = _waited(state.stores, _count(op, "pendings"))
            return replace(state, reads=state.reads | ended, stores=left)
        return state

    def committed(self) -> HazardState:
        """The state after the started copies became a group."""
        return replace(self, started=frozenset(), copies=_with_newest(self.copies, self.started))

    def copies_landed(self, kept: int) -> HazardState:
        """Return the state after a wait that leaves at most `kept` groups under way."""
        landed, left = _waited(self.copies, kept)
        return replace(self, writes=self.writes | landed, copies=left)

    def inside(self, loop: Operation) -> HazardState:
        """The state before `loop`, with buffers of rings as its first iteration names them."""
        return self._mapped(lambda region: _entering(region, loop))

    def next_iteration(self, loop: Operation) -> HazardState:
        """The state after an iteration of `loop`, with ring indices of the next one."""
        return self._mapped(lambda region: _later(region, loop))

    def outside(self, loop: Operation) -> HazardState:
        """The state inside `loop` for the ops after it: buffers of rings become whole rings."""
        return self._mapped(lambda region: _leaving(region, loop))

    def _mapped(self, change: Callable[[Region], Region]) -> HazardState:
        def changed(items: frozenset[Touched]) -> frozenset[Touched]:
            return frozenset(item if isinstance(item, Tile) else change(item) for item in items)

        return HazardState(
            changed(self.reads),
            changed(self.writes),
            frozenset(map(change, self.started)),
            _changed(self.copies, change),
            _changed(self.dots, change),
            _changed(self.stores, change),
        )


def _with_newest(items: InFlight, regions: Iterable[Region]) -> InFlight:
    """Return `items` after one more group; a region in an older group too keeps both ages."""
    older = {region: ages.older() for region, ages in items.items()}
    return _joined(older, dict.fromkeys(regions, Ages()))


def _waited(items: InFlight, kept: int) -> tuple[set[Region], InFlight]:
    """Split the regions under way at a wait that leaves at most `kept` groups pending.

    Returns:
        The regions whose access the wait may end, and those whose access may go on. A region with
        uncertain ages is in both.
    """
    ended = {region for region, ages in items.items() if ages.may_reach(kept)}
    return ended, {region: ages for region, ages in items.items() if ages.least < kept}


def _joined(a: InFlight, b: InFlight) -> InFlight:
    out = dict(a)
    for region, ages in b.items():
        out[region] = out[region].join(ages) if region in out else ages
    return out


def _changed(items: InFlight, change: Callable[[Region], Region]) -> InFlight:
    out: dict[Region, Ages] = {}
    for region, ages in items.items():
        key = change(region)
        out[key] = out[key].join(ages) if key in out else ages
    return out


def _entering(region: Region, loop: Operation) -> Region:
    """A buffer of a ring as the first iteration of `loop` names it: buffer k has phase k."""
    if region.owner.name != ALLOC or region.ring is not None:
        return region
    type_ = region.owner.result.type
    assert isinstance(type_, MemDescType)
    size = type_.buffer_bytes
    if type_.buffers == 1 or region.size_bytes != size or region.start_bytes % size:
        return region
    ring = RingIndex(loop, type_.buffers, region.start_bytes // size)
    return Region(region.owner, 0, type_.size_bytes, ring)


def _later(region: Region, loop: Operation) -> Region:
    if region.ring is None or region.ring.loop is not loop:
        return region
    return replace(region, ring=region.ring.shifted(1))


def _leaving(region: Region, loop: Operation) -> Region:
    if region.ring is None or region.ring.loop is not loop:
        return region
    return replace(region, ring=None)


def _overlap(a: Iterable[Touched], b: Iterable[Touched]) -> bool:
    return any(_meet(x, y) for x in a for y in b)


def _meet(a: Touched, b: Touched) -> bool:
    if isinstance(a, Tile):
        return isinstance(b, Tile) and a.overlaps(b)
    return isinstance(b, Region) and a.overlaps(b)


def _factors(op: Operation, aliases: BufferAliases) -> frozenset[Region]:
    """The buffers that a dot reads."""
    return aliases.regions(DotLike(op).a) | aliases.regions(DotLike(op).b)


def _count(op: Operation, name: str) -> int:
    count = op.attributes[name]
    assert isinstance(count, int)
    return count
