"""One checked launch: its table, the bounds of its tensors, and what is kept until it is read."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tkdebug.compiler.probes.table import table_bytes
from tkdebug.compiler.probes.watch_sites import WORD_BYTES, records_words
from tkdebug.events import next_launch_id
from tkdebug.hook_chain import HOOKS
from tkdebug.runtime.probes.checked_launches import CHECKED, PendingTable
from tkdebug.runtime.probes.closer_looks import may_need_closer_look, wants_look_at_threads
from tkdebug.runtime.probes.held_arguments import HeldArguments
from tkdebug.runtime.probes.memory_maps import LaunchMemory, launch_memory
from tkdebug.runtime.probes.native_races import further_kinds

if TYPE_CHECKING:
    from tkdebug.compiler.analysis.thread_order import ThreadOrder
    from tkdebug.compiler.probes.sites import ProbeOptions, ProbePlan
    from tkdebug.interpreter.replay import Parameters
    from tkdebug.runtime.device.platform import ProbeMemory, ProbeRecords, ProbeTable
    from tkdebug.runtime.launch.grid import Grid
    from tkdebug.runtime.launch.native_kernel import NativeKernel
    from tkdebug.runtime.probes.passed_arguments import PassedArguments

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CheckedBuild:
    """What the launches of one checked build have in common.

    Attributes:
        slots_bytes: memory for what a launch reports.
        counters_bytes: memory for counters of watched values, and for readings of clocks.
        record_bytes: memory for records of watched values; 0 where none is watched.
        takes_map: whether the kernel takes the map of memory.
        may_need_look: whether launches are held for a closer look.
        further_kinds: of faults, that it looks for beside the usual ones.
        parameters: whose memory it reads and writes; None where not known, or of no use.
    """

    slots_bytes: int
    counters_bytes: int
    record_bytes: int
    takes_map: bool
    may_need_look: bool
    further_kinds: frozenset[str]
    parameters: Parameters | None

    @staticmethod
    def of(plan: ProbePlan, options: ProbeOptions) -> CheckedBuild:
        """Return that of a plan, worked out when it is first asked for."""
        found = plan.module.derived.get(CheckedBuild)
        if found is None:
            found = plan.module.derived[CheckedBuild] = _build_of(plan, options)
        assert isinstance(found, CheckedBuild)
        return found


def _build_of(plan: ProbePlan, options: ProbeOptions) -> CheckedBuild:
    # The interpreter's word of what a kernel reads and writes.
    from tkdebug.interpreter.replay import Parameters

    words = records_words(plan.watches, plan.watch_bytes) if plan.watches else 0
    may_need_look = may_need_closer_look(plan)
    slots_bytes = table_bytes(len(plan.sites))
    return CheckedBuild(
        slots_bytes,
        plan.table_bytes - slots_bytes,
        WORD_BYTES * words,
        plan.takes_map,
        may_need_look,
        further_kinds(plan, options),
        Parameters.of(plan.module) if may_need_look else None,
    )


class CheckedLaunch:
    """A launch of a checked build, which has been given a table.

    Args:
        kernel: the checked build.
        build: what its launches have in common.
        memory: that the table is of.
        grid: programs along x, y and z.
        stream: handle of the stream.
        arguments: what was passed.
        table: all zero.
        records: for values that are watched; None where none is.
        known: of memory; None where the kernel loads no pointers.
    """

    def __init__(
        self,
        kernel: NativeKernel,
        build: CheckedBuild,
        memory: ProbeMemory,
        grid: Grid,
        stream: int,
        arguments: PassedArguments,
        table: ProbeTable,
        records: ProbeRecords | None,
        known: LaunchMemory | None,
    ) -> None:
        self._kernel = kernel
        self._build = build
        self._memory = memory
        self._grid = grid
        self._stream = stream
        self._arguments = arguments
        self._table = table
        self._records = records
        self._known = known
        self._launch_id = 0
        self._held: HeldArguments | None = None

    @staticmethod
    def prepare(
        kernel: NativeKernel,
        memory: ProbeMemory,
        grid: Grid,
        stream: int,
        arguments: PassedArguments,
    ) -> CheckedLaunch | None:
        """A launch with a table; None where all are taken and it may not wait for one.

        Raises:
            TkError: the device has no memory for tables.
        """
        plan = kernel.binary.probes
        assert plan is not None
        assert kernel.src.probes is not None
        build = CheckedBuild.of(plan, kernel.src.probes)
        records = None
        if build.record_bytes:
            records = _or_wait(lambda: memory.begin_records(build.record_bytes))
            if records is None:
                return None
        known = launch_memory(memory, arguments) if build.takes_map else None
        behind = b"" if known is None else known.packed
        sizes = build.slots_bytes, build.counters_bytes
        table = _or_wait(lambda: memory.begin(sizes[0], stream, behind, sizes[1]))
        if table is None:
            if records is not None:
                memory.end_records(records)
            return None
        return CheckedLaunch(kernel, build, memory, grid, stream, arguments, table, records, known)

    def launch(self, values: tuple[Any, ...], passed: tuple[Any, ...]) -> None:
        """Make the launch, with hooks around it where there are any.

        Args:
            values: a value for each parameter.
            passed: what a bare kernel's `submit` takes.
        """
        if self._build.may_need_look:
            self._held = self._hold(values)
        if HOOKS.launch:
            self._kernel.launch_hooked(self._grid, self._stream, values, passed, self)
        else:
            self.submit_as(next_launch_id())(*self._grid, self._stream, *passed)
        if self._held is not None:
            CHECKED.await_briefly(self._kernel.name)

    def _hold(self, values: tuple[Any, ...]) -> HeldArguments:
        source, parameters = self._kernel.src, self._build.parameters
        stream = self._stream if CHECKED.may_save(self._kernel.name) else None
        names = source.fn.arg_names
        return HeldArguments.of(names, source.specs, values, self._arguments, parameters, stream)

    def submit_as(self, launch_id: int) -> Callable[..., NativeKernel | None]:
        """What makes the launch that hooks know by that id, in the place of `kernel.submit`."""
        self._launch_id = launch_id
        return self._submit

    def _submit(self, x: int, y: int, z: int, stream: int, *passed: Any) -> NativeKernel | None:
        plan = self._kernel.binary.probes
        assert plan is not None
        size_bytes = 0 if self._known is None else len(self._known.packed)
        there = self._table.behind, self._table.behind + size_bytes
        probes = (
            self._table.address,
            self._table.shown,
            *self._arguments.bounds(plan.bounds, there),
        )
        if self._records is not None:
            counters = self._table.address + self._build.slots_bytes
            probes = (*probes, counters, self._records.address)
        try:
            ran: NativeKernel | None = self._kernel.submit(x, y, z, stream, *passed, probes)
            self._memory.end(self._table, stream)
        except BaseException:
            self._memory.drop(self._table)
            if self._records is not None:
                self._memory.end_records(self._records)
            raise
        if ran is not None and ran.binary.probes is not None:
            plan = ran.binary.probes
        pending = PendingTable(
            self._memory,
            self._table,
            plan,
            self._kernel.name,
            self._launch_id,
            self._grid,
            self._arguments,
            copy_context(),
            self._held,
            self._records,
            self._known,
            self._order_of_threads(plan),
            self._build.further_kinds,
        )
        CHECKED.add(pending)
        return ran

    def _order_of_threads(self, plan: ProbePlan) -> Callable[[], ThreadOrder | None] | None:
        """Return what finds out the order of the kernel's threads, where it is looked at for it."""
        if self._held is None or not wants_look_at_threads(plan):
            return None
        from tkdebug.runtime.compile.unlaunched_code import order_of_threads

        return partial(order_of_threads, self._kernel.src, plan.module)


def _or_wait(begin: Callable[[], _T | None]) -> _T | None:
    """What `begin` gives; where all of it is taken, once the oldest launch has ended."""
    found = begin()
    if found is None:
        CHECKED.collect_oldest()
        found = begin()
    return found
