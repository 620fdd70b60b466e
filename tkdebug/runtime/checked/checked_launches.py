"""Findings of checked launches: kept until the device has ended them, then reported as faults.

A launch leaves its table here. It is read at the first occasion: the next checked launch, a
synchronisation by the script, the end of the script. None of these waits for the device, except the
end, and a launch for which no table is free. If a launch fails, or never ends, its reports to the
host until then are reported (`tkdebug.records.running_faults`).

Invariants: launches are reported in the order in which they were made; nothing here holds on to an
argument; a process reads its own launches only, not launches from before it was forked.
"""

from __future__ import annotations

import atexit
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING

from tkdebug.checks import RACE
from tkdebug.compiler.sites.checks import KINDS, UNWRITTEN
from tkdebug.compiler.sites.table import SYMPTOMS, table_bytes
from tkdebug.compiler.sites.watches import is_logged
from tkdebug.errors import TkError
from tkdebug.fault_printing.text import counted
from tkdebug.findings.launch_counts import AccessTests, ChecksTally, LaunchCounts, access_tests
from tkdebug.findings.reporting import report, state_of
from tkdebug.process.forks import renew_after_forks
from tkdebug.records.events import Fault
from tkdebug.records.hook_chain import HOOKS
from tkdebug.records.running_faults import SHOWN, ShownKernel, SiteText
from tkdebug.runtime.checked.closer_looks import CloserLooks, asked_on_copies, wanted_checks
from tkdebug.runtime.checked.held_launch import PendingLaunch
from tkdebug.runtime.watched_values import hand_out
from tkdebug.terminal.text import tell
from tkdebug.watches.in_force import WATCHES

if TYPE_CHECKING:
    from tkdebug.compiler.sites.checks import CheckOptions, CheckPlan
    from tkdebug.compiler.sites.clocks import TimelinePlan
    from tkdebug.interpreter.closer_looks.logged_races import Judged
    from tkdebug.interpreter.closer_looks.reported_launch import ReportedLaunch
    from tkdebug.runtime.device.platform import CheckRecords
    from tkdebug.runtime.instrumentation.measuring import Kernel


# Launches of a kernel that get a moment to end, how long one is, and all of a process are.
MOST_AWAITED = 8
LONGEST_MOMENT_S = 0.002
ALL_MOMENTS_S = 0.1


class CheckedLaunches:
    """The checked launches of this process that were not read yet."""

    def __init__(self) -> None:
        self._is_registered = False
        self.renew_locks()
        renew_after_forks(self)

    def renew_locks(self) -> None:
        """Forget the parent's launches in a forked child."""
        self._pending: deque[PendingLaunch] = deque()
        # Launches in CUDA graphs, each of which may be replayed until the end, and the slots of
        # their tables that were reported.
        self._in_graphs: list[tuple[PendingLaunch, set[int]]] = []
        self._reading = threading.Lock()
        self._counting = threading.Lock()
        self._checked = self._captured = self._lost = 0
        self._recorded = LaunchCounts(0, 0)
        # Builds that were launched: how their accesses are tested is recorded once.
        self._plans: dict[int, CheckPlan] = {}
        self._numbers: dict[int, int] = {}
        self._reported_unfinished: set[int] = set()
        self._tests = AccessTests()
        self._tally = ChecksTally()
        self._looks = CloserLooks()
        self._failures: set[str] = set()
        self._awaited: dict[str, int] = {}
        self._moments_s = ALL_MOMENTS_S

    def add(self, pending: PendingLaunch) -> None:
        """Keep a launch that was just made."""
        with self._counting:
            # Others are made to look at values.
            if pending.plan.sites or _has_log(pending.plan):
                self._checked += 1
                self._tally.launched(pending.kernel, wanted_checks(pending.plan))
            if id(pending.plan) not in self._plans:
                self._plans[id(pending.plan)] = pending.plan
                self._tests += access_tests(pending.plan.tests)
        # Before another thread can read it, and give its table to somebody else.
        self._show(pending)
        self._pending.append(pending)
        self._conclude_at_exit()

    def add_captured(self, pending: PendingLaunch) -> None:
        """Keep a checked launch that became part of a graph."""
        with self._counting:
            self._checked += 1
            if id(pending.plan) not in self._plans:
                self._plans[id(pending.plan)] = pending.plan
                self._tests += access_tests(pending.plan.tests)
        self._show(pending)
        self._in_graphs.append((pending, set()))
        self._conclude_at_exit()

    def collect_replays(self) -> None:
        """Report the findings of those replays of graphs that have ended."""
        for pending, reported in tuple(self._in_graphs):
            try:
                found = pending.memory.read_captured(pending.table)
            except TkError:
                # The crash is reported as such.
                self._in_graphs.clear()
                return
            new = _new_slots(found, reported)
            if new.count(0) != len(new):
                self._report(pending, new, may_look=False, where=", in a replay of a CUDA graph")

    def _settle_replays(self) -> None:
        """Wait for replays of graphs, and report what they found."""
        for memory in {id(one.memory): one.memory for one, _ in self._in_graphs}.values():
            with suppress(TkError):
                memory.wait()
        self.collect_replays()

    def replaced(self, plan: CheckPlan) -> None:
        """Note another build of a kernel, whose tests of accesses are counted already."""
        with self._counting:
            self._plans[id(plan)] = plan

    def _show(self, pending: PendingLaunch) -> None:
        """Let the recording process, if there is one, see the launch's findings while it runs."""
        plan = pending.plan
        if not plan.sites or not SHOWN.is_followed:
            return
        number = self._numbers.get(id(plan), 0)
        if not number:
            with self._counting:
                known = len(self._numbers)
                number = self._numbers.setdefault(id(plan), known + 1)
            if number > known:
                SHOWN.put(ShownKernel(number, pending.kernel, _judged_sites(pending)))
        pending.memory.show(pending.table, pending.launch_id, number, len(plan.sites))

    def add_bare_captured(self) -> None:
        """Count a launch that became part of a graph, and is not checked."""
        with self._counting:
            self._captured += 1
        self._conclude_at_exit()

    def collect(self) -> None:
        """Report the launches that have ended, without waiting for others."""
        self._read(waits=0)

    def collect_oldest(self) -> None:
        """Wait for the oldest launch, and report it and all others that have ended."""
        self._read(waits=1)

    def settle(self) -> None:
        """Wait for all launches, and report them."""
        self._read(waits=len(self._pending))
        self._settle_replays()

    def may_save(self, kernel: str) -> bool:
        """Whether the memory of a launch may be saved, as it is among the first of its kernel."""
        return self._awaited.get(kernel, 0) < MOST_AWAITED

    def await_briefly(self, kernel: str) -> None:
        """Give the first launches of a kernel a moment to end, so that they can be looked at again.

        Arguments are as they were only until the script goes on. All such moments together are
        limited: the script may wait for nothing that depends on it.
        """
        if self._awaited.get(kernel, 0) >= MOST_AWAITED:
            return
        self._awaited[kernel] = self._awaited.get(kernel, 0) + 1
        left_s = moment_s = min(LONGEST_MOMENT_S, self._moments_s)
        while self._pending and left_s > 0:
            begin, count = perf_counter(), len(self._pending)
            self.collect()
            if len(self._pending) == count:
                # To judge what was found takes longer, and is no waiting.
                left_s -= perf_counter() - begin
        self._moments_s -= moment_s - left_s

    def conclude(self) -> None:
        """Wait for all launches, report them, and say how many there were."""
        self.settle()
        counts = LaunchCounts(self._checked, self._captured)
        if counts != self._recorded:
            HOOKS.record(counts.since(self._recorded))
            self._recorded = counts
        tally, self._tally = self._tally, ChecksTally()
        for one in tally.records():
            HOOKS.record(one)
        if self._tests.text:
            HOOKS.record(self._tests)
            self._tests = AccessTests()
        if self._lost:
            lost = counted(self._lost, "checked launch")
            tell(
                f"{lost} could not be read, as the GPU failed: of what went wrong there, only "
                "accesses and assertions are reported that failed before"
            )
            self._lost = 0

    def report_unfinished(self) -> None:
        """Report what launches that do not end have found so far.

        To be called where the process ends with them. It waits for no launch, and for no thread:
        the main one may wait for the device, and be reading.
        """
        for pending in (*self._pending, *(one for one, _ in self._in_graphs)):
            try:
                self._report_seen(pending)
            except Exception as error:
                # Whatever it is, the process has to end.
                said = f"{type(error).__name__}: {error}"
                tell(f"kernel {pending.kernel}: what it found so far cannot be reported: {said}")

    def _report_seen(self, pending: PendingLaunch) -> None:
        """Report what the host has seen of a launch that will never be read."""
        with self._counting:
            if pending.launch_id in self._reported_unfinished:
                return
            self._reported_unfinished.add(pending.launch_id)
        seen = pending.memory.seen(pending.table)[: table_bytes(len(pending.plan.sites))]
        # The faults are reported below: the recording process must not show them as well.
        pending.memory.hide(pending.table)
        if seen.count(0) != len(seen):
            self._report(pending, seen, may_look=False)

    @property
    def counts(self) -> LaunchCounts:
        """Count the launches that were checked, and those that were captured unchecked."""
        return LaunchCounts(self._checked, self._captured)

    def _read(self, waits: int) -> None:
        """Report the launches that have ended, waiting for the `waits` oldest."""
        # A hook that gets a fault may launch; and one thread at a time keeps the order.
        if not self._pending or not self._reading.acquire(blocking=waits > 0 and not self._is_mine):
            return
        self._reader = threading.get_ident()
        try:
            while self._pending and self._read_first(waits > 0):
                waits -= 1
        finally:
            self._reader = 0
            self._reading.release()

    _reader = 0

    @property
    def _is_mine(self) -> bool:
        return self._reader == threading.get_ident()

    def _read_first(self, wait: bool) -> bool:
        """Report the oldest launch, and return whether it had ended."""
        first = self._pending[0]
        try:
            found = first.memory.read(first.table, wait)
        except TkError:
            # The crash is reported as such.
            self._pending.popleft()
            self._lost += 1
            try:
                if first.plan.sites:
                    self._report_seen(first)
            finally:
                # Records may still be written: nobody else gets them.
                first.memory.drop(first.table)
            return True
        if found is None:
            return False
        self._pending.popleft()
        if first.plan.timeline is not None:
            _tell_timelines(first.plan.timeline, found, first.kernel, first.launch_id, first.grid)
            return True
        looked_at = set(first.further_kinds)
        size = table_bytes(len(first.plan.sites))
        reported, counters = found[:size], found[size:]
        if (
            reported != bytes(size)
            or self._is_for_the_host(first)
            or first.order_of_threads is not None
        ):
            looked_at |= self._report(first, reported)
        if first.records is not None and not self._show_values(first, first.records, counters):
            looked_at.discard(RACE)
        self._tally.looked_at(first.kernel, looked_at)
        return True

    @staticmethod
    def _is_for_the_host(pending: PendingLaunch) -> bool:
        """Whether a launch may have faults that only the host can find."""
        return pending.arguments.has_gaps or pending.plan.has_blocks or bool(asked_on_copies())

    def _show_values(self, pending: PendingLaunch, records: CheckRecords, counters: bytes) -> bool:
        """Pass on watched values; return False if part of the launch was not searched for races."""
        from tkdebug.interpreter.watching.records import WatchedLaunch, seen_natively

        counts = struct.unpack(f"={len(pending.plan.watches)}q", counters)
        is_seen = not _has_log(pending.plan) or self._report_races(pending, records, counts)
        launch = WatchedLaunch(pending.kernel, pending.launch_id, pending.grid)
        seen = seen_natively(pending.plan, launch, counts, records.content)
        pending.memory.end_records(records)
        hand_out(seen, launch, lambda: _kernel_of(pending.plan))
        return is_seen

    def _report_races(
        self, pending: PendingLaunch, records: CheckRecords, counts: Sequence[int]
    ) -> bool:
        """Report the races of a launch, and return whether all of it was looked at."""
        failure: str | None = None
        judged: Judged | None = None
        try:
            judged = _races(pending.plan, _launch_of(pending), counts, records.content)
        except Exception as error:
            # No script fails by what its checks do.
            failure = f"{type(error).__name__}: {error}"
        if failure is not None and failure not in self._failures:
            self._failures.add(failure)
            tell(f"kernel {pending.kernel}: to look for races in a launch failed: {failure}")
        for fault in judged.faults if judged is not None else ():
            pending.context.run(report, fault)
        return judged is not None and judged.unseen is None

    def _report(
        self, pending: PendingLaunch, table: bytes, may_look: bool = True, where: str = ""
    ) -> Set[str]:
        """Report what a launch left in its table.

        Args:
            pending: the launch.
            table: the slots of its table.
            may_look: whether it may be run again on the host; only a launch that ended may be.
            where: a text that is added to the messages of faults.

        Returns:
            The checks that it was looked at for on the host.
        """
        # Only launches that went wrong need the texts of faults.
        from tkdebug.interpreter.closer_looks.reports import faults_of, host_faults, merged

        launch = _launch_of(pending)
        faults = faults_of(pending.plan, table, launch)
        looked_at: Set[str] = frozenset()
        failure = None
        try:
            if self._is_for_the_host(pending):
                faults = merged(faults, host_faults(pending.plan, launch))
            if may_look:
                faults, looked_at = self._looks.faults(pending, table, launch, faults)
        except Exception as error:
            # No script fails by what its checks do.
            failure = f"{type(error).__name__}: {error}"
        if failure is not None and failure not in self._failures:
            self._failures.add(failure)
            tell(f"kernel {pending.kernel}: a closer look at a launch failed: {failure}")
        for fault in faults:
            shown = replace(fault, message=fault.message + where) if where else fault
            pending.context.run(report, shown)
        return looked_at

    def _conclude_at_exit(self) -> None:
        if not self._is_registered:
            self._is_registered = True
            # After the recorder's, so that it runs before it.
            atexit.register(self.conclude)


def _new_slots(table: bytes, reported: set[int]) -> bytes:
    """Return a table with zeros in slots reported before; add the others to `reported`."""
    size = table_bytes(1)
    slots = [table[at : at + size] for at in range(0, len(table), size)]
    new = {at for at, slot in enumerate(slots) if slot.count(0) != len(slot)} - reported
    reported |= new
    return b"".join(slot if at in new else bytes(len(slot)) for at, slot in enumerate(slots))


def _judged_sites(pending: PendingLaunch) -> tuple[SiteText, ...]:
    """Return the sites of a launch, with the state of their faults in the run."""
    found = []
    for site, text in zip(pending.plan.sites, pending.plan.site_texts, strict=True):
        # These need the host's closer look, so they are reported only after the launch has ended.
        if site.kind not in (UNWRITTEN, SYMPTOMS):
            fault = Fault(text.kind, pending.kernel, text.frames, "", tensor=text.tensor)
            text = text._replace(state=state_of(fault))
        found.append(text)
    return tuple(found)


def _launch_of(pending: PendingLaunch) -> ReportedLaunch:
    """Return the launch as its faults name it."""
    from tkdebug.interpreter.closer_looks.reported_launch import ReportedLaunch

    passed, known = pending.arguments, pending.known
    launch = ReportedLaunch(
        pending.kernel, pending.launch_id, pending.grid, passed.tensors, passed.numbers
    )
    if known is None:
        return launch
    return replace(launch, known=known.tensors, freed_at=known.freed_at)


def _kernel_of(plan: CheckPlan) -> Kernel:
    """Return the compiled kernel, as plugins look at it."""
    from tkdebug.compiler.dialects import tt
    from tkdebug.runtime.instrumentation.measuring import Kernel

    function = tt.Func(plan.module.function)
    assert function.target is not None
    divisors = function.arg_divisibility
    return Kernel(plan.module, function.target, function.num_warps, divisors)


def _has_log(plan: CheckPlan) -> bool:
    """Whether a kernel logs its accesses."""
    return any(map(is_logged, plan.watches))


def _races(
    plan: CheckPlan,
    launch: ReportedLaunch,
    counters: Sequence[int],
    records: Callable[[int, int], bytes],
) -> Judged:
    """Judge the races of a launch; report once for a kernel which accesses were not looked at.

    Args:
        plan: the plan of its kernel.
        launch: the launch.
        counters: the counters of each site of a watch.
        records: gives bytes of the records, from a first one on so many.
    """
    # The interpreter's judgement, which other launches do without.
    from tkdebug.interpreter.closer_looks.logged_races import logged_races

    judged = logged_races(plan, launch, counters, records)
    if judged.unseen is not None:
        _tell_unseen_races(_place_of(plan), launch.kernel, judged.unseen)
    return judged


def further_kinds(plan: CheckPlan, options: CheckOptions) -> frozenset[str]:
    """Return the kinds beside the usual ones that a build looks for in each of its launches."""
    from tkdebug.compiler.passes.insert_checks import cannot_be_logged

    found = options.kinds.difference(KINDS)
    if RACE in found and not _has_log(plan) and cannot_be_logged(plan.module):
        return found - {RACE}
    return found


def tell_of_races(plan: CheckPlan, options: CheckOptions, kernel: str) -> None:
    """Report that a kernel cannot log its accesses, if races are asked for."""
    if RACE in options.kinds - further_kinds(plan, options):
        _tell_unseen_races(
            _place_of(plan), kernel, "its programs wait for each other by plain loads"
        )


def _place_of(plan: CheckPlan) -> str:
    place = plan.module.function.location.primary
    return f"{place.file}:{place.line}"


@cache
def _tell_unseen_races(place: str, kernel: str, why: str) -> None:
    tell(
        f"{place}: {kernel} is not checked for all races: {why}; use `tkdebug run --mode interpret`"
    )


def _tell_timelines(
    plan: TimelinePlan, data: bytes, kernel: str, launch_id: int, grid: tuple[int, int, int]
) -> None:
    """Report the timelines of a launch to hooks."""
    from tkdebug.compiler.sites.clocks import timelines_of

    for one in timelines_of(plan, data, kernel, launch_id, grid):
        HOOKS.record(one)


CHECKED = CheckedLaunches()
WATCHES.on_settle(CHECKED.settle)
