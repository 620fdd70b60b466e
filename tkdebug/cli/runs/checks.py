"""What `tkdebug run` is asked for, and what is wrong with it, before the script runs."""

from __future__ import annotations

import os
from pathlib import Path

from tkdebug.checks import NATIVE_CHECKS, NO_CHECKS
from tkdebug.cli.command_line.arguments import Arguments
from tkdebug.cli.command_line.mistakes import check_variables
from tkdebug.cli.places import check_writable
from tkdebug.cli.runs.findings import check_baseline, checked_launches
from tkdebug.cli.runs.kernel_checks import is_upstream, mode_of
from tkdebug.cli.runs.native_target import check_target_of_run
from tkdebug.cli.runs.upstream import check_asked, check_upstream
from tkdebug.cli.script.execution import Program, command_program, find_program, stdin_program
from tkdebug.errors import UsageError
from tkdebug.instrument.launch_listeners.nvtx_ranges import check_nvtx
from tkdebug.instrument.report import format_of
from tkdebug.instrument.session_file.creation import check_free, check_replaceable, file_behind
from tkdebug.knobs import KNOBS
from tkdebug.knobs.values import ModeName

# No code but the script's has it: Python's `<string>` is also that of what dataclasses generate.
_DEBUGGED_CODE = "<code>"


def program_of(arguments: Arguments) -> Program:
    """What to run; a script on stdin is read.

    Raises:
        NoProgramError: there is nothing that could be.
    """
    if arguments.is_code and (arguments.command == "debug" or arguments.waits_for_pane):
        return command_program(arguments.target, arguments.target_argv, _DEBUGGED_CODE)
    if arguments.is_code:
        return command_program(arguments.target, arguments.target_argv)
    if arguments.reads_stdin:
        return stdin_program(arguments.target_argv)
    return find_program(arguments.target, arguments.target_argv, arguments.is_module)


def wants_tui(arguments: Arguments) -> bool:
    """Whether the run is to be shown in the TUI.

    Raises:
        UsageError: it is, and cannot be.
    """
    from tkdebug.cli import terminal

    if arguments.reads_stdin:
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


def check_run(arguments: Arguments) -> None:
    """Report every mistake that can be seen before the script runs.

    Raises:
        UsageError: there is one.
    """
    check_variables()
    mode = mode_of(arguments)
    if is_upstream(arguments):
        check_upstream(arguments, mode)
    else:
        _check_mode(arguments, mode)
        check_asked(arguments)
    check_target_of_run(arguments, mode)
    _check_watches(arguments)
    _check_timelines(arguments, mode)
    _check_instrumentations()
    if arguments.nvtx:
        check_nvtx()
    if arguments.session is not None:
        session = file_behind(arguments.session)
        check_replaceable(session)
        check_free(session)
        check_writable("-o", session)
    _check_files(arguments)


def _check_watches(arguments: Arguments) -> None:
    from tkdebug.watches.places import read_watch

    for text in arguments.watches or KNOBS.watches:
        try:
            read_watch(text)
        except UsageError as error:
            option = "--watch" if arguments.watches else "TKDEBUG_WATCH"
            raise UsageError(f"{option} {text}: {error}") from None


def _check_timelines(arguments: Arguments, mode: ModeName) -> None:
    from tkdebug.timelines.requests import read_request

    requests = arguments.timelines or KNOBS.timelines
    if requests and not _runs_natively(mode):
        option = "--timeline" if arguments.timelines else "TKDEBUG_TIMELINE"
        raise UsageError(f"{option}: kernels are interpreted; it needs kernels on a GPU")
    for text in requests:
        read_request(text)


def _check_instrumentations() -> None:
    """Those of the variable; the option takes no others."""
    if not KNOBS.instrumentations:
        return
    from tkdebug.plugins import names

    known = tuple(names("tkdebug.instrumentation"))
    for name in KNOBS.instrumentations:
        if name not in known:
            expected = " or ".join(known) or "a plugin that measures, of which none is installed"
            raise UsageError(f"TKDEBUG_INSTRUMENT: got {name!r}, expected {expected}")


def _runs_natively(mode: ModeName) -> bool:
    from tkdebug.runtime.device.platform import platform_in_force

    return mode == "native" or (mode == "auto" and platform_in_force().obstacle() is None)


def _check_mode(arguments: Arguments, mode: ModeName) -> None:
    if mode == "interpret" and arguments.check_launches is not None:
        raise UsageError(
            f"--check-launches {arguments.check_launches}: kernels are interpreted, which checks "
            "every launch; leave it out, or run with --mode native"
        )
    for option, is_asked in (("--stacks", arguments.stacks), ("--stalls", arguments.stalls)):
        dumps = _core_dumps_by(arguments) if is_asked and mode != "interpret" else None
        if dumps is not None:
            raise UsageError(
                f"{option}: needs CUPTI, which cannot record beside the core dumps that {dumps} "
                "switches on; leave one of them out"
            )
    for option, is_asked in (
        ("--stalls", arguments.stalls),
        ("--hang-timeout", arguments.hang_timeout_s is not None),
    ):
        if is_asked and not _runs_natively(mode):
            raise UsageError(f"{option}: kernels are interpreted; it needs kernels on a GPU")
    if mode != "native":
        _check_gpu(arguments)
        return
    asked = [name for name in arguments.checks if name != NO_CHECKS]
    for name in asked:
        # Of all checks, the first native kernel names those that it is not looked at for.
        if name not in NATIVE_CHECKS and not arguments.checks_all:
            raise UsageError(
                f"--check {name}: native kernels are not checked for it; run with --mode interpret"
            )
    if asked and checked_launches(arguments) == "none":
        raise UsageError(
            f"--check {asked[0]}: no native launch is checked; add --check-launches first, or run "
            "with --mode interpret"
        )
    from tkdebug.runtime.device.platform import platform_in_force

    reason = platform_in_force().obstacle()
    if reason is not None:
        raise UsageError(f"--mode native: {reason}")


def _check_gpu(arguments: Arguments) -> None:
    """What is about all kernels on a GPU, torch's too, needs one, though ours be interpreted."""
    from tkdebug.runtime.device.platform import platform_in_force

    for option, is_asked in (("--stacks", arguments.stacks), ("--coredump", arguments.coredump)):
        if is_asked and platform_in_force().obstacle() is not None:
            raise UsageError(f"{option}: nothing runs on a GPU here; leave it out")


def _core_dumps_by(arguments: Arguments) -> str | None:
    """What switches core dumps on; None where nothing does."""
    from tkdebug.runtime.device.platform import platform_in_force

    if arguments.hang_timeout_s is not None:
        return "--hang-timeout"
    if arguments.coredump:
        return "--coredump"
    dumps = platform_in_force().crash_dumps
    return None if dumps is None else dumps.asked_for_by()


def _check_files(arguments: Arguments) -> None:
    read = {"the script": arguments.target_file, "the session": arguments.session}
    check_baseline(arguments, {**read, "the report": arguments.report})
    if arguments.report is not None:
        check_writable("--report", arguments.report, read)
        _ = report_format(arguments, arguments.report)


def report_format(arguments: Arguments, path: Path) -> str:
    """The format of a report: as asked, or by its file's name.

    Raises:
        UsageError: the name says none.
    """
    return arguments.report_format or format_of(path, "--report-format")
