"""Races in the first launch of each kind, where they cost little to look for.

These are launches of kernels whose programs do not synchronise, and accesses by strided views. A
few elements of other accesses are listed; if there are more, nothing is said about the launch. If
one store alone accesses a tensor, once in each program, its first value of an element is not
compared with the value that it replaces: whether that changes memory decides no race.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable

from tkdebug.compiler.analysis.global_memory import Origin, pointer_origin
from tkdebug.compiler.dialects import scf, tt
from tkdebug.compiler.dialects.interfaces import PointerAccess
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.interpreter.checks.races.access_history import overlaps
from tkdebug.interpreter.checks.races.access_parts import SlabPart
from tkdebug.interpreter.checks.races.check import RaceCheck
from tkdebug.interpreter.checks.races.happens_before import Synchronisation
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.observers import LaunchContext, Moments, Observer
from tkdebug.interpreter.state import EvaluatorState

_MOST_KINDS = 16
_MOST_LISTED = 1 << 20


class FirstRaces(RaceCheck):
    """The `race` check of first launches, which runs without being asked for."""

    follows_accesses = False
    memory_factor = 1

    def __init__(self, module: Module, faults: FaultLog) -> None:
        super().__init__(module, faults)
        self._module = module
        self._is_on = False
        self._left = _MOST_LISTED
        self._programs = 1
        self._alone: frozenset[Operation] = frozenset()
        # The first and the last offset that the batches of each of these have stored to so far.
        self._reached: dict[Operation, tuple[int, int]] = {}

    @property
    def key(self) -> Hashable:
        """Key that differs by whether the launch is looked at."""
        return type(self), self._is_on

    def launch_begins(self, launch: LaunchContext) -> None:
        """Decide whether the launch is looked at: its kind is new and no op synchronises."""
        if Synchronisation.of(self._module).meanings:
            return
        kinds = self._module.derived.setdefault(type(self), set())
        assert isinstance(kinds, set)
        kind = None if launch.kind is None else launch.kind.key()
        if kind in kinds or len(kinds) >= _MOST_KINDS:
            return
        kinds.add(kind)
        self._programs = math.prod(launch.grid)
        spans = Counter(buffer.storage_key for buffer in launch.buffers)
        if max(spans.values(), default=0) == 1:
            self._alone = _lone_stores(self._module)
        self._is_on = self.follows_accesses = True
        super().launch_begins(launch)

    def moments(self, op: Operation) -> Moments:
        """Return no moments, since no op synchronises."""
        return Moments.NEVER

    def of_batch(self, run: Evaluator) -> Observer:
        """Return this observer in launches that are looked at, else one that does nothing."""
        return self if self._is_on else Observer()

    def launch_ends(self) -> None:
        """Compare the accesses of the launch, if all are known."""
        if self._is_on and self._left >= 0:
            super().launch_ends()

    def read(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Record a load; loads from memory that the kernel does not write are left out."""
        if run.written is not None and access.buffer.storage_key not in run.written:
            return
        if self._may_keep(run, access):
            super().read(run, access)

    def writing(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Record a store."""
        is_first = access.op in self._alone and self._is_beyond(access)
        if is_first and run.programs == self._programs and _is_apart(access):
            return
        if self._may_keep(run, access):
            self._detector.write(access, run.first, is_first)

    def atomic_done(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Record an atomic."""
        if self._may_keep(run, access, is_listed=True):
            super().atomic_done(run, access)

    def _is_beyond(self, access: ObservedAccess) -> bool:
        """Whether a store certainly touches only elements outside of earlier batches' stores."""
        slabs = access.hyperslabs()
        if not slabs:
            return False
        first, last = min(slab.start for slab in slabs), max(slab.last for slab in slabs)
        low, high = self._reached.get(access.op, (first, first - 1))
        self._reached[access.op] = min(low, first), max(high, last)
        return last < low or high < first

    def _may_keep(
        self, run: EvaluatorState, access: ObservedAccess, is_listed: bool = False
    ) -> bool:
        """Whether an access fits into the memory left; once one does not, all are forgotten."""
        if self._left >= 0 and (is_listed or access.hyperslabs() is None):
            self._left -= run.programs * math.prod(access.shape)
            if self._left < 0:
                self._detector.forget()
        return self._left >= 0


def _is_apart(access: ObservedAccess) -> bool:
    """Whether all elements of a store are certainly at different places."""
    slabs = access.hyperslabs()
    if slabs is None:
        return False
    return not overlaps([SlabPart(slab, access.shape, True, None) for slab in slabs])


def _lone_stores(module: Module) -> frozenset[Operation]:
    """Return the stores outside of loops that are the only access by their argument."""
    found = module.derived.get(_lone_stores)
    if found is None:
        found = module.derived[_lone_stores] = _found_lone_stores(module)
    assert isinstance(found, frozenset)
    return found


def _found_lone_stores(module: Module) -> frozenset[Operation]:
    groups: dict[Value | Origin, list[Operation]] = {}
    for op in module.walk():
        if PointerAccess.matches(op):
            groups.setdefault(pointer_origin(PointerAccess(op).pointer), []).append(op)
        elif tt.DescriptorAccess.matches(op):
            return frozenset()
    if any(isinstance(origin, Origin) for origin in groups):
        return frozenset()
    return frozenset(
        ops[0]
        for ops in groups.values()
        if len(ops) == 1 and tt.Store.matches(ops[0]) and not any(scf.loops_around(ops[0]))
    )
