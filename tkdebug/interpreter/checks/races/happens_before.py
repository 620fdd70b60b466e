"""The order in which programs of one launch act, as far as they make sure of it.

A program's work is cut into segments: each release and each acquire ends one. Segment a of program
p happens before segment b of program q when q knows in b that a has ended: q has acquired, from
where p, or another program that knew, had released. The rules are those of the PTX memory model
(PTX ISA, "Memory Consistency Model": release and acquire patterns, observation order):

- an atomic releases with `sem` release or acq_rel and acquires with acquire or acq_rel;
- with scope cta it does neither, since programs are different CTAs;
- all atomics on an element pass on what was released there, in their order.

An order that two programs have by chance alone is no order. So an atomic acquires nothing if nobody
uses its result, and releases nothing if it leaves the value as it was.

Where the model leaves room, or programs rely on more than it says, an order is assumed:

- flags: loads that are volatile or `.cv` acquire;
- what relaxed atomics have seen is acquired by the next acquire, wherever that is, and what an
  atomic released last is what relaxed ones pass on, as if there were fences;
- a plain store of one element releases, so that a race on a flag is reported at the flag alone;
- an atomic of many elements takes the whole allocation for one place;
- the threads of a program count as one, with or without `tl.debug_barrier`.

The IR shows which ops order programs. It takes two: one program that publishes and another one that
observes. In a kernel where no program observes what others publish, no op synchronises, and all its
programs run at once.

A vector clock holds, for each program, the number of its segments that are known to have ended. A
launch may have tens of thousands of programs, and each program a clock for each of its segments, so
a clock is an immutable tree: clocks that differ in one program share all but one path. Programs
that synchronise in a chain, as at a lock or a counter, have clocks of which the later holds the
earlier, and joining those looks at little more than where they differ.

Invariant: a clock never changes, and a join returns one of its operands if that holds the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import TypeAlias

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Module, Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import fact_of
from tkdebug.interpreter.scheduler import is_uncached_load, polled_loads, spin_loops

_BITS = 4
_WIDTH = 1 << _BITS

# A node's children, or a leaf's counts; None where all counts are 0.
Clock: TypeAlias = tuple["Clock | int", ...] | None

_NO_COUNTS: Clock = (0,) * _WIDTH
_NO_CHILDREN: Clock = (None,) * _WIDTH


class VectorClocks:
    """The clocks of one launch of `programs` programs; None is the clock of a program's begin."""

    def __init__(self, programs: int) -> None:
        levels = 1
        while _WIDTH**levels < programs:
            levels += 1
        self._shift = _BITS * (levels - 1)

    def count(self, clock: Clock, program: int) -> int:
        """Return the number of `program`'s segments that are known to have ended."""
        shift = self._shift
        node: Clock | int = clock
        while isinstance(node, tuple):
            node = node[program >> shift & _WIDTH - 1]
            shift -= _BITS
        return node or 0

    def with_count(self, clock: Clock, program: int, count: int) -> Clock:
        """Return `clock` with the given count for `program`."""
        return _with_count(clock, program, count, self._shift)

    def join(self, a: Clock, b: Clock) -> Clock:
        """Return a clock with the knowledge of both."""
        return _join(a, b, self._shift)


def _with_count(node: Clock, program: int, count: int, shift: int) -> Clock:
    place = program >> shift & _WIDTH - 1
    if shift == 0:
        counts = node or _NO_COUNTS
        assert counts is not None
        return (*counts[:place], count, *counts[place + 1 :])
    children = node or _NO_CHILDREN
    assert children is not None
    child = children[place]
    assert not isinstance(child, int)
    child = _with_count(child, program, count, shift - _BITS)
    return (*children[:place], child, *children[place + 1 :])


def _join(a: Clock, b: Clock, shift: int) -> Clock:
    if a is b or b is None:
        return a
    if a is None:
        return b
    joined: Clock
    if shift == 0:
        joined = tuple(map(max, a, b))  # type: ignore[arg-type]
        if joined == a:
            return a
        return b if joined == b else joined
    joined = tuple(
        [_join(x, y, shift - _BITS) for x, y in zip(a, b, strict=True)]  # type: ignore[arg-type]
    )
    # By identity, so that this does not compare whole trees.
    if all(map(is_, joined, a)):
        return a
    return b if all(map(is_, joined, b)) else joined


# An allocation and an offset in bytes.
Place = tuple[int, int]
_ANYWHERE = -1
# Elements of one program up to which each is a place of its own.
_MOST_PLACES = 32


@dataclass(frozen=True, slots=True)
class Meaning:
    """Effects of an op on the order of programs.

    Attributes:
        observes: whether the value that it reads there matters to the program.
        publishes: whether other programs can observe what it writes.
        acquires: whether everything that the program has observed so far comes before its later
            ops.
        releases: whether everything that the program has done so far comes before this write.
        fences: whether that also comes before what relaxed atomics write afterwards.
    """

    observes: bool
    publishes: bool
    acquires: bool
    releases: bool
    fences: bool


@dataclass(frozen=True, slots=True)
class Event:
    """A synchronising access, which ends a segment of its program.

    Attributes:
        time: its number among the launch's synchronising accesses, from 1.
        is_written: whether it changed the value.
    """

    segment: int
    op: Operation
    places: tuple[Place, ...]
    time: int
    is_written: bool


@dataclass
class _Program:
    """Knowledge of one program about the others.

    Attributes:
        clocks: the clock of each segment.
        seen: the clock that it would have if its relaxed reads acquired.
        fenced: the clock at its last release.
    """

    clocks: list[Clock] = field(default_factory=lambda: [None])
    seen: Clock = None
    fenced: Clock = None
    events: list[Event] = field(default_factory=list)


class HappensBefore:
    """The order of one launch of `programs` programs."""

    def __init__(self, programs: int) -> None:
        self._segments = torch.zeros(programs, dtype=torch.int32)
        self._clocks = VectorClocks(programs)
        self._programs: dict[int, _Program] = {}
        self._released: dict[Place, Clock] = {}
        # By allocation: all that was released anywhere in it.
        self._released_within: dict[int, Clock] = {}
        self._time = 0

    def synchronise(
        self,
        op: Operation,
        meaning: Meaning,
        storage: int,
        places: Tensor,
        programs: Tensor,
        changed: Tensor | None,
    ) -> None:
        """Let programs access places, one program after the other.

        Args:
            op: the op of the access.
            meaning: its meaning.
            storage: the allocation.
            places: offsets in bytes.
            programs: the program of each access, in ascending order.
            changed: where the value changed, None for nowhere.
        """
        if programs.shape[0] == 1:
            self._synchronise_one(op, meaning, storage, places, programs, changed)
            return
        numbers, counts = torch.unique_consecutive(programs, return_counts=True)
        bytes_at, has_changed = places.tolist(), None if changed is None else changed.tolist()
        begin = 0
        moved = []
        for program, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            rows = range(begin, begin + count)
            begin += count
            touched = [(storage, bytes_at[row]) for row in rows]
            written = [(storage, bytes_at[r]) for r in rows if has_changed and has_changed[r]]
            if count > _MOST_PLACES:
                touched = [(storage, _ANYWHERE)]
                written = touched if written else []
            if self._step(program, op, meaning, touched, written):
                moved.append(program)
        if moved:
            self._segments[torch.tensor(moved)] += 1

    def _synchronise_one(
        self,
        op: Operation,
        meaning: Meaning,
        storage: int,
        places: Tensor,
        programs: Tensor,
        changed: Tensor | None,
    ) -> None:
        """Record one program's access to one place, as at a lock, without sorting programs."""
        program, place = int(programs), (storage, int(places))
        written = [place] if changed is not None and bool(changed) else []
        if self._step(program, op, meaning, [place], written):
            self._segments[program] += 1

    def segments(self, programs: Tensor) -> Tensor:
        """Return the present segments of the programs with these numbers, int32."""
        return self._segments[programs.to(self._segments.device)].to(programs.device)

    def fence(self, programs: Sequence[int]) -> None:
        """Add a fence of acquire and release in each of `programs`."""
        for number in programs:
            program = self._of(number)
            known = program.clocks[-1]
            gained = self._clocks.join(known, program.seen)
            segment = len(program.clocks)
            program.fenced = self._clocks.with_count(gained, number, segment)
            program.clocks.append(gained)
            self._segments[number] += 1

    def orders(self, program: int, segment: int, other: int, other_segment: int) -> bool:
        """Whether one of two segments, of different programs, happens before the other."""
        return self._precedes(program, segment, other, other_segment) or self._precedes(
            other, other_segment, program, segment
        )

    def events(self, program: int) -> Sequence[Event]:
        """Return the synchronising accesses of `program`."""
        return self._of(program).events

    def known_segments(self, program: int, segment: int, other: int) -> int:
        """Return how many segments of `other` are known to `program` in `segment` to have ended."""
        return self._clocks.count(self._of(program).clocks[segment], other)

    def _precedes(self, first: int, segment: int, then: int, then_segment: int) -> bool:
        return self.known_segments(then, then_segment, first) > segment

    def _of(self, number: int) -> _Program:
        program = self._programs.get(number)
        if program is None:
            program = self._programs[number] = _Program()
        return program

    def _step(
        self,
        number: int,
        op: Operation,
        meaning: Meaning,
        touched: Sequence[Place],
        written: Sequence[Place],
    ) -> bool:
        """Record one access of one program; return whether it ends a segment."""
        program = self._of(number)
        known = program.clocks[-1]
        gained = known
        if meaning.observes:
            program.seen = self._join(program.seen, self._released_at(touched))
        if meaning.acquires:
            gained = self._clocks.join(known, program.seen)
        segment = len(program.clocks) - 1
        is_release = meaning.releases and bool(written)
        published = program.fenced
        if is_release:
            published = self._clocks.with_count(gained, number, segment + 1)
        if meaning.fences:
            program.fenced = published
        if meaning.publishes:
            self._release(published, written)
        self._time += 1
        event = Event(segment, op, tuple(touched), self._time, bool(written))
        if gained is known and not written and _repeats(program.events, event):
            return False
        program.events.append(event)
        program.clocks.append(gained)
        return True

    def _join(self, a: Clock, b: Clock) -> Clock:
        return self._clocks.join(a, b)

    def _released_at(self, places: Sequence[Place]) -> Clock:
        released: Clock = None
        for storage, offset in places:
            if offset == _ANYWHERE:
                return self._released_within.get(storage)
            released = self._join(released, self._released.get((storage, offset)))
            released = self._join(released, self._released.get((storage, _ANYWHERE)))
        return released

    def _release(self, clock: Clock, places: Sequence[Place]) -> None:
        for place in places:
            storage, known = place[0], self._released.get(place)
            within = self._released_within.get(storage)
            self._released[place] = joined = self._join(known, clock)
            # Both are the same for an allocation with one lock.
            self._released_within[storage] = (
                joined if within is known else self._join(within, clock)
            )


def _repeats(events: Sequence[Event], event: Event) -> bool:
    """Whether an event has the op and places of the last one, as in a loop that polls."""
    return bool(events) and (events[-1].op, events[-1].places) == (event.op, event.places)


_RELEASES = ("release", "acq_rel")
_ACQUIRES = ("acquire", "acq_rel")
_FLAG_LOAD = Meaning(observes=True, publishes=False, acquires=True, releases=False, fences=False)
_FLAG_STORE = Meaning(observes=False, publishes=True, acquires=False, releases=True, fences=False)


class Synchronisation:
    """Meanings of a module's ops for the order of its programs.

    Attributes:
        meanings: the meanings of the ops that synchronise; empty if programs never observe each
            other.
        fences: ops that order what relaxed atomics before and after them do.
    """

    def __init__(self, module: Module) -> None:
        self.meanings: dict[Operation, Meaning] = {}
        self.fences: frozenset[Operation] = frozenset()
        flags = _flag_loads(module)
        if not flags and not any(_is_looked_at(op) for op in module.walk()):
            return
        for op in module.walk():
            if tt.Atomic.matches(op):
                self.meanings[op] = _meaning_of_atomic(op)
            elif op in flags:
                self.meanings[op] = _FLAG_LOAD
            elif tt.Store.matches(op) and _is_scalar(op):
                self.meanings[op] = _FLAG_STORE
        self.fences = frozenset(filter(_is_fence, module.walk()))

    @classmethod
    def of(cls, module: Module) -> Synchronisation:
        """Return the meanings of a module's ops, found at the first call."""
        return fact_of(module, cls, cls)


def is_silent_flag(op: Operation) -> bool:
    """Whether a load is of a flag that cannot race: PTX treats volatile loads as relaxed."""
    return is_uncached_load(op)


def _is_looked_at(op: Operation) -> bool:
    return tt.Atomic.matches(op) and bool(tt.Atomic(op).result.uses)


def _meaning_of_atomic(op: Operation) -> Meaning:
    atomic = tt.Atomic(op)
    # Programs are CTAs of their own.
    reaches = atomic.scope != "cta"
    observes = reaches and bool(atomic.result.uses)
    return Meaning(
        observes=observes,
        publishes=reaches and not tt.AtomicLoad.matches(op),
        acquires=reaches and atomic.sem in _ACQUIRES,
        releases=reaches and atomic.sem in _RELEASES,
        fences=reaches and atomic.sem in _RELEASES,
    )


def _flag_loads(module: Module) -> set[Operation]:
    """Return the loads by which programs read each other's flags."""
    loops = spin_loops(module)
    waiting = {op for loop in loops for op in loop.walk() if is_uncached_load(op)}
    polled = {load for loop in loops for load in polled_loads(loop, module)}
    single = {op for op in module.walk() if is_uncached_load(op) and _is_scalar(op)}
    return waiting | polled | single


def _is_scalar(op: Operation) -> bool:
    access = tt.Load.cast(op) or tt.Store(op)
    return not ir.shape_of(access.pointer.type)


def _is_fence(op: Operation) -> bool:
    if not tt.ElementwiseInlineAsm.matches(op):
        return False
    text = tt.ElementwiseInlineAsm(op).asm
    return "fence." in text or "membar." in text
