"""Checks operands of reductions; padding is followed only if these are not plainly right.

In most kernels each reduction gets a masked tile whose fill is neutral to it. If one gets anything
else, the batch runs again, and its padding is followed op by op; later launches of the kernel begin
with that. So do kernels whose dots or loops take padding in, and batches that cannot run again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Module, Operation
from tkdebug.interpreter.checks.padding.combinations import combination, neutral_of
from tkdebug.interpreter.checks.padding.facts import PaddingFacts
from tkdebug.interpreter.checks.padding.flow import mask_given
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.observers import LaunchContext, Moments, Observer
from tkdebug.interpreter.tiles.values import BoxTile, TileValue
from tkdebug.process.apart_imports import import_apart

if TYPE_CHECKING:
    from tkdebug.interpreter.checks.padding.check import PaddingTracker


class _Followed:
    """A mark in `Module.derived` of kernels for which a glance was not enough in some launch."""


class PaddingCheck(Observer):
    """`--check padding`."""

    is_passive = True

    def __init__(self, module: Module, faults: FaultLog) -> None:
        self._module = module
        self._facts = PaddingFacts.of(module)
        self._follows = PaddingOfBatches(self._facts, faults)
        self.replays = bool(self._facts.reached) and self._facts.is_plain
        self._is_glance = False

    @property
    def key(self) -> Hashable:
        """Key that differs by whether padding is followed from the start."""
        return type(self), self._is_glance

    def launch_begins(self, launch: LaunchContext) -> None:
        """Decide whether a glance at the operands of reductions is enough at first."""
        is_known = _Followed in self._module.derived
        self._is_glance = launch.can_replay and self._facts.is_plain and not is_known

    def moments(self, op: Operation) -> Moments:
        """Ask to be called before loads that pad, and reductions that may take padding in."""
        if self._is_glance and op in self._facts.reached:
            return Moments.BEFORE
        return self._follows.moments(op)

    def of_batch(self, run: Evaluator) -> Observer:
        """Return a glance at one batch, or the tracker of its padding."""
        if not self._is_glance:
            return self._follows.of_batch(run)
        return Glance(self._module, self._facts, self._follows)


@cache
def _tracker() -> type[PaddingTracker]:
    import_apart("tkdebug.interpreter.checks.padding.check")
    from tkdebug.interpreter.checks.padding.check import PaddingTracker

    return PaddingTracker


class PaddingOfBatches(Observer):
    """Makes the trackers of the padding of batches."""

    is_passive = True

    def __init__(self, facts: PaddingFacts, faults: FaultLog) -> None:
        self._facts = facts
        self._faults = faults

    def moments(self, op: Operation) -> Moments:
        """Ask to be called before loads that pad; before others only while there is padding."""
        return Moments.BEFORE if op in self._facts.loads else Moments.NEVER

    def of_batch(self, run: Evaluator) -> Observer:
        """Return the tracker of one batch's padding."""
        return _tracker()(run, self._faults, self._facts)


class Glance(Observer):
    """Looks at the operands of one batch's reductions."""

    def __init__(self, module: Module, facts: PaddingFacts, follows: PaddingOfBatches) -> None:
        self._module = module
        self._facts = facts
        self._follows = follows
        self._padded: set[Operation] = set()
        self._is_found = False

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Look at a load that masks elements off, or a reduction that takes some in."""
        loads = self._facts.reached.get(op)
        if loads is None:
            mask = mask_given(run, op, operands)
            if not (isinstance(mask, int) and mask):
                self._padded.add(op)
        elif not (self._is_found or self._padded.isdisjoint(loads)):
            self._is_found = not _is_right(op, operands[0])

    def replay(self) -> Observer | None:
        """Return the observer that follows the padding, or None if that is not needed."""
        if not self._is_found:
            return None
        self._module.derived[_Followed] = _Followed
        return self._follows


def _is_right(op: Operation, tile: TileValue) -> bool:
    """Whether all masked-off elements of an operand are neutral, or its reduction is unknown.

    Elements outside of the tile's box are its fill. Inside there is no padding: tiles that are
    masked in different ways have no box in common.
    """
    combiner = combination(op)
    if combiner is None:
        return True  # of which nothing is known
    if not isinstance(tile, BoxTile) or tt.Combining(op).axis not in tile.cropped_axes:
        return False
    return not bool((tile.fill != neutral_of(combiner, tile.fill.dtype)).any())
