"""What `tkdebug run` says once the script has ended: summary, report, exit status."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path

from tkdebug.cli.command_line.arguments import Arguments
from tkdebug.cli.runs.checks import report_format
from tkdebug.cli.runs.findings import not_looked_for, tell_unmatched, update_baseline
from tkdebug.cli.runs.native_target import tell_compiled
from tkdebug.cli.runs.next_step import tell_next_step
from tkdebug.cli.runs.summary import print_summary
from tkdebug.cli.script.execution import Ending
from tkdebug.cli.statuses import FAULT_STATUS, USAGE_STATUS
from tkdebug.errors import CompileError, TkError
from tkdebug.events import Fault
from tkdebug.fault_printing.processes import PrintedFaults
from tkdebug.instrument.records import FaultGroup
from tkdebug.instrument.report import write_report
from tkdebug.instrument.session import Session
from tkdebug.terminal_text import tell


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a recorded run went.

    Attributes:
        ending: how the script ended.
        path: the session.
        kept: whether it stays.
        stopped: why recording stopped before the script did, None when it did not.
        printed: the faults that were printed when they happened.
    """

    ending: Ending
    path: Path
    kept: bool
    stopped: str | None
    printed: PrintedFaults

    def has_printed(self, fault: Fault) -> bool:
        """Whether stderr has had all that there is to say of `fault`."""
        if fault.kind == "compile-error":
            # The traceback of a script that dies of one has said it all.
            return isinstance(self.ending.error, CompileError)
        return fault in self.printed


def conclude(arguments: Arguments, outcome: Outcome) -> int:
    """Print what was recorded and write the report; the result is the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:  # the process began without
            continue
        with contextlib.suppress(OSError, ValueError):  # the script may have closed it
            stream.flush()
    status = outcome.ending.exit_status
    try:
        with Session.open(outcome.path) as session:
            faults = session.fault_groups()
            tell_unmatched(session, arguments.interpret)
            if arguments.update_baseline and outcome.stopped is None:
                update_baseline(arguments, session, faults)
            elif status == 0 and any(group.fault.fails for group in faults):
                status = FAULT_STATUS
            _tell(arguments, outcome, session, faults)
            if arguments.report is not None:
                format_name = report_format(arguments, arguments.report)
                write_report(session, arguments.report, format_name, kept=outcome.kept)
            if outcome.stopped is None:
                tell_next_step(arguments, session, faults)
        if outcome.stopped is not None:
            raise TkError(
                f"recording stopped before the script did ({outcome.stopped}): what came after "
                "that is not counted here, faults included"
            )
    except TkError as error:
        tell(str(error))
        status = status or USAGE_STATUS
    return status


def _tell(
    arguments: Arguments, outcome: Outcome, session: Session, faults: tuple[FaultGroup, ...]
) -> None:
    """Print the summary, and where to see what was compiled for `--target`."""
    kept_as = arguments.session if outcome.kept else None
    print_summary(
        session,
        faults,
        kept_as=kept_as,
        is_printed=outcome.has_printed,
        missing=not_looked_for(arguments),
    )
    if arguments.native_target is not None and not arguments.temporary:
        tell_compiled(session, arguments.native_target, kept_as)
