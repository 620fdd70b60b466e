"""Which checked launches are looked at again, on the host, and what is said of the others.

A closer look takes milliseconds, so each kernel gets a few. Where one is not possible, nothing is a
fault: a stored NaN may be the kernel's input. That there were some is said once.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from tkdebug.checks import NO_CHECKS, THREAD_ORDER
from tkdebug.compiler.analysis.thread_order import MeetingAccesses
from tkdebug.compiler.probes.symptoms import SYMPTOMS
from tkdebug.errors import TkError
from tkdebug.findings.reporting import checks_in_force
from tkdebug.knobs import KNOBS
from tkdebug.runtime.probes.held_arguments import GoneError
from tkdebug.terminal_text import tell

if TYPE_CHECKING:
    from tkdebug.compiler.probes.sites import ProbePlan
    from tkdebug.events import Fault
    from tkdebug.interpreter.probes.checked_launch import CheckedLaunch
    from tkdebug.runtime.probes.checked_launches import PendingTable

# Of each kernel, and so many that find nothing new; and the time of all in a process.
MOST_LOOKS = 16
MOST_FRUITLESS = 3
ALL_LOOKS_S = 3.0
# Of each build, for how its threads pass values to each other.
MOST_LOOKS_AT_THREADS = 2
_LOOKS_AT_THREADS = "looks at threads"


def may_need_closer_look(plan: ProbePlan) -> bool:
    """Whether a launch may show what only a closer look can judge."""
    return any(site.kind == SYMPTOMS for site in plan.sites) or threads_may_meet(plan)


def threads_may_meet(plan: ProbePlan) -> bool:
    """Whether threads of a program may pass values to each other by memory, if that is checked."""
    if THREAD_ORDER in KNOBS.ignored_kinds or NO_CHECKS in KNOBS.checks:
        return False
    return bool(MeetingAccesses.of(plan.module).of_one_pointer)


def wants_look_at_threads(plan: ProbePlan) -> bool:
    """Whether a launch of a build is looked at for how its threads pass values to each other."""
    looks = plan.module.derived.get(_LOOKS_AT_THREADS, 0)
    assert isinstance(looks, int)
    if looks >= MOST_LOOKS_AT_THREADS or not threads_may_meet(plan):
        return False
    plan.module.derived[_LOOKS_AT_THREADS] = looks + 1
    return True


class CloserLooks:
    """Those of this process."""

    def __init__(self) -> None:
        self._looks: dict[str, int] = {}
        # By the kernel and what it showed: one that stores Infs as it should may make NaNs later.
        self._fruitless: dict[tuple[str, frozenset[str]], int] = {}
        self._left_s = ALL_LOOKS_S
        self._reported: set[str] = set()

    def faults(
        self, pending: PendingTable, table: bytes, launch: CheckedLaunch, faults: list[Fault]
    ) -> list[Fault]:
        """The faults of a launch after a closer look, where one is possible.

        Args:
            pending: the launch.
            table: what it left there.
            launch: what its faults name.
            faults: those in its table.
        """
        # The interpreter, which most launches do not need.
        from tkdebug.interpreter.probes.closer_look import look_closer
        from tkdebug.interpreter.probes.reports import symptoms

        kernel = pending.kernel
        shown = kernel, frozenset(symptoms(pending.plan, table))
        looks, fruitless = self._looks.get(kernel, 0), self._fruitless.get(shown, 0)
        if looks >= MOST_LOOKS or fruitless >= MOST_FRUITLESS or self._left_s <= 0:
            return faults
        begin = perf_counter()
        try:
            if pending.held is None:
                raise GoneError("they are not known")
            values = pending.held.copies(pending.memory.fetch)
        except (GoneError, TkError) as error:
            self._tell_of_values(pending, table, launch, str(error))
            return faults
        found = look_closer(pending.plan, table, launch, values, faults, pending.order_of_threads)
        self._looks[kernel] = looks + 1
        if pending.order_of_threads is None:
            self._fruitless[shown] = fruitless + (found == faults)
        self._left_s -= perf_counter() - begin
        return found

    def _tell_of_values(
        self, pending: PendingTable, table: bytes, launch: CheckedLaunch, why: str
    ) -> None:
        """Say once of a kernel that it stored NaNs of which no more is known."""
        from tkdebug.interpreter.probes.reports import symptoms

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
