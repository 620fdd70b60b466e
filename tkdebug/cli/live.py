"""`tkdebug run` in the TUI: the script runs in a child process, itself `tkdebug run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tkdebug.cli.command_line.arguments import Arguments
from tkdebug.cli.runs.findings import not_looked_for
from tkdebug.cli.runs.next_step import tell_next_step
from tkdebug.cli.runs.summary import print_last_words, print_summary
from tkdebug.cli.script.execution import command_in_a_process
from tkdebug.cli.statuses import FAULT_STATUS, INTERRUPTED_STATUS
from tkdebug.errors import TkError
from tkdebug.events import Fault
from tkdebug.instrument.session import Session
from tkdebug.instrument.session_file.creation import file_behind
from tkdebug.temporary_folders import TemporaryFolder
from tkdebug.terminal_text import tell

# The options of `run`, by the field of `Arguments` that each is parsed into.
_FLAGS = {
    "quick": "--quick",
    "advise": "--advise",
    "nvtx": "--nvtx",
    "stacks": "--stacks",
    "stalls": "--stalls",
    "coredump": "--coredump",
    "update_baseline": "--update-baseline",
    "waits_for_pane": "--wait-for-pane",
}
_VALUES = {
    "mode": "--mode",
    "compiler": "--compiler",
    "ask_triton": "--ask-triton",
    "triton": "--triton",
    "report": "--report",
    "report_format": "--report-format",
    "check_launches": "--check-launches",
    "print_elements": "--print-elements",
    "hang_timeout_s": "--hang-timeout",
    "native_target": "--target",
    "baseline": "--baseline",
    "pane_socket": "--pane-socket",
}
_LISTS = {
    "checks": "--check",
    "interpret": "--interpret",
    "only": "--only",
    "ignored": "--ignore",
    "watches": "--watch",
    "instrumentations": "--instrument",
    "timelines": "--timeline",
}


def run_in_tui(arguments: Arguments, commands: Sequence[str] = ()) -> int:
    """Open the TUI over a child process; the result is the child's exit status.

    Args:
        arguments: of `run`.
        commands: what the script's debugger is to do first.
    """
    from tkdebug.tui.debug.pane import DebugPane
    from tkdebug.tui.launches.pane import LaunchesPane
    from tkdebug.tui.live import DebugEnds, run_live

    if arguments.session is not None:
        path, folder = file_behind(arguments.session), None
    else:
        folder = TemporaryFolder()
        path = folder.path / "run.tkd"
    owns_session = folder is not None
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
        ended = _print_outcome(path, arguments, status)
    finally:
        if folder is not None and (ended or not path.exists()):
            folder.remove()
        elif folder is not None:
            folder.keep()  # what is left of the run is named to the user
    return status


def child_command(arguments: Arguments, session: Path, temporary: bool = False) -> list[str]:
    """The command line of the child process."""
    command = command_in_a_process("run", "--no-tui", "-o", str(session))
    command += ["--temporary"] if temporary else []
    command += [option for field, option in _FLAGS.items() if getattr(arguments, field)]
    for field, option in _VALUES.items():
        value = getattr(arguments, field)
        command += [] if value is None else [f"{option}={value}"]
    for field, option in _LISTS.items():
        command += [f"{option}={value}" for value in getattr(arguments, field)]
    command += ["-m"] if arguments.is_module else ["-c"] if arguments.is_code else ["--"]
    return [*command, arguments.target, *arguments.target_argv]


def _print_outcome(path: Path, arguments: Arguments, status: int) -> bool:
    """Print the run's outcome where the TUI was; the result is whether it has ended."""
    if not path.exists():
        return False
    try:
        with Session.open(path) as session:
            ended = session.run().end_ns is not None
            if ended and status not in (0, FAULT_STATUS, INTERRUPTED_STATUS):
                print_last_words(session)
            kept_as = None if arguments.session is None and ended else path
            faults = session.fault_groups()
            missing = not_looked_for(arguments)
            print_summary(session, faults, kept_as=kept_as, is_printed=_printed, missing=missing)
            if ended:
                tell_next_step(arguments, session, faults)
    except TkError as error:
        tell(str(error))
        return False
    return ended


def _printed(fault: Fault) -> bool:
    """Whether this terminal still shows the fault: what the TUI showed went with it."""
    return False
