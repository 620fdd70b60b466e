"""Whether a launch stores an Inf that it made of finite values; who made it, is told if so.

Batches run unobserved, and only what they store is looked at; one that stores what is
not finite is run again, op by op. Where batches cannot be run again, ops are looked at from the
start.

Only what is in memory when the launch ends is reported, as an Inf or as the NaN that it became:
what a mask, a `tl.where`, an `exp` or a division by it drops is of no concern. An Inf that is
loaded, or written in the kernel (`float("-inf")`), has no origin here; nor has one of a cast, which
is `narrowing`. An Inf that is right, as 1 / 0 or exp(100) in fp32, is none (`inf_tracker.py`).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tkdebug.apart_imports import import_apart
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW
from tkdebug.interpreter.checks.finite_tiles import all_finite, is_float
from tkdebug.interpreter.checks.shadow_values import is_in_kernel, stored_value
from tkdebug.interpreter.checks.stored_value_check import StoredValueCheck
from tkdebug.interpreter.checks.stored_values import HeldStores
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.interpreter.state import EvaluatorState

if TYPE_CHECKING:
    from tkdebug.interpreter.checks.inf_tracker import InfTracker


class InfCheck(StoredValueCheck):
    """`--check inf`."""

    def _moments_of(self, op: Operation) -> Moments:
        return _moments(op)

    def of_batch(self, run: Evaluator) -> Observer:
        """One that looks at stores alone, or the Infs of one batch."""
        on_batches = InfsOfBatch(self._faults, self._held)
        return StoredInfs(run, on_batches) if self._can_replay else on_batches.of_batch(run)


class StoredInfs(Observer):
    """Looks at what a batch stores; where that is not finite, it wants to see the batch again."""

    def __init__(self, ev: Evaluator, on_batches: InfsOfBatch) -> None:
        self._ev = ev
        self._on_batches = on_batches
        self._is_found = False

    def replay(self) -> Observer | None:
        """The Infs that the batch made."""
        return self._on_batches if self._is_found else None

    def written(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """After a store."""
        value = stored_value(access.op)
        if self._is_found or value is None or not is_float(value.type):
            return
        is_finite = access.stored_is_finite()
        if is_finite is None:
            is_finite = all_finite(access.stored_tile()) or bool(access.stored().isfinite().all())
        self._is_found = not is_finite

    def atomic(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Before an atomic."""
        value = stored_value(access.op)
        if not self._is_found and value is not None and is_float(value.type):
            self._is_found = not all_finite(self._ev.values[value])


@cache
def _tracker() -> type[InfTracker]:
    import_apart("tkdebug.interpreter.checks.inf_tracker")
    from tkdebug.interpreter.checks.inf_tracker import InfTracker

    return InfTracker


class InfsOfBatch(Observer):
    """Looks at a batch that is run again."""

    needs_intermediates = True
    follows_accesses = True

    def __init__(self, faults: FaultLog, held: HeldStores) -> None:
        self._faults = faults
        self._held = held

    def moments(self, op: Operation) -> Moments:
        """After what gives floats."""
        return _moments(op)

    def of_batch(self, run: Evaluator) -> Observer:
        """The Infs of the batch."""
        return _tracker()(run, self._faults, self._held)


def _moments(op: Operation) -> Moments:
    """When the Infs of an op are looked at."""
    if not is_in_kernel(op) or op.name in CONTROL_FLOW:
        return Moments.NEVER
    return Moments.AFTER if any(is_float(value.type) for value in op.results) else Moments.NEVER
