"""Runs a compiled module over a grid: for its launch, for a debugger, for some programs alone.

A launch is run as batches of programs, as many at once as fit the memory budget, in program order.
Programs that wait for each other (spin locks) run one at a time, with one message per kernel. If an
observer asks for it, a batch is run again on the memory that it found. Progress, and the line where
a launch was interrupted, are reported here, too.

Invariant: a launch leaves no reference to its tensors.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

import torch

from tkdebug.compiler.dialects import scf
from tkdebug.compiler.ir import Module, Operation
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.interpreter.arguments import Arguments, LaunchKind, device_of
from tkdebug.interpreter.checks.selection import observers_in_force, observers_of
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.fusion import Fusion
from tkdebug.interpreter.memory.address_registry import ADDRESSES
from tkdebug.interpreter.observers import CompiledFacts, LaunchContext, Observer
from tkdebug.interpreter.plan import Prepared
from tkdebug.interpreter.replay import SavedMemory, memory_to_save
from tkdebug.interpreter.scheduler import Scheduler
from tkdebug.interpreter.state import Batch
from tkdebug.interpreter.torch_state import apart_from_the_script, keep_freed_memory
from tkdebug.knobs import KNOBS
from tkdebug.records.events import Fault, LaunchProgress, LaunchRecord
from tkdebug.records.hook_chain import HOOKS
from tkdebug.terminal.text import tell

Grid = tuple[int, int, int]
# Batches larger than this only fall out of the caches.
_CACHE_FRIENDLY_BYTES = 64 << 20


class Batches:
    """One launch under way: the state that all its batches share.

    Args:
        module: the module that is run.
        values: one per block argument, as `run_module` takes them.
        grid: programs along x, y, z.
        faults: takes the faults.
        report: gets how many programs have ended, after each batch.
        observers: observers of the launch, checks among them.
        compiled: facts about the kernel as a GPU would run it; None without them.

    Attributes:
        size: programs of a batch.
        saved: memory that is saved before each batch, None if none can be run again.
        scheduler: the scheduler of programs that wait for each other, None if none waits.
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
        """Peak bytes of live tiles and shared memory in a batch."""
        return self.prepared.bytes_per_program * self.size

    def run(self, first: int = 0) -> None:
        """Run all programs from `first` on, and end the launch for its observers."""
        if self.scheduler is not None:
            self.scheduler.run()
        else:
            for begin in range(first, self.total, self.size):
                self.run_batch(begin)
        for observer in self.observers:
            observer.launch_ends()

    def run_only(self, programs: Iterable[range]) -> None:
        """Run some programs, and end the launch for its observers."""
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
        evaluator = Evaluator(self.plan, batch, self.observers)
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

    def run_chosen(self, numbers: Sequence[int]) -> None:
        """Run a batch of programs that need not follow each other, by their linear numbers."""
        batch = replace(self._batch(0), programs=len(numbers), numbers=tuple(numbers))
        evaluator = Evaluator(self.plan, batch, self.observers)
        try:
            evaluator.run_kernel(self.module.function, self.arguments.values)
        finally:
            evaluator.release()

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
        )
        evaluator = Evaluator(self.prepared.plan(observers), batch, observers)
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


_PROGRESS_EVERY_NS = 100_000_000


def announce_sequential(loop: Operation, name: str) -> None:
    """Report that programs run one by one, since they may wait for each other in `loop`."""
    where = loop.location.primary
    tell(
        f"{name}: its programs may wait for each other at {where.file}:{where.line}; "
        "running them one after the other"
    )


def tell_interrupted(name: str, error: KeyboardInterrupt, scheduler: Scheduler | None) -> None:
    """Report the kernel line that was interrupted, and its loop: the traceback shows neither.

    Nothing is reported if no op of a kernel was running.
    """
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    running = _running_ops(frames)
    if not running and scheduler is not None:
        # Another thread's, whose innermost frame comes first.
        frame = scheduler.interrupted
        frames = []
        while frame is not None:
            frames.insert(0, frame)
            frame = frame.f_back
        running = _running_ops(frames)
    if not running:
        return
    place = running[-1].location.primary
    loops = [op.location.primary for op in running if scf.Loop.matches(op)]
    where = f", in the loop at line {loops[-1].line}" if loops else ""
    tell(f"{place.file}:{place.line}: {name} was interrupted here{where}")


def _running_ops(frames: Sequence[FrameType]) -> list[Operation]:
    """The ops that are run in `frames`, outermost first."""
    views = [
        frame.f_locals.get("view")
        for frame in frames
        if frame.f_code is Evaluator.run_block.__code__
    ]
    return [view.op for view in views if isinstance(view, OpView)]


def progress_reporter(
    record: LaunchRecord | None, name: str, total: int
) -> Callable[[int], None] | None:
    """Return a callback that passes the number of finished programs to the hooks.

    Return None if the launch is not recorded or no hook wants progress.
    """
    if record is None or not HOOKS.wants_progress():
        return None
    started_ns = last_ns = time.perf_counter_ns()

    def report(done: int) -> None:
        nonlocal last_ns
        now_ns = time.perf_counter_ns()
        # The end of a short launch says enough.
        is_last = done == total and last_ns != started_ns
        if now_ns - last_ns < _PROGRESS_EVERY_NS and not is_last:
            return
        last_ns = now_ns
        HOOKS.progress(LaunchProgress(record.id, name, done, total, now_ns - started_ns))

    return report


# Live bytes of a batch up to which torch works on one thread: a dot of 128 x 128 x 128 fits.
_SMALL_BYTES = 1 << 20


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
    compiled: CompiledFacts | None = None,
) -> list[Fault]:
    """Run a module's kernel for every program of `grid`.

    Args:
        module: Tile IR or GPU IR, as it stands after any pass; not changed since it was first run.
        values: one per block argument: tensors for pointers, numbers for scalars, a tensor
            descriptor followed by its shape and strides.
        grid: programs along x, y, z.
        record: the launch being recorded, if any.
        kernel_name: the kernel's name in faults.
        is_reported: whether faults are handed to the hooks, and the kernel's prints are printed.
        arguments: the kernel's arguments by name, constants too; for hints.
        observers: observers of the launch, beside the checks.
        log: the log for its faults; None for a new log.
        compiled: facts about the kernel as a GPU would run it; None without them.

    Returns:
        The faults.
    """
    name = kernel_name or module.name
    launch_id = record.id if record is not None else 0
    faults = log or FaultLog(name, launch_id, grid, is_reported, arguments)
    with apart_from_the_script(device_of(values)):
        launch = Batches(
            module,
            values,
            grid,
            faults,
            progress_reporter(record, name, math.prod(grid)),
            [*observers_in_force(module, faults), *observers],
            compiled,
        )
        with _tuned_for(launch.batch_bytes):
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
        looking = [*observers_of((), module, faults), observer]
        launch = Batches(module, values, grid, faults, None, looking)
        with _tuned_for(launch.batch_bytes):
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
    compiled: CompiledFacts | None = None,
) -> None:
    """Run some programs of a launch for the findings of checks; nothing is reported.

    Args:
        module: as for `run_module`; its programs do not wait for each other.
        values: as for `run_module`.
        grid: programs along x, y, z.
        programs: the numbers of the programs.
        log: takes the faults; the caller publishes them.
        checks: the checks that are made, beside those that always are.
        observers: further observers.
        compiled: as for `run_module`.
    """
    looking = [*observers_of(checks, module, log), *observers]
    with apart_from_the_script(device_of(values)):
        launch = Batches(module, values, grid, log, None, looking, compiled)
        with _tuned_for(launch.batch_bytes):
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
    """Faults of a launch without programs: outputs that it leaves unwritten, if asked for."""
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


@contextmanager
def _tuned_for(batch_bytes: int) -> Iterator[None]:
    """Run small batches on one thread of torch, and keep freed memory for larger ones.

    Waking the other threads and waiting for all of them saves nothing there, and takes milliseconds
    if the machine has other work.
    """
    threads, is_small = torch.get_num_threads(), batch_bytes <= _SMALL_BYTES
    if not is_small:
        keep_freed_memory()
    if threads == 1 or not is_small:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
