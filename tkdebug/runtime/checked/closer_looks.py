"""Closer looks at checked launches, on the host, and messages about launches that get none.

A closer look takes milliseconds, so each kernel gets a few. Where one is not possible, nothing is a
fault: a stored NaN may be the kernel's input. That there were some is said once.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from tkdebug.checks import CHECKS_ON_COPIES, NO_CHECKS, RACE, THREAD_ORDER
from tkdebug.compiler.analysis.thread_order import MeetingAccesses
from tkdebug.compiler.sites.checks import UNWRITTEN
from tkdebug.compiler.sites.table import SYMPTOMS
from tkdebug.errors import TkError
from tkdebug.findings.reporting import checks_in_force
from tkdebug.knobs import KNOBS
from tkdebug.runtime.checked.held_launch import GoneError
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.compiler.sites.checks import CheckPlan
    from tkdebug.interpreter.closer_looks.reported_launch import ReportedLaunch
    from tkdebug.records.events import Fault
    from tkdebug.runtime.checked.held_launch import PendingLaunch

# Maximum number of looks at one kernel.
MOST_LOOKS = 16
# Maximum number of looks at a kernel that find nothing new, and the time of all looks in a process:
# at launches that showed something, and at launches for the checks that were asked for.
MOST_FRUITLESS = 3
ALL_LOOKS_S = 3.0
ALL_ASKED_S = 10.0
# Maximum number of looks at a build, for how its threads pass values to each other.
MOST_LOOKS_AT_THREADS = 2
_LOOKS_AT_THREADS = "looks at threads"


def may_need_closer_look(plan: CheckPlan) -> bool:
    """Whether a launch may show what only a closer look can judge, or is looked at anyway."""
    shows_some = any(site.kind == SYMPTOMS for site in plan.sites)
    return shows_some or bool(asked_on_copies()) or threads_may_meet(plan)


def asked_on_copies() -> frozenset[str]:
    """Return the checks that were asked for and need interpretation."""
    return CHECKS_ON_COPIES.intersection(checks_in_force())


def wanted_checks(plan: CheckPlan) -> frozenset[str]:
    """Return the checks in force that some checked launches of a kernel may not get."""
    found = CHECKS_ON_COPIES.union((RACE, UNWRITTEN)).intersection(checks_in_force())
    return found | {THREAD_ORDER} if threads_may_meet(plan) else found


def threads_may_meet(plan: CheckPlan) -> bool:
    """Whether threads of a program may pass values to each other by memory, if that is checked."""
    if THREAD_ORDER in KNOBS.ignored_kinds or NO_CHECKS in KNOBS.checks:
        return False
    return bool(MeetingAccesses.of(plan.module).of_one_pointer)


def wants_look_at_threads(plan: CheckPlan) -> bool:
    """Whether to check how a launch's threads pass values to each other; the looks are counted."""
    looks = plan.module.derived.get(_LOOKS_AT_THREADS, 0)
    assert isinstance(looks, int)
    if looks >= MOST_LOOKS_AT_THREADS or not threads_may_meet(plan):
        return False
    plan.module.derived[_LOOKS_AT_THREADS] = looks + 1
    return True


class _Budget:
    """A limit on the number and the time of looks at launches.

    Args:
        most_fruitless: looks at a kernel, for the same, that find nothing.
        all_s: the time of all looks.
    """

    def __init__(self, most_fruitless: int, all_s: float) -> None:
        self._most_fruitless = most_fruitless
        self._left_s = all_s
        self._looks: dict[str, int] = {}
        # By kernel and symptoms: a kernel that stores Infs as it should may make NaNs later.
        self._fruitless: dict[tuple[str, frozenset[str]], int] = {}

    def allows(self, kernel: str, shown: frozenset[str]) -> bool:
        """Whether a launch may be looked at that showed these symptoms."""
        is_new = self._fruitless.get((kernel, shown), 0) < self._most_fruitless
        return is_new and self._looks.get(kernel, 0) < MOST_LOOKS and self._left_s > 0

    def spend(self, kernel: str, shown: frozenset[str], is_fruitless: bool, took_s: float) -> None:
        """Note the time of a look, and whether it found anything."""
        self._looks[kernel] = self._looks.get(kernel, 0) + 1
        key = kernel, shown
        self._fruitless[key] = self._fruitless.get(key, 0) + is_fruitless
        self._left_s -= took_s


class CloserLooks:
    """The closer looks of this process."""

    def __init__(self) -> None:
        self._seen = _Budget(MOST_FRUITLESS, ALL_LOOKS_S)
        self._asked = _Budget(MOST_LOOKS, ALL_ASKED_S)
        self._reported: set[str] = set()
        self._unseen: set[str] = set()

    def faults(
        self, pending: PendingLaunch, table: bytes, launch: ReportedLaunch, faults: list[Fault]
    ) -> tuple[list[Fault], frozenset[str]]:
        """Return the faults of a launch after a possible closer look, and the checks done.

        Args:
            pending: the launch.
            table: the table as the launch left it.
            launch: the launch as its faults name it.
            faults: the faults in its table.
        """
        # The interpreter, which most launches do not need.
        from tkdebug.interpreter.closer_looks.closer_look import needs_closer_look

        found, asked = faults, asked_on_copies()
        looked_at: frozenset[str] = frozenset()
        is_wanted = pending.order_of_threads is not None
        if is_wanted or needs_closer_look(pending.plan, table, faults):
            seen = self._looked(self._seen, pending, table, launch, found)
            if seen is not None:
                found, looked_at = seen, frozenset({THREAD_ORDER} if is_wanted else ())
        if asked:
            seen = self._looked(self._asked, pending, table, launch, found, asked)
            if seen is not None:
                found, looked_at = seen, looked_at | asked
        return found, looked_at

    def _looked(
        self,
        budget: _Budget,
        pending: PendingLaunch,
        table: bytes,
        launch: ReportedLaunch,
        faults: list[Fault],
        asked: frozenset[str] = frozenset(),
    ) -> list[Fault] | None:
        """Return the faults of a launch after a look for one reason, or None without a look."""
        from tkdebug.interpreter.closer_looks.closer_look import TooLongError, look_closer
        from tkdebug.interpreter.closer_looks.reports import symptoms

        kernel, shown = pending.kernel, frozenset(symptoms(pending.plan, table))
        if not budget.allows(kernel, shown):
            if asked:
                many = f"{MOST_LOOKS} of a kernel are, for {ALL_ASKED_S:.0f} s of all kernels"
                self._tell_unseen(pending, asked, many)
            return None
        begin = perf_counter()
        found: list[Fault] | None = None
        try:
            if pending.held is None:
                raise GoneError("they are not known")
            values = pending.held.copies(pending.memory.fetch)
            order = None if asked else pending.order_of_threads
            found = look_closer(pending.plan, table, launch, values, faults, order, asked)
        except (GoneError, TkError) as error:
            if asked:
                why = f"its arguments cannot be looked at again, as {error}"
                self._tell_unseen(pending, asked, why)
            else:
                self._tell_of_values(pending, table, launch, str(error))
            return None
        except TooLongError:
            if asked:
                self._tell_unseen(pending, asked, "that takes too long")
        is_fruitless = found in (None, faults) and pending.order_of_threads is None
        budget.spend(kernel, shown, is_fruitless, perf_counter() - begin)
        return found

    def _tell_unseen(self, pending: PendingLaunch, asked: frozenset[str], why: str) -> None:
        """Report once for a kernel that a launch was not interpreted for the checks asked for."""
        if pending.kernel not in self._unseen:
            self._unseen.add(pending.kernel)
            place = pending.plan.module.function.location.primary
            tell(
                f"{place.file}:{place.line}: not all checked launches of {pending.kernel} are "
                f"checked for {', '.join(sorted(asked))}: {why}; use `tkdebug run --mode interpret`"
            )

    def _tell_of_values(
        self, pending: PendingLaunch, table: bytes, launch: ReportedLaunch, why: str
    ) -> None:
        """Report once for a kernel that it stored NaNs about which no more is known."""
        from tkdebug.interpreter.closer_looks.reports import symptoms

        seen = symptoms(pending.plan, table)
        # Many kernels store Infs as they should, such as masks that they copy.
        told = ("nan", "inf") if "inf" in checks_in_force() else ("nan",)
        kind = next((kind for kind in told if kind in seen), None)
        if kind is None or pending.kernel in self._reported:
            return
        self._reported.add(pending.kernel)
        what = "NaNs" if kind == "nan" else "Infs"
        place = pending.plan.module.function.location.primary
        tell(
            f"{place.file}:{place.line}: {pending.kernel} stored {what}, first in program "
            f"{seen[kind]}; its arguments cannot be looked at again, as {why}, so whether it made "
            "them is not known: use `tkdebug run --mode interpret`"
        )
