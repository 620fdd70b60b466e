"""Checks that were asked for, and that native kernels are not looked at for: said, once each."""

from __future__ import annotations

from functools import cache

from tkdebug.checks import NATIVE_CHECKS, NO_CHECKS
from tkdebug.findings.reporting import checks_in_force
from tkdebug.knobs import KNOBS
from tkdebug.terminal_text import tell


def tell_of_others() -> None:
    """Name the checks in force that the native launches of this process do without."""
    looked_for = () if KNOBS.check_launches == "none" else NATIVE_CHECKS
    others = [name for name in checks_in_force() if name not in (*looked_for, NO_CHECKS)]
    if others:
        _tell_once(", ".join(others))


@cache
def _tell_once(names: str) -> None:
    tell(f"native kernels are not checked for {names}; use `tkdebug run --mode interpret`")
