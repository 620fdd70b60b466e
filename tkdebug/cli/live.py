"""`tkdebug run` in the TUI: the script runs in a child process, itself `tkdebug run`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tkdebug.cli.command_line.arguments import Arguments
from tkdebug.cli.runs.findings import not_looked_for
from tkdebug.cli.runs.summary import print_last_words, print_summary
from tkdebug.cli.statuses import FAULT_STATUS, INTERRUPTED_STATUS
from tkdebug.errors import TkError
from tkdebug.events import Fault
from tkdebug.instrument.session import Session
from tkdebug.instrument.session_file.creation import file_behind
from tkdebug.terminal_text import tell


def run_in_tui(arguments: Arguments, commands: Sequence[str] = ()) -> int:
    """Open the TUI over a child process; the result is the child's exit status.

    Args:
        arguments: of `run`.
        commands: what the script's debugger is to do first.
    """
    from tkdebug.tui.debug.pane import DebugPane
    from tkdebug.tui.launches.pane import LaunchesPane
    from tkdebug.tui.live import DebugEnds, run_live

    owns_session = arguments.session is None
    if arguments.session is not None:
        path = file_behind(arguments.session)
    else:
        path = Path(tempfile.mkdtemp(prefix="tkdebug-")) / "run.tkd"
    # The TUI waits for the file: what an older run left there is not this run.
    path.unlink(missing_ok=True)
    ended = False
    try:
        # Ours to delete, since the summary is read from it first.
        ends = DebugEnds.made()
        asked = replace(arguments, pane_socket=ends.theirs.fileno())
        command = child_command(asked, path, temporary=owns_session)
        opens = DebugPane.TAB if arguments.waits_for_pane else LaunchesPane.TAB
        status = run_live(
            command, path, owns_session=False, debugged=ends, commands=commands, opens=opens
        )
        ended = _print_outcome(path, owns_session, status, not_looked_for(arguments))
    finally:
        if owns_session and (ended or not path.exists()):
            shutil.rmtree(path.parent, ignore_errors=True)
    return status


def child_command(arguments: Arguments, session: Path, temporary: bool = False) -> list[str]:
    """The command line of the child process."""
    command = [sys.executable, "-m", "tkdebug", "run", "--no-tui", "-o", str(session)]
    if temporary:
        command.append("--temporary")
    if arguments.pane_socket is not None:
        command.append(f"--pane-socket={arguments.pane_socket}")
    if arguments.waits_for_pane:
        command.append("--wait-for-pane")
    if arguments.mode is not None:
        command += ["--mode", arguments.mode]
    if arguments.report is not None:
        command += ["--report", str(arguments.report)]
    if arguments.report_format is not None:
        command += ["--report-format", arguments.report_format]
    for name in ("quick", "advise", "nvtx"):
        if getattr(arguments, name):
            command.append(f"--{name}")
    if arguments.check_launches is not None:
        command.append(f"--check-launches={arguments.check_launches}")
    for name in arguments.instrumentations:
        command.append(f"--instrument={name}")
    for timeline in arguments.timelines:
        command.append(f"--timeline={timeline}")
    if arguments.print_elements is not None:
        command.append(f"--print-elements={arguments.print_elements}")
    for watch in arguments.watches:
        command.append(f"--watch={watch}")
    if arguments.triton is not None:
        command += ["--triton", arguments.triton]
    if arguments.hang_timeout_s is not None:
        command.append(f"--hang-timeout={arguments.hang_timeout_s:g}")
    if arguments.stacks:
        command.append("--stacks")
    if arguments.stalls:
        command.append("--stalls")
    if arguments.coredump:
        command.append("--coredump")
    if arguments.native_target is not None:
        command += ["--target", arguments.native_target]
    for kind in arguments.checks:
        command.append(f"--check={kind}")
    for pattern in arguments.only:
        command.append(f"--only={pattern}")
    for kind in arguments.ignored:
        command.append(f"--ignore={kind}")
    if arguments.baseline is not None:
        command += ["--baseline", str(arguments.baseline)]
    if arguments.update_baseline:
        command.append("--update-baseline")
    for pattern in arguments.interpret:
        command.append(f"--interpret={pattern}")
    command += ["-m"] if arguments.is_module else ["-c"] if arguments.is_code else ["--"]
    return [*command, arguments.target, *arguments.target_argv]


def _print_outcome(path: Path, owns_session: bool, status: int, missing: tuple[str, ...]) -> bool:
    """Print the run's outcome where the TUI was; the result is whether it has ended."""
    if not path.exists():
        return False
    try:
        with Session.open(path) as session:
            ended = session.run().end_ns is not None
            if ended and status not in (0, FAULT_STATUS, INTERRUPTED_STATUS):
                print_last_words(session)
            kept_as = None if owns_session and ended else path
            faults = session.fault_groups()
            print_summary(session, faults, kept_as=kept_as, is_printed=_printed, missing=missing)
    except TkError as error:
        tell(str(error))
        return False
    return ended


def _printed(fault: Fault) -> bool:
    """Whether this terminal still shows the fault: what the TUI showed went with it."""
    return False
