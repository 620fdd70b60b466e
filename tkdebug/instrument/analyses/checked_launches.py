"""How many native launches of a run were checked, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tkdebug.findings.launch_counts import AccessTests, LaunchCounts, total_counts

if TYPE_CHECKING:
    from tkdebug.instrument.session import Session


def checked_text(session: Session) -> str:
    """As `3 of them checked; 9 accesses: 9 proven`; "" where no native launch was to be checked."""
    counts = total_counts(recorded.event for recorded in session.records(LaunchCounts))
    if counts is None:
        return ""
    captured = counts.captured
    besides = f"; {captured:,} became part of CUDA graphs and were not" if captured else ""
    tests = sum((one.event for one in session.records(AccessTests)), AccessTests()).text
    of = f"; {tests}" if tests else ""
    return f"{counts.checked:,} of them checked{besides}{of}"
