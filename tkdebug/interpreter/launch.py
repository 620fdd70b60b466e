"""Runs a compiled module over a grid in batches that fit the memory budget.

Batches go in program order. Programs that wait for each other (spin locks) run one at a time, and
tkdebug says so once per kernel. Invariant: a launch leaves no reference to its tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Module
from tkdebug.events import Fault, LaunchRecord
from tkdebug.interpreter.arguments import Arguments, device_of
from tkdebug.interpreter.checks.selection import observers_in_force, observers_of
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.fusion import Fusion
from tkdebug.interpreter.launch_kind import LaunchKind
from tkdebug.interpreter.launch_messages import (
    announce_sequential,
    progress_reporter,
    tell_interrupted,
)
from tkdebug.interpreter.memory.address_registry import ADDRESSES
from tkdebug.interpreter.memory_usage import live_bytes_per_program, written_arguments
from tkdebug.interpreter.observers import LaunchContext, Observer
from tkdebug.interpreter.plan import Plan
from tkdebug.interpreter.replay import SavedMemory, memory_to_save
from tkdebug.interpreter.scheduler import Scheduler
from tkdebug.interpreter.spin_loops import spin_loops
from tkdebug.interpreter.state import Batch
from tkdebug.interpreter.torch_state import apart_from_the_script
from tkdebug.knobs import KNOBS

Grid = tuple[int, int, int]
# Batches larger than this only fall out of the caches.
_CACHE_FRIENDLY_BYTES = 64 << 20
# Live bytes of a batch up to which torch works on one thread: a dot of 128 x 128 x 128 fits.
_ONE_THREAD_BYTES = 1 << 20


class Prepared:
    """What is worked out once per module: plans of its blocks, its memory usage, its writes."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self.fusion = Fusion.of(module)
        self.bytes_per_program = live_bytes_per_program(module)
        self.written = written_arguments(module)
        self.spin_loops = spin_loops(module)
        self._plans: dict[tuple[Hashable, ...], Plan] = {}
        self.names = tt.Func(module.function).arg_names
        self.announced = False

    @classmethod
    def of(cls, module: Module) -> Prepared:
        """That of a module, made when it is first asked for."""
        prepared = module.derived.get(cls)
        if prepared is None:
            prepared = module.derived[cls] = cls(module)
        assert isinstance(prepared, cls)
        return prepared

    def plan(self, observers: Sequence[Observer]) -> Plan:
        """The plan for such observers; shared where all of them have keys."""
        keys = tuple(observer.key for observer in observers)
        plan = self._plans.get(keys)
        if plan is None:
            plan = Plan(self._module, observers, bool(self.spin_loops))
            if None not in keys:
                self._plans[keys] = plan
        return plan


def run_module(
    module: Module,
    values: Sequence[Any],
    grid: Grid,
    record: LaunchRecord | None = None,
    kernel_name: str | None = None,
    *,
    is_reported: bool = True,
    arguments: Mapping[str, object] | None = None,
    observers: Sequence[Observer] = (),
    log: FaultLog | None = None,
) -> list[Fault]:
    """Run a module's kernel for every program of `grid`.

    Args:
        module: Tile IR or GPU IR, as it stands after any pass; not changed since it was first run.
        values: one per block argument: tensors for pointers, numbers for scalars, a tensor
            descriptor followed by its shape and strides.
        grid: programs along x, y, z.
        record: the launch being recorded, if any.
        kernel_name: how faults name the kernel.
        is_reported: whether faults are handed to the hooks, and what the kernel prints is printed.
        arguments: what the kernel was called with, by name, constants too; for hints.
        observers: who looks on, beside the checks.
        log: where its faults go; None for a new log.

    Returns:
        The faults.
    """
    name = kernel_name or module.name
    launch_id = record.id if record is not None else 0
    faults = log or FaultLog(name, launch_id, grid, is_reported, arguments)
    with apart_from_the_script(device_of(values)):
        launch = _Launch(
            module,
            values,
            grid,
            faults,
            progress_reporter(record, name, math.prod(grid)),
            observers,
        )
        with _threads_for(launch.batch_bytes):
            try:
                launch.run()
            except KeyboardInterrupt as error:
                tell_interrupted(name, error, launch.scheduler)
                raise
            finally:
                launch.scheduler = None  # which holds what holds it
                published = faults.publish()
    return published


def run_debugged(
    module: Module,
    values: Sequence[Any],
    grid: Grid,
    faults: FaultLog,
    observer: Observer,
    first: int = 0,
) -> None:
    """Run a module's kernel for a debugger: only the checks that always run; nothing is reported.

    Args:
        module: as for `run_module`.
        values: as for `run_module`.
        grid: programs along x, y, z.
        faults: takes the faults; the caller publishes them.
        observer: the debugger's, whose `of_batch` is called before each batch's first op.
        first: the program to begin with, the first of a batch.
    """
    with apart_from_the_script(device_of(values)):
        launch = _Launch(module, values, grid, faults, None, [observer], is_checked=False)
        with _threads_for(launch.batch_bytes):
            try:
                launch.run(first)
            finally:
                launch.scheduler = None  # which holds what holds it


def run_programs(
    module: Module,
    values: Sequence[Any],
    grid: Grid,
    programs: Iterable[range],
    log: FaultLog,
    checks: Collection[str],
    observers: Sequence[Observer],
) -> None:
    """Run some programs of a launch for what checks say of them; nothing is reported.

    Args:
        module: as for `run_module`; its programs do not wait for each other.
        values: as for `run_module`.
        grid: programs along x, y, z.
        programs: their numbers.
        log: takes the faults; the caller publishes them.
        checks: those that look on, beside the ones that always do.
        observers: who else does.
    """
    looking = [*observers_of(checks, module, log), *observers]
    with apart_from_the_script(device_of(values)):
        launch = _Launch(module, values, grid, log, None, looking, is_checked=None)
        with _threads_for(launch.batch_bytes):
            launch.run_only(programs)


def stored_tensors(module: Module, values: Sequence[Any]) -> list[torch.Tensor]:
    """The tensors that a launch with `values` (as `run_module` takes them) may store to."""
    prepared = Prepared.of(module)
    with apart_from_the_script(device_of(values)):
        arguments = Arguments(module, values, prepared.names, prepared.written)
        if arguments.written is None:
            buffers = [*arguments.buffers, *ADDRESSES.buffers()]
        else:
            buffers = [b for b in arguments.buffers if b.storage_key in arguments.written]
        return [buffer.tensor for buffer in buffers]


def look_at_empty_launch(
    module: Module, values: Sequence[Any], grid: Grid, kernel_name: str
) -> list[Fault]:
    """Faults of a launch without programs: what it leaves unwritten, where that is asked for."""
    prepared = Prepared.of(module)
    faults = FaultLog(kernel_name, 0, grid)
    with apart_from_the_script(device_of(values)):
        arguments = Arguments(module, values, prepared.names, prepared.written)
        launch = LaunchContext(module, grid, arguments.buffers, arguments.written)
        observers = observers_in_force(module, faults)
        for observer in observers:
            observer.launch_begins(launch)
        for observer in observers:
            observer.launch_ends()
        return faults.publish()


class _Launch:
    """One launch under way: what all its batches share.

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
        *,
        is_checked: bool | None = True,
    ) -> None:
        prepared = self.prepared = Prepared.of(module)
        self.module = module
        self.grid = grid
        self.total = math.prod(grid)
        self.faults = faults
        self.report = report
        self.arguments = Arguments(module, values, prepared.names, prepared.written)
        checks: list[Observer] = []
        if is_checked is not None:
            checks = (
                observers_in_force(module, faults)
                if is_checked
                else observers_of((), module, faults)
            )
        self.observers = [*checks, *observers]
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
                prepared.spin_loops, self.total, self.run_batch, self.arguments.device
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
            replaying = [one for one in map(_replaying, looking) if one is not None]
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


def _replaying(observer: Observer) -> Observer | None:
    return observer.replay()


def _fusion(prepared: Prepared, observers: Sequence[Observer]) -> Fusion:
    fuses = not any(observer.needs_intermediates for observer in observers)
    return prepared.fusion if fuses else Fusion()


@contextmanager
def _threads_for(batch_bytes: int) -> Iterator[None]:
    """One thread of torch for small batches.

    Waking the others and waiting for all of them saves nothing there, and takes milliseconds where
    the machine has other work.
    """
    threads = torch.get_num_threads()
    if threads == 1 or batch_bytes > _ONE_THREAD_BYTES:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


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
