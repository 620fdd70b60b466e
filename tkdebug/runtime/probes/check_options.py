"""What checked kernels are looked at for, as the knobs say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tkdebug.checks import NO_CHECKS
from tkdebug.findings.reporting import checks_in_force, is_checked
from tkdebug.knobs import KNOBS

if TYPE_CHECKING:
    from tkdebug.compiler.probes.sites import ProbeOptions


def check_options(kernel: str) -> ProbeOptions | None:
    """What launches of a kernel of that name are checked for; None where they are not."""
    if KNOBS.check_launches == "none" or not is_checked(kernel):
        return None
    from tkdebug.compiler.probes.access_logs import LOG_BYTES, RACE
    from tkdebug.compiler.probes.sites import KINDS, UNWRITTEN, ProbeOptions
    from tkdebug.compiler.probes.symptoms import HINT

    ignored = set(KNOBS.ignored_kinds)
    if "assumption" in ignored:
        ignored.add(HINT)
    if NO_CHECKS in KNOBS.checks:
        ignored.update({"nan", "inf"}.difference(KNOBS.checks))
    asked = {UNWRITTEN, RACE}.intersection(checks_in_force())
    options = ProbeOptions(frozenset(KINDS).union(asked) - ignored)
    return replace(options, watch_bytes=LOG_BYTES) if RACE in options.kinds else options
