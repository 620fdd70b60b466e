"""The script of `tkdebug run` in this process, recorded: where to, and with what around it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug.cli.command_line.arguments import Arguments
from tkdebug.cli.runs.findings import record_baseline
from tkdebug.cli.runs.kernel_checks import mode_of
from tkdebug.cli.runs.native_target import cross_compiling
from tkdebug.cli.runs.next_step import note_error
from tkdebug.cli.script.execution import Ending, Program, run_program
from tkdebug.cli.script.run_again import run_debugged_program
from tkdebug.hook_chain import HOOKS
from tkdebug.instrument.launch_listeners.nvtx_ranges import nvtx_ranges
from tkdebug.instrument.recorder import SESSION_VARIABLE, Recorder
from tkdebug.instrument.session_file.creation import file_behind
from tkdebug.knobs import KNOBS
from tkdebug.temporary_folders import temporary_folder
from tkdebug.terminal_text import tell
from tkdebug.watches.in_force import WATCHES

if TYPE_CHECKING:
    from tkdebug.compat.gpu_failures.crashes import ArmedCoreDumps


@contextlib.contextmanager
def session_place(session: Path | None, temporary: bool) -> Iterator[tuple[Path, bool]]:
    """Where to record, and whether that is kept: without a name, a temporary file."""
    if session is not None:
        yield file_behind(session), not temporary
        return
    with temporary_folder() as folder:
        yield folder / "run.tkd", False


def run_recorded(
    arguments: Arguments, program: Program, recorder: Recorder, crashes: ArmedCoreDumps
) -> Ending:
    """Run the script with tkdebug's modules in place of Triton's, and record it."""
    from tkdebug import compat
    from tkdebug.compat.around_torch.checked_synchronisations import conclude_checked_launches

    recorder.start()
    os.environ[SESSION_VARIABLE] = str(recorder.path)
    ending = Ending(1)
    try:
        installed = compat.install(
            mode=mode_of(arguments),
            quick=arguments.quick or KNOBS.quick,
            interpret=arguments.interpret or KNOBS.interpret_kernels,
            checks=arguments.checks,
            triton=arguments.triton,
            compiler=arguments.compiler,
        )
        compiling = cross_compiling(arguments.native_target, arguments.advise)
        ranges = nvtx_ranges() if arguments.nvtx else contextlib.nullcontext()
        with installed, compiling, ranges, _origins(arguments, recorder), _outputs():
            record_baseline()
            if arguments.pane_socket is not None:
                ending = _run_beside_pane(arguments, program, arguments.pane_socket)
            else:
                ending = run_program(program)
            note_error(ending)
            conclude_checked_launches()
            WATCHES.conclude()
            crashes.conclude()
    finally:
        os.environ.pop(SESSION_VARIABLE, None)
        recorder.stop(ending.exit_status)
    return ending


def _run_beside_pane(arguments: Arguments, program: Program, descriptor: int) -> Ending:
    """Run it; its kernels stop in the Debug pane of the TUI, which has the terminal."""
    from tkdebug.debugger.remote.front import front_over

    front = front_over(descriptor, program.file)
    HOOKS.break_into = front.break_into
    if arguments.waits_for_pane:
        with front.interrupts():
            ending = run_debugged_program(program, front.begin_at_script)
    else:
        ending = run_program(program)
    front.ended()
    return ending


def _outputs() -> contextlib.AbstractContextManager[None]:
    """Keep what kernels write, where a comparison of compilers wants it."""
    path = os.environ.pop("TKDEBUG_KEEP_OUTPUTS", None)
    if path is None:
        return contextlib.nullcontext()
    # It imports torch, which scripts that are not compared may do without.
    from tkdebug.compat.captured_outputs import kept_outputs

    return kept_outputs(Path(path))


@contextlib.contextmanager
def _origins(arguments: Arguments, recorder: Recorder) -> Iterator[None]:
    """Which line each operation of torch is called from, where that is asked for."""
    if arguments.stalls and not KNOBS.cupti:
        tell("--stalls: needs CUPTI, which the environment switches off")
    if not arguments.stacks:
        yield
        return
    if not KNOBS.recording_process or not KNOBS.cupti:
        tell("--stacks: needs CUPTI and a recording process, which the environment switches off")
    from tkdebug.compat.op_origins import op_origins

    with op_origins(recorder.note_operation):
        yield
