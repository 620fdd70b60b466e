"""The summary on stderr after a run: each fault with its counts, then one line for the run.

A fault that was reported when it happened has one line here; others are reported in full.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path

from tkdebug.events import Fault
from tkdebug.fault_printing.text import counted, counted_line, names_of
from tkdebug.instrument.analyses.checked_launches import checked_text, differing_checks
from tkdebug.instrument.analyses.instrumented_lines import instrumented_text
from tkdebug.instrument.analyses.known_faults import baseline_outcome, count_states, remarks
from tkdebug.instrument.analyses.uncompiled_graphs import uncompiled_count
from tkdebug.instrument.analyses.watched_values import watched_lines
from tkdebug.instrument.records import FaultGroup, Output
from tkdebug.instrument.renderers.fault_section import fault_lines
from tkdebug.instrument.session import Session
from tkdebug.terminal_style import view_of
from tkdebug.terminal_text import tell, visible, visible_line

MAX_SHOWN_FAULTS = 50
# Of each watched variable.
MAX_SHOWN_VALUES = 8
# Of which not all launches got all checks.
MAX_SHOWN_KERNELS = 8
MAX_LAST_LINES = 30


def print_last_words(session: Session) -> None:
    """Print the end of what a script wrote to stderr: its traceback, which left with the TUI."""
    kept: deque[str] = deque(maxlen=MAX_LAST_LINES)
    unfinished, since = "", 0
    while chunks := session.records(Output, since):
        since = chunks[-1].seq
        text = unfinished + "".join(
            chunk.event.text for chunk in chunks if chunk.event.stream == "stderr"
        )
        *lines, unfinished = text.split("\n")
        kept.extend(lines)
    for line in (*kept, unfinished) if unfinished else kept:
        print(visible(line, styled=True), file=sys.stderr)


def print_summary(
    session: Session,
    faults: tuple[FaultGroup, ...],
    kept_as: Path | None,
    is_printed: Callable[[Fault], bool],
    missing: tuple[str, ...],
) -> None:
    """Print the summary.

    Args:
        session: the run.
        faults: its faults, in groups.
        kept_as: the session file to name, None when it is a temporary one.
        is_printed: whether a fault has been printed in full already.
        missing: the checks that the run did without.
    """
    _print_faults(session, tuple(group for group in faults if group.fault.is_open), is_printed)
    for line in remarks(session, faults):
        tell(line)
    measured = "\n".join(map(visible_line, instrumented_text(session)))
    if measured:
        tell(measured)
    watched = "\n".join(map(visible_line, watched_lines(session, MAX_SHOWN_VALUES)))
    if watched:
        tell(watched)
    differing = [*map(visible_line, differing_checks(session))]
    if len(differing) > MAX_SHOWN_KERNELS:
        left = counted(len(differing) - MAX_SHOWN_KERNELS, "more kernel")
        differing[MAX_SHOWN_KERNELS:] = [f"and of {left}; the report has all"]
    if differing:
        tell("\n".join(differing))
    launches = session.launch_count()
    where = f"; recorded in {kept_as}" if kept_as is not None else ""
    number = ", ".join(filter(None, (_number(session, faults), uncompiled_count(session))))
    if not launches:
        tell(f"no kernels were launched, {number}{where}")
        return
    if missing and _is_interpreted(session):
        where = f"; not looked for: {', '.join(missing)} (--check all){where}"
    kernels = counted(len(session.kernel_summaries()), "kernel")
    checked = checked_text(session)
    checked = checked and f" ({checked})"
    tell(f"{counted(launches, 'launch')} of {kernels}{checked}, {number}{where}")


def _number(session: Session, faults: tuple[FaultGroup, ...]) -> str:
    """How many faults there are, and how many that do not count."""
    states = count_states(faults)
    others = []
    if states["known"]:
        others.append(f"{states['known']:,} in the baseline")
    outcome = baseline_outcome(session, faults)
    if outcome is not None and outcome.fixed:
        others.append(f"{len(outcome.fixed):,} of the baseline fixed")
    if states["ignored"]:
        others.append(f"{states['ignored']:,} ignored")
    return counted(states["open"], "fault") + (f" ({', '.join(others)})" if others else "")


def _print_faults(
    session: Session, faults: tuple[FaultGroup, ...], is_printed: Callable[[Fault], bool]
) -> None:
    view, names = view_of(sys.stderr), names_of(group.fault for group in faults)
    for group in faults[:MAX_SHOWN_FAULTS]:
        fault = group.fault
        if not is_printed(fault):
            tell("\n".join(fault_lines(session, group, view)), styled=True)
        elif fault.kind != "compile-error":
            tell(counted_line(fault, group.count, group.launches, view.style, names), styled=True)
    if len(faults) > MAX_SHOWN_FAULTS:
        left = counted(len(faults) - MAX_SHOWN_FAULTS, "more fault")
        tell(f"and {left}; the report has all")


def _is_interpreted(session: Session) -> bool:
    """Whether the first launch was interpreted."""
    return any(launch.mode == "interpret" for launch in session.launches(limit=1).launches)
