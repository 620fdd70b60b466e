"""Reports an Inf that a launch made of finite values and stores, at the op that made it.

Batches run unobserved, and only their stores are looked at; a batch that stores an element that is
not finite is run again, op by op. Where batches cannot be run again, ops are looked at from the
start.

Only what is in memory when the launch ends is reported, as an Inf or as the NaN that it became: an
Inf that a mask, a `tl.where`, an `exp` or a division by it drops does not matter. An Inf that is
loaded, or written in the kernel (`float("-inf")`), has no origin here; nor has one of a cast, which
is `narrowing`. An Inf that is right, as 1 / 0 or exp(100) in fp32, is none (`inf_tracker.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from typing import TYPE_CHECKING

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import stored
from tkdebug.compiler.ir import Module, Operation
from tkdebug.compiler.ir.constants import written_infs
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW
from tkdebug.interpreter.checks.inf_reports import InfReports
from tkdebug.interpreter.checks.shadow_values import is_in_kernel
from tkdebug.interpreter.checks.stored_values import StoredValueCheck, all_finite, is_float
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.numerics.scans import sum_of
from tkdebug.interpreter.observers import LaunchContext, Moments, Observer
from tkdebug.interpreter.state import EvaluatorState
from tkdebug.interpreter.tiles.values import TileValue
from tkdebug.process.apart_imports import import_apart

if TYPE_CHECKING:
    from tkdebug.interpreter.checks.inf_tracker import InfTracker


class InfCheck(StoredValueCheck):
    """The observer of `--check inf`."""

    def __init__(self, module: Module, faults: FaultLog) -> None:
        super().__init__(module, faults)
        self._written = written_infs(module)
        self._reports = InfReports(faults, self._held)

    def launch_begins(self, launch: LaunchContext) -> None:
        """Follow accesses where batches can be run again, or earlier launches left Infs."""
        super().launch_begins(launch)
        self._reports.launch_begins(launch)
        self.follows_accesses = self._can_replay or bool(self._reports.loaded)

    def launch_ends(self) -> None:
        """Report Infs that are left in memory, and keep the right ones."""
        super().launch_ends()
        self._reports.launch_ends()

    def moments(self, op: Operation) -> Moments:
        """Ask for atomics of floats, and for other ops where batches cannot be run again."""
        if self._can_replay:
            return Moments.BEFORE if _is_float_atomic(op) else Moments.NEVER
        return self._moments_of(op)

    def _moments_of(self, op: Operation) -> Moments:
        return _moments(op)

    def of_batch(self, run: Evaluator) -> Observer:
        """Return an observer of stores alone, or of the Infs of one batch."""
        if not self._can_replay:
            return InfsOfBatch(self._reports).of_batch(run)
        return StoredInfs(self._reports, self._written)


class StoredInfs(Observer):
    """Looks at what a batch stores or adds; if it is not finite, asks for the batch again.

    Running a batch again takes several times as long as the batch, so it is not worth it for scores
    that a kernel fills with -inf, or for empty sums: Infs of a sign that the kernel has a constant
    of are let pass, unless there are others.
    """

    def __init__(self, reports: InfReports, written: Collection[float]) -> None:
        self._reports = reports
        self._written = written
        self._is_found = False

    def replay(self) -> Observer | None:
        """Return the observer of the Infs that the batch made, or None if none matters."""
        return InfsOfBatch(self._reports) if self._is_found else None

    def written(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Note whether a store has Infs or NaNs."""
        if self._is_found or not is_float(stored(access.op).type):
            return
        is_finite = access.stored_is_finite()
        if is_finite is None:
            is_finite = all_finite(access.stored_tile()) or all_finite(access.stored())
        if not is_finite:
            total = access.stored_sum()
            total = sum_of(access.stored()) if total is None else total
            self._is_found = total not in self._written

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Note whether an atomic of floats, which is about to run, adds an Inf or a NaN."""
        self._is_found = self._is_found or not all_finite(operands[1])


@cache
def _tracker(loads: bool) -> type[InfTracker]:
    import_apart("tkdebug.interpreter.checks.inf_tracker")
    from tkdebug.interpreter.checks.inf_tracker import InfTracker, LoadedInfTracker

    return LoadedInfTracker if loads else InfTracker


class InfsOfBatch(Observer):
    """Makes the tracker of the Infs of a batch, which looks at each op."""

    needs_intermediates = True

    def __init__(self, reports: InfReports) -> None:
        self._reports = reports
        self.follows_accesses = bool(reports.loaded)

    def moments(self, op: Operation) -> Moments:
        """Ask to be called after ops that give floats."""
        return _moments(op)

    def of_batch(self, run: Evaluator) -> Observer:
        """Return the tracker of the batch's Infs."""
        return _tracker(bool(self._reports.loaded))(run, self._reports)


def _is_float_atomic(op: Operation) -> bool:
    return tt.AtomicRmw.matches(op) and is_float(tt.AtomicRmw(op).value.type)


def _moments(op: Operation) -> Moments:
    """Return the moments at which the Infs of an op are looked at."""
    if not is_in_kernel(op) or op.name in CONTROL_FLOW:
        return Moments.NEVER
    return Moments.AFTER if any(is_float(value.type) for value in op.results) else Moments.NEVER
