"""`tkdebug run`: the script in this process, recorded; or in the TUI, which starts us again.

Responsible for the checks before the script, its surroundings, and the report after it. Invariant:
every mistake that can be seen before the script runs is reported before it runs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug.cli.arguments import Arguments
from tkdebug.cli.endings import end_by_signal
from tkdebug.cli.findings import (
    check_baseline,
    findings_in_force,
    not_looked_for,
    record_baseline,
    tell_unmatched,
    update_baseline,
)
from tkdebug.cli.mistakes import check_variables
from tkdebug.cli.native_target import check_target_of_run, cross_compiling, tell_compiled
from tkdebug.cli.places import check_writable
from tkdebug.cli.progress import progress_line
from tkdebug.cli.script import (
    Ending,
    Program,
    command_program,
    find_program,
    quotable,
    run_program,
    stdin_program,
)
from tkdebug.cli.statuses import FAULT_STATUS, USAGE_STATUS
from tkdebug.cli.summary import print_summary
from tkdebug.errors import CompileError, TkError, UsageError
from tkdebug.events import Fault
from tkdebug.fault_telling import ToldFaults, telling
from tkdebug.instrument.recorder import SESSION_VARIABLE, Recorder
from tkdebug.instrument.report import format_of, write_report
from tkdebug.instrument.session import Session
from tkdebug.instrument.session_creation import check_free, check_replaceable, file_behind
from tkdebug.knobs import KNOBS, ModeName
from tkdebug.runtime.device.torch_package import check_importable, check_installed
from tkdebug.terminal_text import tell

if TYPE_CHECKING:
    from tkdebug.compat.gpu_crashes import ArmedCoreDumps


def run_command(arguments: Arguments) -> int:
    """Run a script; the result is the exit status.

    Raises:
        TkError: something about the command line is wrong; the script has not run.
    """
    if not _reads_stdin(arguments):
        _program(arguments)
    check_installed()
    if _wants_tui(arguments):
        from tkdebug.cli.live import run_in_tui

        _check(arguments)
        return run_in_tui(arguments)
    from tkdebug.compat.gpu_crashes import armed

    mode = _mode(arguments)
    check_importable()
    # Before the checks, which start CUDA.
    with armed(mode != "interpret", arguments.coredump) as crashes:
        _check(arguments)
        program = _program(arguments)
        with quotable(program), findings_in_force(arguments):
            status, signal = _run_here(arguments, program, crashes)
    if signal is not None:
        end_by_signal(signal)
    return status


def _program(arguments: Arguments) -> Program:
    """What to run; a script on stdin is read.

    Raises:
        NoProgramError: there is nothing that could be.
    """
    if arguments.is_code:
        return command_program(arguments.target, arguments.target_argv)
    if _reads_stdin(arguments):
        return stdin_program(arguments.target_argv)
    return find_program(arguments.target, arguments.target_argv, arguments.is_module)


def _reads_stdin(arguments: Arguments) -> bool:
    return arguments.target == "-" and not (arguments.is_module or arguments.is_code)


def _run_here(
    arguments: Arguments, program: Program, crashes: ArmedCoreDumps
) -> tuple[int, int | None]:
    """Run the script in this process; exit status, and the signal that ended it."""
    owner = os.getpid()
    # The progress line receives a fault first: it makes room for the report of it.
    place = session_place(arguments.session, arguments.temporary)
    with place as (path, kept), progress_line(), telling() as told:
        recorder = Recorder(path, script=program.name, argv=arguments.target_argv)
        ending = _run_recorded(arguments, program, recorder, crashes)
        if os.getpid() != owner:
            # A child that the script forked has come to its end here.
            return ending.exit_status, None
        return _conclude(arguments, ending, path, kept, recorder.error, told), ending.signal


@contextlib.contextmanager
def session_place(session: Path | None, temporary: bool) -> Iterator[tuple[Path, bool]]:
    """Where to record, and whether that is kept: without a name, a temporary file."""
    if session is not None:
        yield file_behind(session), not temporary
        return
    owner = os.getpid()
    folder = tempfile.mkdtemp(prefix="tkdebug-")
    try:
        yield Path(folder) / "run.tkd", False
    finally:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)


def _mode(arguments: Arguments) -> ModeName:
    """How kernels run; what is to be checked has to be interpreted."""
    mode = arguments.mode or KNOBS.mode
    return "interpret" if arguments.checks and mode == "auto" else mode


def _check(arguments: Arguments) -> None:
    check_variables()
    mode = _mode(arguments)
    if mode == "native" and arguments.checks:
        raise UsageError(f"--check {arguments.checks[0]}: native kernels are not checked")
    if mode == "native":
        from tkdebug.runtime.cuda.device import obstacle

        reason = obstacle()
        if reason is not None:
            raise UsageError(f"--mode native: {reason}")
    check_target_of_run(arguments, mode)
    is_file = not (arguments.is_module or arguments.is_code or _reads_stdin(arguments))
    script = Path(arguments.target) if is_file else None
    if arguments.session is not None:
        session = file_behind(arguments.session)
        check_replaceable(session)
        check_free(session)
        check_writable("-o", session)
    read = {"the script": script, "the session": arguments.session}
    check_baseline(arguments, {**read, "the report": arguments.report})
    if arguments.report is not None:
        check_writable("--report", arguments.report, read)
        _ = _report_format(arguments, arguments.report)


def _wants_tui(arguments: Arguments) -> bool:
    from tkdebug.cli import terminal

    if _reads_stdin(arguments):
        if arguments.tui:
            raise UsageError("--tui: stdin holds the script; write it into a file")
        return False
    if arguments.tui is None:
        return terminal.opens_tui_by_default()
    if arguments.tui and not terminal.has_textual():
        raise UsageError("--tui: the TUI needs the package textual; pip install textual")
    if arguments.tui and os.name != "posix":
        raise UsageError("--tui: running a script in the TUI needs a POSIX system; use --no-tui")
    if arguments.tui and not terminal.has_terminal():
        raise UsageError("--tui: stdin, stdout and stderr are not a terminal; use --no-tui")
    return arguments.tui


def _run_recorded(
    arguments: Arguments, program: Program, recorder: Recorder, crashes: ArmedCoreDumps
) -> Ending:
    from tkdebug import compat

    recorder.start()
    os.environ[SESSION_VARIABLE] = str(recorder.path)
    ending = Ending(1)
    try:
        installed = compat.install(
            mode=_mode(arguments),
            quick=arguments.quick or KNOBS.quick,
            interpret=arguments.interpret or KNOBS.interpret_kernels,
            checks=arguments.checks or KNOBS.checks,
        )
        with installed, cross_compiling(arguments.native_target):
            record_baseline()
            ending = run_program(program)
            crashes.conclude()
    finally:
        os.environ.pop(SESSION_VARIABLE, None)
        recorder.stop(ending.exit_status)
    return ending


def _conclude(
    arguments: Arguments,
    ending: Ending,
    path: Path,
    kept: bool,
    stopped: str | None,
    told: ToldFaults,
) -> int:
    """Tell what was recorded and write the report; the result is the exit status.

    Args:
        arguments: of the command line.
        ending: how the script ended.
        path: the session.
        kept: whether it stays.
        stopped: why recording stopped before the script did, None when it did not.
        told: the faults that were told when they happened.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the script may have closed it
            stream.flush()
    status = ending.exit_status
    try:
        with Session.open(path) as session:
            faults = session.fault_groups()
            tell_unmatched(session, arguments.interpret)
            if arguments.update_baseline and stopped is None:
                update_baseline(arguments, session, faults)
            elif status == 0 and any(group.fault.fails for group in faults):
                status = FAULT_STATUS
            print_summary(
                session,
                faults,
                kept_as=arguments.session if kept else None,
                told=lambda fault: _is_told(fault, ending, told),
                missing=not_looked_for(arguments),
            )
            if arguments.native_target is not None and not arguments.temporary:
                kept_as = arguments.session if kept else None
                tell_compiled(session, arguments.native_target, kept_as)
            if arguments.report is not None:
                format_name = _report_format(arguments, arguments.report)
                write_report(session, arguments.report, format_name, kept=kept)
        if stopped is not None:
            raise TkError(
                f"recording stopped before the script did ({stopped}): what came after that is "
                "not counted here, faults included"
            )
    except TkError as error:
        tell(str(error))
        status = status or USAGE_STATUS
    return status


def _is_told(fault: Fault, ending: Ending, told: ToldFaults) -> bool:
    """Whether stderr has had all that there is to say of `fault`."""
    if fault.kind == "compile-error":
        # The traceback of a script that dies of one has said it all.
        return isinstance(ending.error, CompileError)
    return fault in told


def _report_format(arguments: Arguments, path: Path) -> str:
    """The format of a report: as asked, or by its file's name.

    Raises:
        UsageError: the name says none.
    """
    return arguments.report_format or format_of(path, "--report-format")
