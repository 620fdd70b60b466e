"""Races in native launches that are checked for them (`--check race`), and what is not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from tkdebug.compiler.probes.access_logs import RACE, is_logged
from tkdebug.compiler.probes.sites import KINDS
from tkdebug.terminal_text import tell

if TYPE_CHECKING:
    from tkdebug.compiler.probes.sites import ProbeOptions, ProbePlan
    from tkdebug.interpreter.probes.checked_launch import CheckedLaunch
    from tkdebug.interpreter.probes.logged_races import Judged


def has_log(plan: ProbePlan) -> bool:
    """Whether a kernel logs its accesses."""
    return any(map(is_logged, plan.watches))


def races(
    plan: ProbePlan,
    launch: CheckedLaunch,
    counters: Sequence[int],
    records: Callable[[int, int], bytes],
) -> Judged:
    """Judge the races of a launch; what was not looked at is said once of a kernel.

    Args:
        plan: of its kernel.
        launch: the launch.
        counters: of each site of a watch.
        records: gives bytes of the records, from a first one on so many.
    """
    # The interpreter's judgement, which other launches do without.
    from tkdebug.interpreter.probes.logged_races import logged_races

    judged = logged_races(plan, launch, counters, records)
    if judged.unseen is not None:
        _tell_once(_place(plan), launch.kernel, judged.unseen)
    return judged


def further_kinds(plan: ProbePlan, options: ProbeOptions) -> frozenset[str]:
    """Return the kinds beside the usual ones that a build looks for in each of its launches."""
    from tkdebug.compiler.passes.log_accesses import cannot_be_logged

    found = options.kinds.difference(KINDS)
    if RACE in found and not has_log(plan) and cannot_be_logged(plan.module):
        return found - {RACE}
    return found


def tell_of_races(plan: ProbePlan, options: ProbeOptions, kernel: str) -> None:
    """Say of a kernel whose races are asked for that it cannot log its accesses."""
    if RACE in options.kinds - further_kinds(plan, options):
        _tell_once(_place(plan), kernel, "its programs wait for each other by plain loads")


def _place(plan: ProbePlan) -> str:
    place = plan.module.function.location.primary
    return f"{place.file}:{place.line}"


@cache
def _tell_once(place: str, kernel: str, why: str) -> None:
    tell(
        f"{place}: {kernel} is not checked for all races: {why}; use `tkdebug run --mode interpret`"
    )
