"""The end of `tkdebug run`, once the script has ended: summary, report, baseline, exit status.

The summary goes to stderr: each fault with its counts, then one line for the run. A fault that was
reported when it happened has one line here; others are reported in full.
"""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tkdebug import checks
from tkdebug.cli.command import FAULT_STATUS, USAGE_STATUS
from tkdebug.cli.runs.next_step import tell_next_step
from tkdebug.cli.runs.request import RunRequest
from tkdebug.cli.script.execution import Ending
from tkdebug.errors import CompileError, TkError
from tkdebug.fault_printing.processes import PrintedFaults
from tkdebug.fault_printing.text import counted, counted_line, names_of
from tkdebug.findings.baseline import KnownFault, pieces
from tkdebug.findings.reporting import unmatched_lines
from tkdebug.instrument.analyses.checked_launches import checked_text, differing_checks
from tkdebug.instrument.analyses.compiled_models import uncompiled_count
from tkdebug.instrument.analyses.known_faults import (
    baseline_outcome,
    count_states,
    identities,
    remarks,
)
from tkdebug.instrument.analyses.watched_values import instrumented_text, watched_lines
from tkdebug.instrument.records import FaultGroup, Output
from tkdebug.instrument.renderers.fault_section import fault_lines
from tkdebug.instrument.report import write_report
from tkdebug.instrument.session import Session
from tkdebug.knobs import KNOBS
from tkdebug.process.named_files import write_whole
from tkdebug.records.events import Fault
from tkdebug.terminal.display import view_of
from tkdebug.terminal.text import tell, visible, visible_line

MAX_SHOWN_FAULTS = 50
# Values that are shown for each watched variable.
MAX_SHOWN_VALUES = 8
# Kernels that are named since not all of their launches got all checks.
MAX_SHOWN_KERNELS = 8
MAX_LAST_LINES = 30


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a recorded script, and of its recording.

    Attributes:
        ending: how the script ended.
        path: the session.
        kept: whether the session stays.
        stopped: why recording stopped before the script did, None if it did not.
        printed: the faults that were printed when they happened.
    """

    ending: Ending
    path: Path
    kept: bool
    stopped: str | None
    printed: PrintedFaults

    def has_printed(self, fault: Fault) -> bool:
        """Whether everything about `fault` has been printed on stderr."""
        if fault.kind == "compile-error":
            # The traceback of a script that dies of one has said it all.
            return isinstance(self.ending.error, CompileError)
        return fault in self.printed


def conclude(request: RunRequest, outcome: Outcome) -> int:
    """Print the recorded faults and write the report; the result is the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:  # the process began without
            continue
        with contextlib.suppress(OSError, ValueError):  # the script may have closed it
            stream.flush()
    status = outcome.ending.exit_status
    try:
        with Session.open(outcome.path) as session:
            faults = session.fault_groups()
            _tell_unmatched(request, session)
            if request.checks.updates_baseline and outcome.stopped is None:
                _update_baseline(request, session, faults)
            elif status == 0 and any(group.fault.fails for group in faults):
                status = FAULT_STATUS
            kept_as = request.session if outcome.kept else None
            print_summary(session, faults, kept_as, outcome.has_printed, not_looked_for(request))
            if request.native_target is not None and not request.is_temporary:
                _tell_compiled(session, request.native_target, kept_as)
            if request.report is not None:
                report = request.report
                write_report(session, report.path, report.format, kept=outcome.kept)
            if outcome.stopped is None:
                tell_next_step(request, session, faults)
        if outcome.stopped is not None:
            raise TkError(
                f"recording stopped before the script did ({outcome.stopped}): what came after "
                "that is not counted here, faults included"
            )
    except TkError as error:
        tell(str(error))
        status = status or USAGE_STATUS
    return status


def not_looked_for(request: RunRequest) -> tuple[str, ...]:
    """Return the existing checks that this run did without."""
    from tkdebug.runtime.device.modes import with_defaults

    looked_for = with_defaults(KNOBS.checks, request.mode)
    return checks.not_looked_for(looked_for, KNOBS.ignored_kinds)


def _tell_unmatched(request: RunRequest, session: Session) -> None:
    """Report patterns that match the name of no launched kernel, as when mistyped."""
    names = [summary.kernel for summary in session.kernel_summaries()]
    asked = {
        "--interpret": KNOBS.interpret_kernels if "interpret_kernels" in request.given else (),
        "--only": KNOBS.only_kernels,
        "--timeline": tuple(text.partition("@")[0] for text in KNOBS.timelines),
    }
    for option, patterns in asked.items():
        for line in unmatched_lines(option, patterns, names):
            tell(line)


def _update_baseline(request: RunRequest, session: Session, faults: tuple[FaultGroup, ...]) -> None:
    """Write the baseline again: this run's faults, and known ones that it could not show.

    Raises:
        TkError: the baseline cannot be written.
    """
    path = request.checks.baseline_path
    assert path is not None
    outcome = baseline_outcome(session, faults)
    counting = tuple(group for group in faults if group.fault.state != "ignored")
    seen: set[KnownFault] = set(identities(session, counting, path.parent).values())
    known = seen | (set() if outcome is None else outcome.left)
    try:
        write_whole(path, pieces(known))
    except OSError as error:
        raise TkError(f"{path}: baseline cannot be written ({error.strerror})") from error
    tell(f"{request.checks.baseline}: {counted(len(known), 'known fault')} written")


def _tell_compiled(session: Session, asked: str, kept_as: Path | None) -> None:
    """Say where the code compiled for an architecture can be seen.

    Args:
        session: the run.
        asked: the architecture.
        kept_as: the session file, None if it is a temporary one.
    """
    from tkdebug.compiler.targets.registered_backends import backend_of, target_of

    target = target_of(asked)
    text = next(stage.name for stage in reversed(backend_of(target).stages) if not stage.is_image)
    kernels = [kernel for kernel in session.kernels() if text in kernel.stages]
    if not kernels:
        return
    where = (
        "-o FILE keeps them for `tkdebug lines` and `tkdebug passes`"
        if kept_as is None
        else f"`tkdebug lines {kept_as}` and `tkdebug passes {kept_as}` show them"
    )
    compiled = counted(len(kernels), "compiled kernel")
    tell(f"{compiled} for {target}: {where}")


def print_last_words(session: Session) -> None:
    """Print the end of a script's stderr: its traceback, which left with the TUI."""
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
        kept_as: the session file to name, None if it is a temporary one.
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
    """Return the text of the number of faults, and of those that do not count."""
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
