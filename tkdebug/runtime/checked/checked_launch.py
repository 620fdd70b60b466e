"""One checked launch: its table, the bounds of its tensors, and its facts until it is read."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tkdebug.compiler.sites.table import table_bytes
from tkdebug.compiler.sites.watches import WORD_BYTES, records_words
from tkdebug.records.events import next_launch_id
from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.checked.checked_launches import CHECKED, further_kinds
from tkdebug.runtime.checked.closer_looks import may_need_closer_look, wants_look_at_threads
from tkdebug.runtime.checked.held_launch import HeldArguments, PendingLaunch
from tkdebug.runtime.checked.passed_arguments import LaunchMemory, launch_memory

if TYPE_CHECKING:
    from tkdebug.compiler.analysis.thread_order import ThreadOrder
    from tkdebug.compiler.sites.checks import CheckOptions, CheckPlan
    from tkdebug.interpreter.replay import Parameters
    from tkdebug.runtime.checked.passed_arguments import PassedArguments
    from tkdebug.runtime.device.platform import CheckMemory, CheckRecords, CheckTable
    from tkdebug.runtime.launch.native_kernel import NativeKernel
    from tkdebug.runtime.launch.requests import Grid

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class LaunchNeeds:
    """The needs that all launches of one checked build have.

    Attributes:
        slots_bytes: memory for a launch's reports.
        counters_bytes: memory for counters of watched values, and for readings of clocks.
        record_bytes: memory for records of watched values; 0 if none is watched.
        takes_map: whether the kernel takes the map of memory.
        may_need_look: whether launches are held for a closer look.
        further_kinds: further kinds of faults that it looks for, beside the usual ones.
        parameters: the parameters whose memory it reads and writes; None if not known, or of no
            use.
    """

    slots_bytes: int
    counters_bytes: int
    record_bytes: int
    takes_map: bool
    may_need_look: bool
    further_kinds: frozenset[str]
    parameters: Parameters | None

    @staticmethod
    def of(plan: CheckPlan, options: CheckOptions) -> LaunchNeeds:
        """Return the needs of a plan, worked out when they are first asked for."""
        found = plan.module.derived.get(LaunchNeeds)
        if found is None:
            found = plan.module.derived[LaunchNeeds] = _build_of(plan, options)
        assert isinstance(found, LaunchNeeds)
        return found


def _build_of(plan: CheckPlan, options: CheckOptions) -> LaunchNeeds:
    # The interpreter's word of what a kernel reads and writes.
    from tkdebug.interpreter.replay import Parameters

    words = records_words(plan.watches, plan.watch_bytes) if plan.watches else 0
    may_need_look = may_need_closer_look(plan)
    slots_bytes = table_bytes(len(plan.sites))
    return LaunchNeeds(
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
        build: the needs that its build's launches share.
        memory: the memory that the table is taken from.
        grid: programs along x, y and z.
        stream: handle of the stream.
        arguments: the passed arguments.
        table: the table, all zero.
        records: memory for watched values; None if none is watched.
        known: the state of memory; None if the kernel loads no pointers.
        is_captured: whether it becomes part of a CUDA graph, so that each replay is a launch.
    """

    def __init__(
        self,
        kernel: NativeKernel,
        build: LaunchNeeds,
        memory: CheckMemory,
        grid: Grid,
        stream: int,
        arguments: PassedArguments,
        table: CheckTable,
        records: CheckRecords | None,
        known: LaunchMemory | None,
        is_captured: bool = False,
    ) -> None:
        self._is_captured = is_captured
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
        memory: CheckMemory,
        grid: Grid,
        stream: int,
        arguments: PassedArguments,
    ) -> CheckedLaunch | None:
        """Return a launch with a table, or None if all are taken and it may not wait for one.

        Raises:
            TkError: the device has no memory for tables.
        """
        plan = kernel.binary.checks
        assert plan is not None
        assert kernel.src.checks is not None
        build = LaunchNeeds.of(plan, kernel.src.checks)
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

    @staticmethod
    def prepare_captured(
        kernel: NativeKernel,
        memory: CheckMemory,
        grid: Grid,
        stream: int,
        arguments: PassedArguments,
    ) -> CheckedLaunch | None:
        """Return a launch for a graph, with a table of its own.

        Returns:
            None if all tables are taken, or the kernel reads or writes more than a table: a map of
            memory, which replays would find old, or records of values.

        Raises:
            TkError: the device has no memory for tables.
        """
        plan = kernel.binary.checks
        assert plan is not None
        assert kernel.src.checks is not None
        build = LaunchNeeds.of(plan, kernel.src.checks)
        if build.record_bytes or build.counters_bytes or build.takes_map:
            return None
        table = memory.begin_captured(build.slots_bytes)
        if table is None:
            return None
        return CheckedLaunch(
            kernel, build, memory, grid, stream, arguments, table, None, None, is_captured=True
        )

    def launch(self, values: tuple[Any, ...], passed: tuple[Any, ...]) -> None:
        """Make the launch, with hooks around it if there are any.

        Args:
            values: a value for each parameter.
            passed: the arguments of a bare kernel's `submit`.
        """
        if self._build.may_need_look and not self._is_captured:
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
        """Return the function that makes the launch of that id, in place of `kernel.submit`."""
        self._launch_id = launch_id
        return self._submit

    def _submit(self, x: int, y: int, z: int, stream: int, *passed: Any) -> NativeKernel | None:
        plan = self._kernel.binary.checks
        assert plan is not None
        size_bytes = 0 if self._known is None else len(self._known.packed)
        there = self._table.behind, self._table.behind + size_bytes
        checks = (
            self._table.address,
            self._table.shown,
            *self._arguments.bounds(plan.bounds, there),
        )
        if self._records is not None:
            counters = self._table.address + self._build.slots_bytes
            checks = (*checks, counters, self._records.address)
        try:
            ran: NativeKernel | None = self._kernel.submit(x, y, z, stream, *passed, checks)
            if not self._is_captured:
                self._memory.end(self._table, stream)
        except BaseException:
            self._memory.drop(self._table)
            if self._records is not None:
                self._memory.end_records(self._records)
            raise
        if ran is not None and ran.binary.checks is not None:
            plan = ran.binary.checks
        pending = PendingLaunch(
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
        if self._is_captured:
            CHECKED.add_captured(pending)
        else:
            CHECKED.add(pending)
        return ran

    def _order_of_threads(self, plan: CheckPlan) -> Callable[[], ThreadOrder | None] | None:
        """Return a function that finds the order of the kernel's threads, or None."""
        if self._held is None or not wants_look_at_threads(plan):
            return None
        from tkdebug.runtime.compile.debugged_stages import order_of_threads

        return partial(order_of_threads, self._kernel.src, plan.module)


def _or_wait(begin: Callable[[], _T | None]) -> _T | None:
    """Return the result of `begin`; if it is None, call it again after the oldest launch."""
    found = begin()
    if found is None:
        CHECKED.collect_oldest()
        found = begin()
    return found
