"""One launch as batches of programs, as many at once as fit the memory budget.

Batches go in program order. Programs that wait for each other (spin locks) run one at a time, which
is said once per kernel. Where an observer asks for it, a batch is run again on the memory that it
found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from tkdebug.compiler.ir import Module
from tkdebug.interpreter.arguments import Arguments
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.fusion import Fusion
from tkdebug.interpreter.launch_kind import LaunchKind
from tkdebug.interpreter.launch_messages import announce_sequential
from tkdebug.interpreter.observers import CompiledFacts, LaunchContext, Observer
from tkdebug.interpreter.prepared import Prepared
from tkdebug.interpreter.replay import SavedMemory, memory_to_save
from tkdebug.interpreter.scheduler import Scheduler
from tkdebug.interpreter.state import Batch
from tkdebug.knobs import KNOBS

Grid = tuple[int, int, int]
# Batches larger than this only fall out of the caches.
_CACHE_FRIENDLY_BYTES = 64 << 20


class Batches:
    """One launch under way: what all its batches share.

    Args:
        module: what is run.
        values: one per block argument, as `run_module` takes them.
        grid: programs along x, y, z.
        faults: takes the faults.
        report: gets how many programs have ended, after each batch.
        observers: who looks on, checks among them.
        compiled: what is known of the kernel as a GPU would run it; None for nothing.

    Attributes:
        size: programs of a batch.
        saved: memory that is saved before each batch, None where none can be run again.
        scheduler: what programs that wait for each other take, None where none waits.
    """

    def __init__(
        self,
        module: Module,
        values: Sequence[Any],
        grid: Grid,
        faults: FaultLog,
        report: Callable[[int], None] | None,
        observers: Sequence[Observer],
        compiled: CompiledFacts | None = None,
    ) -> None:
        prepared = self.prepared = Prepared.of(module)
        self.module = module
        self.grid = grid
        self.total = math.prod(grid)
        self.faults = faults
        self.report = report
        self.arguments = Arguments(module, values, prepared.names, prepared.written)
        self.observers = observers
        factor = max((observer.memory_factor for observer in self.observers), default=1)
        self.size = _batch_size(prepared, grid, factor)
        self.saved = None
        if not prepared.spin_loops:
            batch_bytes = prepared.bytes_per_program * min(self.size, self.total)
            self.saved = memory_to_save(module, self.arguments, self.observers, batch_bytes)
        is_passive = all(observer.is_passive for observer in self.observers)
        context = LaunchContext(
            module,
            grid,
            self.arguments.buffers,
            self.arguments.written,
            self.saved is not None,
            LaunchKind(grid, self.arguments) if is_passive else None,
            compiled,
        )
        for observer in self.observers:
            observer.launch_begins(context)
        self.plan = prepared.plan(self.observers)
        self.fusion = _fusion(prepared, self.observers)
        self.scheduler: Scheduler | None = None
        if prepared.spin_loops:
            if self.total > 1 and not prepared.announced:
                prepared.announced = True
                announce_sequential(prepared.spin_loops[0], faults.kernel)
            self.size = 1
            self.scheduler = Scheduler(
                prepared.spin_loops,
                self.total,
                self.run_batch,
                self.arguments.device,
                None if compiled is None or compiled.room is None else compiled.room(),
            )

    @property
    def batch_bytes(self) -> int:
        """Live bytes of a batch."""
        return self.prepared.bytes_per_program * self.size

    def run(self, first: int = 0) -> None:
        """Run all programs from `first` on, and end the launch for who looks on."""
        if self.scheduler is not None:
            self.scheduler.run()
        else:
            for begin in range(first, self.total, self.size):
                self.run_batch(begin)
        for observer in self.observers:
            observer.launch_ends()

    def run_only(self, programs: Iterable[range]) -> None:
        """Run some programs, and end the launch for who looks on."""
        for some in programs:
            for begin in range(some.start, some.stop, self.size):
                self.run_batch(begin, min(self.size, some.stop - begin))
        for observer in self.observers:
            observer.launch_ends()

    def run_batch(self, first: int, count: int | None = None) -> None:
        """Run the batch that begins with program `first`, of `count` programs if given."""
        saved = SavedMemory(self.saved) if self.saved is not None else None
        batch = self._batch(first)
        if count is not None:
            batch = replace(batch, programs=count)
        evaluator = Evaluator(self.plan, batch)
        try:
            evaluator.run_kernel(self.module.function, self.arguments.values)
            looking = evaluator.observers
        finally:
            evaluator.release()
        if saved is not None:
            replaying = [again for one in looking if (again := one.replay()) is not None]
            if replaying:
                saved.restore()
                self._replay(batch, replaying)
        if self.report is not None:
            self.report(min(first + self.size, self.total))

    def _batch(self, first: int) -> Batch:
        return Batch(
            self.grid,
            first,
            min(self.size, self.total - first),
            self.arguments.device,
            self.faults,
            self.fusion,
            self.arguments.written,
            self.arguments.buffers,
            strict_ieee=KNOBS.strict_ieee,
            observers=self.observers,
            scheduler=self.scheduler,
        )

    def _replay(self, batch: Batch, observers: Sequence[Observer]) -> None:
        """Run a batch again for `observers` alone."""
        batch = replace(
            batch,
            faults=FaultLog(
                self.faults.kernel, self.faults.launch_id, self.grid, is_reported=False
            ),
            fusion=_fusion(self.prepared, observers),
            observers=observers,
        )
        evaluator = Evaluator(self.prepared.plan(observers), batch)
        try:
            evaluator.run_kernel(self.module.function, self.arguments.values)
        finally:
            evaluator.release()


def _fusion(prepared: Prepared, observers: Sequence[Observer]) -> Fusion:
    fuses = not any(observer.needs_intermediates for observer in observers)
    return prepared.fusion if fuses else Fusion()


def _batch_size(prepared: Prepared, grid: Grid, factor: int) -> int:
    """Programs per batch: within the budget, cache friendly, whole grid rows where possible."""
    total = math.prod(grid)
    budget = int(KNOBS.memory_budget_bytes)
    bytes_per_program = prepared.bytes_per_program * factor
    limit = min(budget, max(_CACHE_FRIENDLY_BYTES, bytes_per_program))
    size = max(1, limit // bytes_per_program)
    if size >= total:
        return total
    for unit in (grid[0] * grid[1], grid[0]):
        if unit > 1 and size >= unit:
            return size // unit * unit
    return size
