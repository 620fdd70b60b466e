"""`tkdebug debug`: a script under the debugger, asked on stdin or by a list of commands."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug.cli.command_line.arguments import Arguments
from tkdebug.cli.command_line.mistakes import check_variables
from tkdebug.cli.runs.checks import program_of
from tkdebug.cli.runs.native_target import check_known
from tkdebug.cli.script.execution import Program, quotable, run_program
from tkdebug.cli.script.run_again import run_debugged_program
from tkdebug.cli.script.torch_import import import_torch
from tkdebug.cli.statuses import USAGE_STATUS
from tkdebug.errors import UsageError
from tkdebug.fault_printing.processes import printing_faults
from tkdebug.hook_chain import HOOKS
from tkdebug.named_files import UnfitFileError, open_regular, read_bounded
from tkdebug.runtime.device.torch_package import check_installed
from tkdebug.terminal_text import tell

if TYPE_CHECKING:
    from tkdebug.debugger.console.shell import Console
    from tkdebug.debugger.recorded_values import RecordedValues

RC_FILE = "~/.tkdebugrc"
_MAX_COMMANDS_BYTES = 1 << 20


def debug_command(arguments: Arguments) -> int:
    """Debug a script; the result is the exit status.

    Raises:
        TkError: something about the command line is wrong; the script has not run.
    """
    if not arguments.reads_stdin:
        program_of(arguments)
    check_variables()
    check_installed()
    commands = _commands(arguments)
    if arguments.tui and arguments.against is not None:
        raise UsageError("--against: the Debug pane does not compare with a run; leave out --tui")
    if arguments.tui:
        return _debug_in_tui(arguments, commands)
    import_torch()
    from tkdebug import compat
    from tkdebug.debugger.console.interrupts import interrupts
    from tkdebug.debugger.engine import Debugger

    if arguments.native_target is not None:
        check_known("--target", arguments.native_target)
    _check_asked(arguments, commands)
    program = program_of(arguments)
    console = _console(arguments, program, commands)
    recorded = None if arguments.against is None else _recorded(arguments.against)
    debugger = Debugger(console, target=arguments.native_target, recorded=recorded)
    console.attach(debugger)
    if arguments.stage is not None:
        debugger.choose_stage(arguments.stage)
    with (
        compat.install(mode="interpret", triton=arguments.triton),
        printing_faults(),
        interrupts(debugger, console),
        _script_output(console.is_json),
        quotable(program),
    ):
        debugger.attach()
        HOOKS.break_into = lambda: debugger  # after `detach`, too
        try:
            status = _run(program, console)
        finally:
            debugger.detach()
            for line in () if console.is_over else debugger.unmet():
                tell(line)
        status = USAGE_STATUS if console.gave_up else status
        console.script_ended(status)
        return status


def _recorded(path: Path) -> RecordedValues:
    """The watched values of a recorded run."""
    from tkdebug.debugger.recorded_values import RecordedValues
    from tkdebug.instrument.analyses.watched_values import recorded_values
    from tkdebug.instrument.session import Session

    with Session.open(path) as session:
        found = [((row.rank, row.process), row.event) for row in recorded_values(session)]
    if not found:
        raise UsageError(f"{path}: the run recorded no values; `tkdebug run --watch` does")
    return RecordedValues(path.name, found)


def _debug_in_tui(arguments: Arguments, commands: list[str]) -> int:
    """The same as a run in the TUI, whose Debug pane is asked before the script runs."""
    from tkdebug.cli.live import run_in_tui
    from tkdebug.cli.runs.checks import check_run, wants_tui

    if arguments.stage is not None:
        commands = [f"stage {arguments.stage}", *commands]
    asked = replace(arguments, command="run", mode="interpret", waits_for_pane=True)
    wants_tui(asked)
    check_run(asked)
    return run_in_tui(asked, commands)


def _run(program: Program, console: Console) -> int:
    if console.is_json:
        return run_program(program).exit_status if console.begin() else 0
    from tkdebug.debugger.console.host import HostDebugger

    host = HostDebugger(console)
    runs = 0

    def begin() -> None:
        nonlocal runs
        if runs:
            console.debugger.begin_again()
        runs += 1
        host.begin(program.file)

    return run_debugged_program(program, begin).exit_status


def _console(arguments: Arguments, program: Program, commands: list[str]) -> Console:
    from tkdebug.debugger.console.terminal import terminal_console

    console = terminal_console(program.file, arguments.format == "json", commands)
    is_asked = sys.stdin is not None and not arguments.reads_stdin
    if not is_asked or (commands and not sys.stdin.isatty()):
        console.read_line = None  # once the commands have run out the script goes on
    return console


def _check_asked(arguments: Arguments, commands: list[str]) -> None:
    """Look whether anybody can say how to go on.

    Raises:
        UsageError: nobody does.
    """
    if commands or (sys.stdin is not None and not arguments.reads_stdin):
        return
    stdin = "is closed" if sys.stdin is None else "is the script"
    raise UsageError(
        f"debug: stdin {stdin}, so nobody can be asked; give commands by -c, or by -x FILE"
    )


def _commands(arguments: Arguments) -> list[str]:
    """Return the commands to run first: of the user's own file, of `-x` and of `-c`."""
    commands = _own_commands()
    if arguments.commands_file is not None:
        shown = f"-x {arguments.commands_file}"
        with _reading(shown), open_regular(arguments.commands_file) as file:
            commands += _lines_of(read_bounded(file, _MAX_COMMANDS_BYTES))
    return [*commands, *arguments.commands]


def _own_commands() -> list[str]:
    """The commands of the user's own file; never of one that somebody else may have written."""
    path = Path(RC_FILE).expanduser()
    with _reading(RC_FILE):
        try:
            file = open_regular(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except (UnfitFileError, IsADirectoryError):
            tell(f"{RC_FILE}: is no regular file: its commands are not run")
            return []
        with file:
            if problem := _distrust(os.fstat(file.fileno())):
                tell(f"{RC_FILE}: {problem}: its commands are not run")
                return []
            return _lines_of(read_bounded(file, _MAX_COMMANDS_BYTES))


def _distrust(status: os.stat_result) -> str:
    """Why a file of commands is not to be trusted; "" where it is."""
    if not hasattr(os, "geteuid"):  # Windows
        return ""
    if status.st_uid != os.geteuid():
        return "belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "may be written by others (chmod go-w takes that away)"
    return ""


@contextlib.contextmanager
def _reading(shown: str) -> Iterator[None]:
    """Say in one line where a file of commands cannot be read."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{shown}: cannot be read ({reason})") from None


def _lines_of(data: bytes) -> list[str]:
    text = data.decode()
    lines = map(str.strip, text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


@contextlib.contextmanager
def _script_output(is_json: bool) -> Iterator[None]:
    """Where stdout is the answers', what the script prints goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr) if is_json else contextlib.nullcontext():
        yield
