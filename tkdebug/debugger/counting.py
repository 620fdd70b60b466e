"""An execution beside the launch, which counts ops as the launch did and ends at a moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tkdebug.compiler.ir import Operation
from tkdebug.debugger.execution import Execution, Traced
from tkdebug.debugger.moments import Moment
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.interpreter.tiles.values import TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator


class CountingObserver(Observer):
    """Counts ops as an `Execution` does, and ends at a moment."""

    needs_intermediates = True
    is_passive = False
    # The same batches: which op is the n-th depends on them.
    memory_factor = Execution.memory_factor

    def __init__(self, execution: Execution, until: Moment, now: int) -> None:
        self._execution = execution
        self._until = until
        self.now = now

    @property
    def key(self) -> None:
        """Its plan is its own."""
        return None

    def moments(self, op: Operation) -> Moments:
        """Where an execution counts."""
        if op not in self._execution.code.needed:
            return Moments.NEVER
        return Moments.BEFORE | Moments.AFTER

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Count."""
        self.now += 1
        if self.now >= self._until.op:
            raise Traced
        self._execution.reapply(run, self.now)

    def after(
        self,
        run: Evaluator,
        op: Operation,
        operands: Sequence[TileValue],
        results: Sequence[TileValue],
    ) -> Sequence[TileValue]:
        """What was recorded, where that is no function of the inputs."""
        return self._execution.recorded.get(self.now, results)
