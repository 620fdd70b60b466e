"""The frame of checks of where accesses go: a launch that was cleared is not looked at again.

Where arguments and program ids alone decide on addresses and masks, launches that differ in nothing
but the contents of memory access the same elements.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable

from tkdebug.compiler.dialects import scf, tt
from tkdebug.compiler.dialects.interfaces import MaskedAccess
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir.control_flow import deciding
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.interpreter.checks.value_sources import MEMORY, ValueSources
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.observers import LaunchContext, Moments, Observer
from tkdebug.interpreter.replay import Replayable

_MOST_KEPT = 1024
_ACCESSES = names_of(tt.Load, tt.Store, tt.DescriptorLoad)


class ClearedLaunches:
    """The kinds of launches of a module in which a check found nothing."""

    def __init__(self) -> None:
        self._keys: set[Hashable] = set()

    @classmethod
    def of(cls, module: Module, check: type[Observer]) -> ClearedLaunches | None:
        """Return the cleared launches of a check; None if memory may decide on addresses."""
        name = cls, check
        if name not in module.derived:
            module.derived[name] = cls() if _is_decided_by_arguments(module) else None
        found = module.derived[name]
        assert found is None or isinstance(found, cls)
        return found

    def __contains__(self, key: Hashable) -> bool:
        return key in self._keys

    def add(self, key: Hashable) -> None:
        """Keep the kind of a launch, if there are not too many."""
        if len(self._keys) < _MOST_KEPT:
            self._keys.add(key)


class AccessPatternCheck(Observer, ABC):
    """Looks at accesses of kinds of launches that it has not cleared yet."""

    is_passive = True

    def __init__(self, module: Module, faults: FaultLog) -> None:
        self._faults = faults
        self._cleared = ClearedLaunches.of(module, type(self))
        self._kind: Hashable | None = None
        self._is_cleared = False
        self._programs_left = 0

    @property
    def key(self) -> Hashable:
        """Key that differs between launches that are looked at and launches that were cleared."""
        return type(self), self._is_cleared

    def launch_begins(self, launch: LaunchContext) -> None:
        """Note whether an earlier launch with the same addresses had no fault."""
        if self._cleared is not None and launch.kind is not None:
            self._kind = launch.kind.key()
            self._is_cleared = self._kind is not None and self._kind in self._cleared
            self._programs_left = math.prod(launch.grid)

    def moments(self, op: Operation) -> Moments:
        """Return the moments of `_moments_of`; never, in launches that were cleared."""
        return Moments.NEVER if self._is_cleared else self._moments_of(op)

    @abstractmethod
    def _moments_of(self, op: Operation) -> Moments:
        """Return the moments at which it is called at `op`, in launches that are looked at."""

    def of_batch(self, run: Evaluator) -> Observer:
        """Return this observer, and note that the batch's programs are seen."""
        self._programs_left -= run.programs
        return self

    def launch_ends(self) -> None:
        """Report what was found; if nothing was and all programs were seen, clear such launches."""
        if self._is_cleared or self._report() or self._kind is None or self._cleared is None:
            return
        if not self._programs_left:
            self._cleared.add(self._kind)

    @abstractmethod
    def _report(self) -> bool:
        """Report faults of the launch; return whether there are any."""


def _is_decided_by_arguments(module: Module) -> bool:
    """Whether no loaded value decides on control flow, addresses or masks.

    False, too, if the module's ops may give other results when they run again.
    """
    sources = ValueSources(module)

    def is_given(value: Value | None) -> bool:
        return MEMORY not in sources.of(value)

    def is_decided(op: Operation) -> bool:
        if scf.While.matches(op):
            return _only_waits(op)
        if scf.For.matches(op) or scf.If.matches(op):
            return all(map(is_given, deciding(op))) or _only_waits(op)
        if tt.DescriptorLoad.matches(op):
            return all(map(is_given, op.operands))
        if tt.Load.matches(op) or tt.Store.matches(op):
            access = MaskedAccess(op)
            return is_given(access.pointer) and is_given(access.mask)
        return True

    return Replayable.of(module).is_possible and all(map(is_decided, module.walk()))


def _only_waits(op: Operation) -> bool:
    """Whether a loop or branch accesses nothing and has no results, as one that takes a lock."""
    return not op.results and not any(inner.name in _ACCESSES for inner in op.walk())
