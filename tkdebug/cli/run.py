"""`tkdebug run`: the script in this process, recorded; or in the TUI, which starts us again.

Responsible for the order of the steps: checks (`runs.checks`), the recorded script
(`runs.recording`), the report at its end (`runs.outcome`). Invariant: every mistake that can be
seen before the script runs is reported before it runs.
"""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING

from tkdebug.cli.command_line.arguments import Arguments
from tkdebug.cli.runs.checks import check_run, program_of, wants_tui
from tkdebug.cli.runs.findings import findings_in_force
from tkdebug.cli.runs.kernel_checks import mode_of
from tkdebug.cli.runs.outcome import Outcome, conclude
from tkdebug.cli.runs.progress import progress_line
from tkdebug.cli.runs.recording import run_recorded, session_place
from tkdebug.cli.runs.stuck import StuckRun
from tkdebug.cli.script.endings import end_by_signal
from tkdebug.cli.script.execution import Ending, Program, quotable
from tkdebug.cli.script.torch_import import import_torch
from tkdebug.fault_printing.processes import printing_faults
from tkdebug.instrument.recorder import Recorder
from tkdebug.runtime.device.torch_package import check_installed
from tkdebug.terminal_text import tell

if TYPE_CHECKING:
    from tkdebug.compat.gpu_failures.crashes import ArmedCoreDumps


def run_command(arguments: Arguments) -> int:
    """Run a script; the result is the exit status.

    Raises:
        TkError: something about the command line is wrong; the script has not run.
    """
    if not arguments.reads_stdin:
        program_of(arguments)
    check_installed()
    if wants_tui(arguments):
        from tkdebug.cli.live import run_in_tui

        check_run(arguments)
        return run_in_tui(arguments)
    from tkdebug.compat.gpu_failures.crashes import armed

    mode = mode_of(arguments)
    import_torch()
    # Before the checks, which start CUDA.
    with armed(mode != "interpret", arguments.coredump, arguments.hang_timeout_s) as crashes:
        check_run(arguments)
        program = program_of(arguments)
        with quotable(program), findings_in_force(arguments):
            status, signal = _run_here(arguments, program, crashes)
    if signal is not None:
        end_by_signal(signal)
    return status


def _run_here(
    arguments: Arguments, program: Program, crashes: ArmedCoreDumps
) -> tuple[int, int | None]:
    """Run the script in this process; exit status, and the signal that ended it."""
    owner = os.getpid()
    # The progress line receives a fault first: it makes room for the report of it.
    place = session_place(arguments.session, arguments.temporary)
    with place as (path, kept), progress_line(), printing_faults() as printed:
        recorder = Recorder(
            path,
            script=program.name,
            argv=arguments.target_argv,
            stacks=arguments.stacks,
            stalls=arguments.stalls,
        )

        def conclude_stuck(ending: Ending) -> int:
            status = conclude(arguments, Outcome(ending, path, kept, recorder.error, printed))
            if arguments.session is None:
                # The `with` statement that would do so never ends.
                shutil.rmtree(path.parent, ignore_errors=True)
            return status

        crashes.watch_hangs_of(StuckRun(recorder, conclude_stuck))
        ending = run_recorded(arguments, program, recorder, crashes)
        if os.getpid() != owner:
            # A child that the script forked has come to its end here.
            return ending.exit_status, None
        if ending.signal is not None:
            tell(f"the script was ended by {signal.Signals(ending.signal).name}")
        outcome = Outcome(ending, path, kept, recorder.error, printed)
        return conclude(arguments, outcome), ending.signal
