"""`tkdebug run` in the TUI: the script runs in a child process, itself `tkdebug run`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tkdebug.cli.command import FAULT_STATUS, INTERRUPTED_STATUS
from tkdebug.cli.runs.next_step import tell_next_step
from tkdebug.cli.runs.outcome import not_looked_for, print_last_words, print_summary
from tkdebug.cli.runs.request import RunRequest
from tkdebug.cli.script.execution import command_in_a_process
from tkdebug.errors import TkError
from tkdebug.instrument.session import Session
from tkdebug.instrument.session_file.creation import file_behind
from tkdebug.process.temporary_folders import TemporaryFolder
from tkdebug.records.events import Fault
from tkdebug.terminal.text import tell


def run_in_tui(request: RunRequest, commands: Sequence[str] = ()) -> int:
    """Open the TUI over a child process; the result is the child's exit status.

    Args:
        request: the request, which is in force.
        commands: the first commands of the script's debugger.
    """
    from tkdebug.tui.debug.pane import DebugPane
    from tkdebug.tui.home.pane import HomePane
    from tkdebug.tui.live import DebugEnds, run_live
    from tkdebug.tui.next_run import Again

    if request.session is not None:
        path, folder = file_behind(request.session), None
    else:
        folder = TemporaryFolder()
        path = folder.path / "run.tkd"
    opens = DebugPane.TAB if request.waits_for_pane else HomePane.TAB
    ended, added = False, list[str]()
    again: Again | None = Again()
    try:
        while again is not None:
            # The TUI waits for the file: what an older run left there is not this run.
            path.unlink(missing_ok=True)
            ends = DebugEnds.made()
            words = [f"--pane-socket={ends.theirs.fileno()}"]
            # Ours to delete, since the summary is read from it first.
            words += [] if folder is None else ["--temporary"]
            added += again.options
            command = child_command(request, path, [*added, *words])
            status, again = run_live(
                command,
                path,
                owns_session=False,
                debugged=ends,
                commands=commands,
                opens=again.tab or opens,
                saves=again.saves,
            )
        ended = _print_outcome(path, request, status)
    finally:
        if folder is not None and (ended or not path.exists()):
            folder.remove()
        elif folder is not None:
            folder.keep()  # what is left of the run is named to the user
    return status


def view_or_run(path: Path) -> int:
    """Show a recorded run in the TUI, and its script's next run where the user asks for it.

    Raises:
        SessionError: the session cannot be opened.
    """
    from tkdebug.cli import main
    from tkdebug.tui.live import view

    with Session.open(path) as session:
        run = session.run()
    status, again = view(path)
    if again is None:
        return status
    mode = ["--mode", run.mode] if run.mode in ("interpret", "native") else []
    return main(["run", "--tui", *mode, *again.options, "--", run.script, *run.argv])


def child_command(request: RunRequest, session: Path, words: Sequence[str] = ()) -> list[str]:
    """Return the command line of the child process: the typed words, and the TUI's additions.

    Args:
        request: the request, with the typed words.
        session: the file that it records into.
        words: further options.
    """
    command = command_in_a_process("run", *request.own_words, *words)
    command += ["--no-tui", "-o", str(session)]
    program = request.program
    if program.text is not None:
        code = program.text.decode("utf-8", "surrogateescape")
        return [*command, "-c", code, *program.arguments]
    return [*command, "-m" if program.is_module else "--", program.name, *program.arguments]


def _print_outcome(path: Path, request: RunRequest, status: int) -> bool:
    """Print the run's outcome in place of the TUI; return whether it has ended."""
    if not path.exists():
        return False
    try:
        with Session.open(path) as session:
            ended = session.run().end_ns is not None
            if ended and status not in (0, FAULT_STATUS, INTERRUPTED_STATUS):
                print_last_words(session)
            kept_as = None if request.session is None and ended else path
            faults = session.fault_groups()
            missing = not_looked_for(request)
            print_summary(session, faults, kept_as=kept_as, is_printed=_printed, missing=missing)
            if ended:
                tell_next_step(request, session, faults)
    except TkError as error:
        tell(str(error))
        return False
    return ended


def _printed(fault: Fault) -> bool:
    """Whether this terminal still shows the fault: the TUI's own screen has gone."""
    return False
