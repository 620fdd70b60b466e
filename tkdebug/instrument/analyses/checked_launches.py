"""The number of native launches of a run that were checked, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tkdebug.findings.launch_counts import (
    AccessTests,
    KernelChecks,
    LaunchCounts,
    all_checks,
    total_counts,
)

if TYPE_CHECKING:
    from tkdebug.instrument.session import Session


def checked_text(session: Session) -> str:
    """Return `3 of them checked; 9 accesses: 9 proven`; "" if no launch was to be checked."""
    counts = total_counts(recorded.event for recorded in session.records(LaunchCounts))
    if counts is None:
        return ""
    captured = counts.captured
    besides = f"; {captured:,} became part of CUDA graphs and were not" if captured else ""
    tests = sum((one.event for one in session.records(AccessTests)), AccessTests()).text
    of = f"; {tests}" if tests else ""
    return f"{counts.checked:,} of them checked{besides}{of}"


def kernel_checks(session: Session) -> list[KernelChecks]:
    """Return how many launches of each kernel got the checks that not all need to get."""
    return all_checks(recorded.event for recorded in session.records(KernelChecks))


def differing_checks(session: Session) -> Iterator[str]:
    """Yield a line for each kernel whose checked launches did not all get all checks."""
    return filter(None, (one.text for one in kernel_checks(session)))
