"""`tkdebug debug`: a script under the debugger, asked on stdin or by a list of commands."""

from __future__ import annotations

import argparse
import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug.cli.command import USAGE_STATUS, Command, ScriptRule
from tkdebug.cli.options import ARCHITECTURES, add_triton
from tkdebug.errors import UsageError
from tkdebug.process.named_files import UnfitFileError, open_regular, read_bounded
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.cli.script.execution import Program
    from tkdebug.debugger.console.shell import Console
    from tkdebug.debugger.recorded_values import RecordedValues

RC_FILE = "~/.tkdebugrc"
_MAX_COMMANDS_BYTES = 1 << 20


class DebugCommand(Command):
    """Debugs a script, at a console or in the TUI."""

    help = "stop in kernels, look at every program, go backwards"
    usage = "tkdebug debug [options] (script.py | -m module | --code code | -) [arguments]"
    description = (
        "Run a script under a debugger: pdb at the script's own lines, and the same commands at "
        "the lines of its kernels, which are interpreted. `help` lists them."
    )
    epilog = (
        "Before anything else come the commands in ~/.tkdebugrc, then those of -x, then those of "
        "-c; where one fails, the rest are not run. Everything after the script (or after -m "
        "module, --code code, - for stdin) belongs to the script."
    )
    script = ScriptRule(
        "a script.py, -m module, --code code, or - for stdin, to debug", code_option="--code"
    )

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the debugger's first commands, and the script."""
        parser.add_argument(
            "-c",
            "--command",
            dest="commands",
            action="append",
            default=[],
            metavar="COMMAND",
            help="a command to run first, such as 'b 42'; may be repeated",
        )
        parser.add_argument(
            "-x",
            "--commands",
            dest="commands_file",
            type=Path,
            metavar="FILE",
            help="run the commands in that file first",
        )
        parser.add_argument(
            "--no-rc", action="store_true", help=f"do not run the commands in {RC_FILE}"
        )
        parser.add_argument(
            "--json",
            action="store_true",
            help="stops and answers as JSON objects, one a line; stops in kernels only",
        )
        parser.add_argument(
            "--stage",
            metavar="STAGE",
            help="run kernels in this IR: tile-ir (the default: before any pass), tile-ir:PASS, "
            "gpu-ir:PASS, or gpu-ir (after all passes)",
        )
        parser.add_argument(
            "--target",
            dest="native_target",
            metavar="ARCH",
            help=f"the architecture that GPU IR is for ({ARCHITECTURES}); by default that of the "
            "GPU here, without one sm_90a",
        )
        add_triton(parser)
        parser.add_argument(
            "--against",
            type=Path,
            metavar="RUN.tkd",
            help="compare with the values that a run recorded with --watch, such as a native one",
        )
        parser.add_argument(
            "--tui",
            action=argparse.BooleanOptionalAction,
            help="in the Debug pane of the TUI, which stops in kernels only; by default at a "
            "console",
        )
        parser.add_argument("-m", metavar="module", help="debug a module, as python -m runs one")
        parser.add_argument("--code", metavar="code", help="debug that code, as python -c runs it")

    def check(self, parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
        """Refuse options that the Debug pane does not have."""
        if options.json and options.tui:
            parser.error("--json: the TUI answers on the screen; leave --tui out")
        if options.native_target is not None and options.tui:
            parser.error("--target: the Debug pane's GPU IR is for the usual one; leave --tui out")

    def run(self, options: argparse.Namespace) -> int:
        """Debug the script; the result is the exit status."""
        # Torch, the interpreter and the debugger: nothing that help needs.
        from tkdebug.cli.command_line import check_variables
        from tkdebug.cli.runs.request import program_of
        from tkdebug.runtime.device.torch_package import check_installed, import_torch

        program = program_of(options.script, is_debugged=True)
        check_variables()
        check_installed()
        commands = _commands(options)
        if options.tui and options.against is not None:
            raise UsageError(
                "--against: the Debug pane does not compare with a run; leave out --tui"
            )
        if options.tui:
            return _debug_in_tui(options, commands)
        import_torch()
        return _debug(options, program, commands)


COMMAND = DebugCommand()


def _debug(options: argparse.Namespace, program: Program, commands: list[str]) -> int:
    """Debug the script at a console; the result is the exit status."""
    from tkdebug import compat
    from tkdebug.cli.runs.checks import check_known
    from tkdebug.cli.script.execution import loaded, quotable
    from tkdebug.debugger.engine import Debugger
    from tkdebug.debugger.interruption import interrupts
    from tkdebug.fault_printing.processes import printing_faults
    from tkdebug.records.hook_chain import HOOKS

    if options.native_target is not None:
        check_known("--target", options.native_target)
    _check_asked(program, commands)
    program = loaded(program)
    console = _console(program, commands, is_json=options.json)
    recorded = None if options.against is None else _recorded(options.against)
    debugger = Debugger(console, target=options.native_target, recorded=recorded)
    console.attach(debugger)
    if options.stage is not None:
        debugger.choose_stage(options.stage)
    with (
        compat.install(mode="interpret", triton=options.triton_version),
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


def _debug_in_tui(options: argparse.Namespace, commands: list[str]) -> int:
    """Run the script in the TUI, whose Debug pane is asked before the script runs."""
    from tkdebug.cli.command_line import parse
    from tkdebug.cli.runs.checks import check_run
    from tkdebug.cli.runs.live import run_in_tui
    from tkdebug.cli.runs.request import run_request

    if options.stage is not None:
        commands = [f"stage {options.stage}", *commands]
    words = ["--tui", "--mode=interpret", "--wait-for-pane"]
    if options.triton_version is not None:
        words.append(f"--triton={options.triton_version}")
    _, asked = parse(["run", *words, *options.script.words])
    request = run_request(asked)
    with request.in_force():
        check_run(request)
        return run_in_tui(request, commands)


def _run(program: Program, console: Console) -> int:
    from tkdebug.cli.script.execution import run_debugged_program, run_program

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


def _console(program: Program, commands: list[str], is_json: bool) -> Console:
    from tkdebug.debugger.console.terminal import terminal_console

    console = terminal_console(program.file, is_json, commands)
    is_asked = sys.stdin is not None and not program.is_stdin
    if not is_asked or (commands and not sys.stdin.isatty()):
        console.read_line = None  # once the commands have run out the script goes on
    return console


def _check_asked(program: Program, commands: list[str]) -> None:
    """Check that the debugger has commands, or a stdin to ask for them.

    Raises:
        UsageError: it has neither.
    """
    if commands or (sys.stdin is not None and not program.is_stdin):
        return
    stdin = "is closed" if sys.stdin is None else "is the script"
    raise UsageError(
        f"debug: stdin {stdin}, so nobody can be asked; give commands by -c, or by -x FILE"
    )


def _commands(options: argparse.Namespace) -> list[str]:
    """Return the commands to run first: of the user's own file, of `-x` and of `-c`."""
    commands = [] if options.no_rc else _own_commands()
    if options.commands_file is not None:
        shown = f"-x {options.commands_file}"
        with _reading(shown), open_regular(options.commands_file) as file:
            commands += _lines_of(read_bounded(file, _MAX_COMMANDS_BYTES))
    return [*commands, *options.commands]


def _own_commands() -> list[str]:
    """The commands of the user's own file; none if somebody else may have written it."""
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
    """Return why a file of commands is not trusted, or "" if it is."""
    if not hasattr(os, "geteuid"):  # Windows
        return ""
    if status.st_uid != os.geteuid():
        return "belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "may be written by others (chmod go-w takes that away)"
    return ""


@contextlib.contextmanager
def _reading(shown: str) -> Iterator[None]:
    """Turn an error of reading a file of commands into a UsageError of one line."""
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
    """Send the script's output to stderr, if stdout is for answers."""
    with contextlib.redirect_stdout(sys.stderr) if is_json else contextlib.nullcontext():
        yield
