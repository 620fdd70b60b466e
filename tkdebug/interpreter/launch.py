"""Runs a compiled module over a grid: for its launch, for a debugger, for some programs alone.

Invariant: a launch leaves no reference to its tensors.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from tkdebug.compiler.ir import Module
from tkdebug.interpreter.arguments import Arguments, device_of
from tkdebug.interpreter.batches import Batches, Grid, progress_reporter, tell_interrupted
from tkdebug.interpreter.checks.selection import observers_in_force, observers_of
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.address_registry import ADDRESSES
from tkdebug.interpreter.observers import CompiledFacts, LaunchContext, Observer
from tkdebug.interpreter.plan import Prepared
from tkdebug.interpreter.torch_state import apart_from_the_script, keep_freed_memory
from tkdebug.records.events import Fault, LaunchRecord

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
        kernel_name: how faults name the kernel.
        is_reported: whether faults are handed to the hooks, and what the kernel prints is printed.
        arguments: what the kernel was called with, by name, constants too; for hints.
        observers: who looks on, beside the checks.
        log: where its faults go; None for a new log.
        compiled: what is known of the kernel as a GPU would run it; None for nothing.

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
    """Run some programs of a launch for what checks say of them; nothing is reported.

    Args:
        module: as for `run_module`; its programs do not wait for each other.
        values: as for `run_module`.
        grid: programs along x, y, z.
        programs: their numbers.
        log: takes the faults; the caller publishes them.
        checks: those that look on, beside the ones that always do.
        observers: who else does.
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


@contextmanager
def _tuned_for(batch_bytes: int) -> Iterator[None]:
    """One thread of torch for small batches; for others, memory that stays.

    Waking the other threads and waiting for all of them saves nothing there, and takes milliseconds
    where the machine has other work.
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
