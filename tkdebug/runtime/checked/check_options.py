"""Options of native compiles, as the knobs say: checks, or timelines of warps."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from tkdebug.checks import NATIVE_CHECKS, NO_CHECKS, RACE
from tkdebug.findings.reporting import checks_in_force, is_checked
from tkdebug.knobs import KNOBS
from tkdebug.terminal.text import tell
from tkdebug.timelines.requests import read_request, requested

if TYPE_CHECKING:
    from tkdebug.compiler.sites.checks import CheckOptions

# Launches of a kernel that have timelines, and neither checks nor watches. The first one finds
# caches cold.
MOST_TIMELINES = 3


def check_options(kernel: str) -> CheckOptions | None:
    """Return what launches of a kernel of that name are checked for; None if they are not."""
    if KNOBS.check_launches == "none" or not is_checked(kernel):
        return None
    from tkdebug.compiler.sites.checks import KINDS, UNWRITTEN, CheckOptions
    from tkdebug.compiler.sites.symptoms import HINT
    from tkdebug.compiler.sites.watches import LOG_BYTES

    ignored = set(KNOBS.ignored_kinds)
    if "assumption" in ignored:
        ignored.add(HINT)
    if NO_CHECKS in KNOBS.checks:
        ignored.update({"nan", "inf"}.difference(KNOBS.checks))
    asked = {UNWRITTEN, RACE}.intersection(checks_in_force())
    options = CheckOptions(frozenset(KINDS).union(asked) - ignored)
    return replace(options, watch_bytes=LOG_BYTES) if RACE in options.kinds else options


def timeline_options(kernel: str) -> CheckOptions | None:
    """Return how a kernel is compiled for timelines; None if none are asked for."""
    request = requested(tuple(map(read_request, KNOBS.timelines)), kernel)
    if request is None:
        return None
    from tkdebug.compiler.sites.checks import CheckOptions
    from tkdebug.compiler.sites.clocks import TimelineOptions

    return CheckOptions(frozenset(), timeline=TimelineOptions(request.programs))


def tell_of_others() -> None:
    """Name the checks in force that the native launches of this process do without."""
    looked_for = () if KNOBS.check_launches == "none" else NATIVE_CHECKS
    others = [name for name in checks_in_force() if name not in (*looked_for, NO_CHECKS)]
    if others:
        _tell_once(", ".join(others))


@cache
def _tell_once(names: str) -> None:
    tell(f"native kernels are not checked for {names}; use `tkdebug run --mode interpret`")
