"""Reports threads of one program that access the same memory with nothing that orders them.

A program is written as if it did one thing after the other, and each of its threads does so for
itself: a value that one thread stores and another loads is in order only if threads wait for each
other in between. The compiled kernel says which thread has which element (`ThreadOrder`), and what
orders threads under Triton, which puts no barrier between accesses to global memory.

Looked at are kernels that load and store, or store twice, by different pointers to one tensor, or
by arguments that share memory, in the first launches of each kind, and there some programs of the
first batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from tkdebug.compiler.analysis.thread_order import (
    MOST_THREADS,
    MeetingAccesses,
    ThreadOrder,
    Uses,
    accessed_shape,
)
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import PointerAccess
from tkdebug.compiler.faults.facts import Offender
from tkdebug.compiler.faults.messages import FaultText, access_verb, named, place_of
from tkdebug.compiler.ir import Module, Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.layouts import LANE, WARP, LinearLayout
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.memory.touched import Touched
from tkdebug.interpreter.memory_usage import ELSEWHERE, pointer_origins
from tkdebug.interpreter.observers import LaunchContext, Moments, Observer
from tkdebug.interpreter.state import EvaluatorState
from tkdebug.interpreter.tiles.values import TileValue

_MOST_KINDS = 16
# Limits of a launch: batches, and in each the elements of an access, and accesses.
_MOST_BATCHES = 8
_MOST_ELEMENTS = 1 << 16
_MOST_ACCESSES = 512
# Elements of an allocation have fewer bits.
_PLACE_BITS = 40
# Accesses of one batch that nothing has ordered with the next one.
_MOST_OPEN = 32
_HINT = (
    "Triton puts no barrier between accesses to global memory, and which thread has which element "
    "is its own choice: put tl.debug_barrier() between them, or keep the value in a variable"
)


class _Looks:
    """The kinds of launches of a module that were looked at."""

    def __init__(self) -> None:
        self.kinds: set[Hashable] = set()

    @classmethod
    def of(cls, module: Module) -> _Looks:
        """Return the kinds of a module's launches, made at the first call."""
        found = module.derived.setdefault(cls, cls())
        assert isinstance(found, cls)
        return found


@dataclass(slots=True)
class _Found:
    """Elements of one access and tensor: the first, their number, and the others' ops."""

    offender: Offender
    count: int
    others: dict[Operation, None]


class ThreadOrderCheck(Observer):
    """`--check thread-order`."""

    is_passive = True
    follows_accesses = False

    def __init__(self, module: Module, faults: FaultLog) -> None:
        self._module = module
        self._faults = faults
        self._order: ThreadOrder | None = None
        self._accesses: frozenset[Operation] = frozenset()
        self._batches_left = _MOST_BATCHES
        self._found: dict[tuple[Operation, Buffer], _Found] = {}

    @property
    def key(self) -> Hashable | None:
        """Key that differs between plans that look at different ops."""
        return type(self), self._order

    def launch_begins(self, launch: LaunchContext) -> None:
        """Decide whether the launch is looked at, and get the order of its threads."""
        meeting, looks = MeetingAccesses.of(self._module), _Looks.of(self._module)
        shared = _of_shared_memory(self._module, meeting.of_all, launch.buffers)
        accesses = meeting.of_one_pointer | shared
        if launch.compiled is None or not accesses:
            return
        kind = None if launch.kind is None else launch.kind.key()
        if kind in looks.kinds or len(looks.kinds) >= _MOST_KINDS:
            return
        looks.kinds.add(kind)
        self._order = launch.compiled.order_of_threads()
        if self._order is not None:
            self._accesses = accesses & self._order.layouts.keys()
            self.follows_accesses = bool(self._accesses)

    def moments(self, op: Operation) -> Moments:
        """Ask to be called before ops that order threads."""
        is_barrier = self._order is not None and op in self._order.barriers
        return Moments.BEFORE if is_barrier else Moments.NEVER

    def of_batch(self, run: Evaluator) -> Observer:
        """Return an observer of the batch's accesses; for later batches, one that does nothing."""
        self._batches_left -= 1
        if self._order is None or self._batches_left < 0:
            return Observer()
        return AccessesOfThreads(run, self._order, self._accesses, self._note)

    def _note(
        self, access: ObservedAccess, touched: Touched, bad: Tensor, other: Operation
    ) -> None:
        """Note elements that another thread has accessed by `other`, with no order of the two."""
        places = bad.nonzero().reshape(-1)
        offender = self._faults.offender(access.buffer, touched, int(places[0]))
        key = access.op, access.buffer
        known = self._found.get(key)
        if known is None:
            self._found[key] = _Found(offender, places.numel(), {other: None})
        else:
            known.others[other] = None
            known.count = max(known.count, places.numel())

    def launch_ends(self) -> None:
        """Report what was found."""
        for (op, buffer), found in self._found.items():
            self._faults.record(op, _text(op, buffer, found), found.offender, found.count)


def _shared_memory(buffers: Sequence[Buffer]) -> list[list[Buffer]]:
    """Return groups of two or more arguments whose memory overlaps."""
    groups: list[list[Buffer]] = []
    end = 0
    for buffer in sorted(buffers, key=lambda one: one.address):
        if not buffer.hull_elems:
            continue
        if not groups or buffer.address >= end:
            groups.append([])
        groups[-1].append(buffer)
        end = max(end, buffer.address + buffer.hull_elems * buffer.itemsize)
    return [group for group in groups if len(group) > 1]


def _of_shared_memory(
    module: Module, accesses: frozenset[Operation], buffers: Sequence[Buffer]
) -> frozenset[Operation]:
    """Return accesses by arguments that share memory, if one of the group stores.

    Return all `accesses` if some are by an address that may be an argument's.
    """
    groups = _shared_memory(buffers) if accesses else []
    if not groups:
        return frozenset()
    names: Sequence[str | None] = tt.Func(module.function).arg_names
    places = {name: place for place, name in enumerate(names)}
    known = pointer_origins(module)
    origins = {op: known.get(PointerAccess(op).pointer, ELSEWHERE) for op in accesses}
    if not frozenset().union(*origins.values()) <= {places.get(one.name) for one in buffers}:
        return accesses  # Some are by an address, which may be that of an argument.
    shared: set[Operation] = set()
    for group in groups:
        those = {places[one.name] for one in group}
        ops = [op for op, found in origins.items() if found & those]
        if any(map(tt.Store.matches, ops)):
            shared.update(ops)
    return frozenset(shared)


def _text(op: Operation, buffer: Buffer, found: _Found) -> FaultText:
    index = found.offender.index
    others = sorted(found.others, key=lambda other: other.location.primary.line)
    did = "writes" if tt.Store.matches(others[0]) else "reads"
    places = list(dict.fromkeys(place_of(other, op) for other in others))
    listed = " and ".join([", ".join(places[:-1]), places[-1]] if places[1:] else places)
    if places == [place_of(op, op)]:
        is_later = not set(found.others) - {op}
        listed = "the same line, in another round" if is_later else "the same line"
    return FaultText(
        "thread-order",
        f"{access_verb(op)} offset {index} of {named(buffer.name)}, which another thread of the "
        f"same program {did} at {listed}: Triton does not order these",
        "warning",
        buffer.name,
        index,
        hint=_HINT,
    )


@dataclass(frozen=True)
class _Open:
    """An access that nothing has ordered with later ones.

    Attributes:
        key: the key of its storage, and the size of an element.
        span: the first and the last place of its elements.
        codes: for each element, in any order, its program in the upper bits and its place below.
        lanes: the position of each element in the tile.
        layout: the layout in which threads have the tile; None for a scalar.
        is_shared: whether several threads load each element, and use it.
    """

    op: Operation
    key: tuple[int, int]
    span: tuple[int, int]
    codes: Tensor
    lanes: Tensor
    layout: LinearLayout | None
    is_shared: bool
    is_store: bool

    @cached_property
    def threads(self) -> Tensor:
        """The thread that accesses each element."""
        return _owners(self.layout).to(self.lanes.device)[self.lanes]

    @cached_property
    def _ends(self) -> tuple[Tensor, Tensor, Tensor]:
        """The distinct codes, ascending, with the minimum and the maximum thread of each."""
        codes, where = torch.unique(self.codes, return_inverse=True)
        least = torch.full_like(codes, MOST_THREADS)
        least.scatter_reduce_(0, where, self.threads, "amin")
        most = torch.zeros_like(codes).scatter_reduce_(0, where, self.threads, "amax")
        return codes, least, most

    def of_others(self, programs: Tensor) -> _Open | None:
        """Return the access without some programs; None if no element is left."""
        stays = ~torch.isin(self.codes >> _PLACE_BITS, programs)
        if not bool(stays.any()):
            return None
        return replace(self, codes=self.codes[stays], lanes=self.lanes[stays])

    def may_meet(self, later: _Open) -> bool:
        """Whether a later access may conflict, judging by tensor and span alone."""
        if self.key != later.key or not (self.is_store or later.is_store):
            return False
        return self.span[0] <= later.span[1] and later.span[0] <= self.span[1]

    def conflicts(self, later: _Open) -> Tensor:
        """Return which elements of a later access another thread has accessed in this one."""
        codes, least, most = self._ends
        at = torch.searchsorted(codes, later.codes).clamp(max=codes.shape[0] - 1)
        is_met = codes[at] == later.codes
        if later.is_shared or self.is_shared or not bool(is_met.any()):
            return is_met
        return is_met & ((least[at] != later.threads) | (most[at] != later.threads))


class AccessesOfThreads(Observer):
    """The accesses of threads, in some programs of a batch, since the last barrier.

    Args:
        run: the batch.
        order: the facts of the threads.
        accesses: the accesses that are looked at.
        note: called with the elements of a conflict.
    """

    def __init__(
        self,
        run: Evaluator,
        order: ThreadOrder,
        accesses: frozenset[Operation],
        note: Callable[[ObservedAccess, Touched, Tensor, Operation], None],
    ) -> None:
        self._order = order
        self._accesses = accesses
        self._note = note
        self._open: list[_Open] = []
        self._left = _MOST_ACCESSES
        self._shared: dict[tuple[Operation, LinearLayout | None], bool] = {}
        largest = max(math.prod(ir.shape_of(PointerAccess(op).pointer.type)) for op in accesses)
        count = max(1, min(run.programs, _MOST_ELEMENTS // largest))
        chosen = torch.arange(count, device=run.device) * run.programs // count
        self._programs = chosen

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Forget accesses so far of active programs: their threads wait for each other here."""
        if run.active is None:
            self._open.clear()
        elif self._open:
            waiting = run.active.nonzero().reshape(-1) + run.first
            left = (one.of_others(waiting) for one in self._open)
            self._open = [one for one in left if one is not None]

    def read(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Look at a load."""
        self._look(run, access, is_store=False)

    def written(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Look at a store."""
        self._look(run, access, is_store=True)

    def _look(self, run: EvaluatorState, access: ObservedAccess, is_store: bool) -> None:
        op = access.op
        if op not in self._accesses or not self._left:
            return
        self._left -= 1
        touched = access.touch_programs(self._programs)
        if not touched.places.numel():
            return
        codes = (touched.programs << _PLACE_BITS) | touched.places
        first, last = torch.aminmax(touched.places)
        key, span = (access.buffer.storage_key, access.itemsize), (int(first), int(last))
        found: list[_Open] = []
        for layout in self._order.layouts[op]:
            is_shared = not is_store and self._is_shared(op, layout)
            new = _Open(op, key, span, codes, touched.lanes, layout, is_shared, is_store)
            for one in self._open:
                if one.may_meet(new):
                    bad = one.conflicts(new)
                    if one.is_shared and _is_only_user(op, one.op):
                        # Copies of threads that store nothing are used by nobody.
                        bad &= _several(touched.programs, new.threads)
                    if bool(bad.any()):
                        self._note(access, touched, bad, one.op)
            found.append(new)
        self._open = [*self._open, *found][-_MOST_OPEN:]

    def _is_shared(self, load: Operation, layout: LinearLayout | None) -> bool:
        """Whether threads use copies of loaded elements that another thread stores."""
        if not _has_copies(layout):
            return False
        key = load, layout
        known = self._shared.get(key)
        if known is None:
            known = self._shared[key] = self._has_other_users(load, _owners(layout))
        return known

    def _has_other_users(self, load: Operation, owners: Tensor) -> bool:
        uses = Uses.of(load)
        if uses.decide:
            return True
        for store in uses.stores:
            layouts = self._order.layouts.get(store)
            if layouts is None:
                if accessed_shape(store) != accessed_shape(load):
                    return True
            elif not all(bool(torch.isin(_owners(one), owners).all()) for one in layouts):
                return True
        return False


def _is_only_user(store: Operation, load: Operation) -> bool:
    """Whether a load's result is used by one store alone."""
    uses = Uses.of(load)
    return not uses.decide and set(uses.stores) == {store}


def _several(programs: Tensor, threads: Tensor) -> Tensor:
    """Return which elements belong to programs in which several threads have elements, bool."""
    _, where = torch.unique(programs, return_inverse=True)
    count = int(where.max()) + 1
    least = threads.new_full((count,), MOST_THREADS).scatter_reduce_(0, where, threads, "amin")
    most = threads.new_zeros(count).scatter_reduce_(0, where, threads, "amax")
    return (least != most)[where]


def _has_copies(layout: LinearLayout | None) -> bool:
    """Whether several threads hold the same element of a tile; True for a scalar."""
    if layout is None:
        return True
    return bool(layout.free_masks.get(LANE) or layout.free_masks.get(WARP))


@lru_cache(256)
def _owners(layout: LinearLayout | None) -> Tensor:
    """Return, for each element of a tile, row by row, the thread that stores it."""
    if layout is None:
        return torch.zeros(1, dtype=torch.int64)
    index = torch.arange(len(layout.table))
    is_first, threads, shift = torch.ones_like(index, dtype=torch.bool), 0 * index, 0
    for name, size in layout.in_sizes:
        at = (index >> shift) & (size - 1)
        is_first &= at & layout.free_masks[name] == 0
        if name in (LANE, WARP):
            threads += at * (1 if name == LANE else layout.in_size(LANE))
        shift += size.bit_length() - 1
    places, lanes, shift = torch.tensor(layout.table), 0 * index, 0
    for extent in layout.shape:
        lanes = lanes * extent + ((places >> shift) & (extent - 1))
        shift += extent.bit_length() - 1
    owners = torch.zeros(math.prod(layout.shape), dtype=torch.int64)
    owners[lanes[is_first]] = threads[is_first]
    return owners
