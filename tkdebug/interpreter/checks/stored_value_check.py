"""The frame of checks of values that are stored: NaN and Inf."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable

from tkdebug.compiler.ir import Module, Operation
from tkdebug.interpreter.checks.stored_values import HeldStores
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.observers import LaunchContext, Moments, Observer


class StoredValueCheck(Observer, ABC):
    """Looks at stores alone where batches can be run again, and at ops where they cannot.

    What a launch stores and overwrites is no fault, so reports are held until it ends.
    """

    follows_accesses = True
    is_passive = True
    replays = True

    def __init__(self, module: Module, faults: FaultLog) -> None:
        self._faults = faults
        self._held = HeldStores()
        self._can_replay = False

    @property
    def key(self) -> Hashable:
        """Ops are looked at only where batches cannot be run again."""
        return type(self), self._can_replay

    def launch_begins(self, launch: LaunchContext) -> None:
        """Note whether ops need to be looked at from the start."""
        self._can_replay = launch.can_replay
        self.needs_intermediates = not launch.can_replay

    def moments(self, op: Operation) -> Moments:
        """Those of a batch whose ops are looked at; never where batches can be run again."""
        return Moments.NEVER if self._can_replay else self._moments_of(op)

    @abstractmethod
    def _moments_of(self, op: Operation) -> Moments:
        """When a batch whose ops are looked at is called at `op`."""

    def launch_ends(self) -> None:
        """Report what is left in memory."""
        self._held.settle()
