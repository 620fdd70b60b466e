"""The script of `tkdebug run` in this process, recorded, to every end that a run has.

Invariant: if the main thread waits in the driver for a kernel that never ends, the process ends all
the same, and nothing waits for the GPU: nothing wakes that thread, so another one stores the
session, prints what `tkdebug run` prints at its end, and ends the process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tkdebug.cli.command import INTERRUPTED_STATUS
from tkdebug.cli.runs.next_step import note_error
from tkdebug.cli.runs.outcome import Outcome, conclude, not_looked_for
from tkdebug.cli.runs.progress import progress_line
from tkdebug.cli.runs.request import RunRequest
from tkdebug.cli.script.execution import Ending, Program, run_debugged_program, run_program
from tkdebug.fault_printing.processes import printing_faults
from tkdebug.findings.baseline import load
from tkdebug.findings.launch_counts import RunChecks
from tkdebug.findings.reporting import used_baseline
from tkdebug.instrument.launch_listeners.nvtx_ranges import nvtx_ranges
from tkdebug.instrument.recorder import SESSION_VARIABLE, Recorder
from tkdebug.instrument.session_file.creation import file_behind
from tkdebug.knobs import KNOBS
from tkdebug.process.temporary_folders import temporary_folder
from tkdebug.process.tracebacks import show_interrupt
from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.device.platform import platform_in_force
from tkdebug.terminal.text import tell
from tkdebug.watches.in_force import WATCHES

if TYPE_CHECKING:
    from tkdebug.compat.gpu_failures.crashes import ArmedCoreDumps


def run_here(
    request: RunRequest, program: Program, crashes: ArmedCoreDumps
) -> tuple[int, int | None]:
    """Run the script in this process.

    Args:
        request: the request, which is in force.
        program: the request's program, loaded.
        crashes: the watch for crashes and hangs on the GPU.

    Returns:
        The exit status, and the signal that ended the script; None if none did.
    """
    owner = os.getpid()
    # The progress line receives a fault first: it makes room for the report of it.
    place = _session_place(request)
    with place as (path, kept), progress_line(), printing_faults() as printed:
        recorder = Recorder(
            path,
            script=program.name,
            argv=program.arguments,
            stacks=request.stacks,
            stalls=request.stalls,
            expects_gpu=KNOBS.mode != "interpret" and platform_in_force().is_likely(),
        )

        def conclude_stuck(ending: Ending) -> int:
            status = conclude(request, Outcome(ending, path, kept, recorder.error, printed))
            if request.session is None:
                # The `with` statement that would do so never ends.
                shutil.rmtree(path.parent, ignore_errors=True)
            return status

        crashes.watch_hangs_of(StuckRun(recorder, conclude_stuck))
        ending = _run_recorded(request, program, recorder, crashes)
        if os.getpid() != owner:
            # A child that the script forked has come to its end here.
            return ending.exit_status, None
        if ending.signal is not None:
            tell(f"the script was ended by {signal.Signals(ending.signal).name}")
        outcome = Outcome(ending, path, kept, recorder.error, printed)
        return conclude(request, outcome), ending.signal


@contextlib.contextmanager
def _session_place(request: RunRequest) -> Iterator[tuple[Path, bool]]:
    """Yield where to record, and whether that is kept: without a name, a temporary file."""
    if request.session is not None:
        yield file_behind(request.session), not request.is_temporary
        return
    with temporary_folder() as folder:
        yield folder / "run.tkd", False


class StuckRun:
    """Ends the run from a thread beside it.

    Args:
        recorder: the recorder of the run.
        conclude: prints the outcome for how the script ended; the result is the exit status.
    """

    def __init__(self, recorder: Recorder, conclude: Callable[[Ending], int]) -> None:
        self._recorder = recorder
        self._conclude = conclude
        self._main = threading.main_thread()

    def take_ended(self, limit_s: float) -> None:
        """Set the ends of launches, as far as the GPU shows them without waiting."""
        self._recorder.take_ended(limit_s)

    def end_stuck(self) -> NoReturn:
        """Store the session, print the outcome, and end the process as Ctrl-C would."""
        status = INTERRUPTED_STATUS
        try:
            frame = sys._current_frames().get(self._main.ident or 0)  # noqa: SLF001
            if frame is not None:
                show_interrupt(frame)
            self._recorder.stop(status, is_gpu_stuck=True)
            status = self._conclude(Ending(status, KeyboardInterrupt()))
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
        except Exception:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)


def _run_recorded(
    request: RunRequest, program: Program, recorder: Recorder, crashes: ArmedCoreDumps
) -> Ending:
    """Run the script with tkdebug's modules in place of Triton's, and record it."""
    from tkdebug import compat
    from tkdebug.compat.around_torch.checked_synchronisations import conclude_checked_launches

    recorder.start()
    os.environ[SESSION_VARIABLE] = str(recorder.path)
    ending = Ending(1)
    try:
        with (
            compat.install(KNOBS.mode),
            _cross_compiling_children(request),
            nvtx_ranges() if request.nvtx else contextlib.nullcontext(),
            _origins(request, recorder),
            _outputs(),
        ):
            if KNOBS.baseline is not None:
                HOOKS.record(used_baseline(KNOBS.baseline, load(KNOBS.baseline)))
            HOOKS.record(RunChecks(not_looked_for(request)))
            if request.pane_socket is not None:
                ending = _run_beside_pane(program, request.pane_socket, request.waits_for_pane)
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


def _run_beside_pane(program: Program, descriptor: int, waits: bool) -> Ending:
    """Run a program whose kernels stop in the Debug pane of the TUI, which has the terminal."""
    from tkdebug.debugger.remote.front import front_over

    front = front_over(descriptor, program.file)
    HOOKS.break_into = front.break_into
    if waits:
        with front.interrupts():
            ending = run_debugged_program(program, front.begin_at_script)
    else:
        ending = run_program(program)
    front.ended()
    return ending


@contextlib.contextmanager
def _cross_compiling_children(request: RunRequest) -> Iterator[None]:
    """Have child processes compile for the request's architecture, too, and look for advice."""
    if request.native_target is None:
        yield
        return
    from tkdebug.compat.replacements import Environment

    advises = {"TKDEBUG_ADVISE": "1"} if KNOBS.advise else {}
    environment = Environment({"TKDEBUG_CROSS_COMPILE": request.native_target, **advises})
    try:
        yield
    finally:
        environment.restore()


def _outputs() -> contextlib.AbstractContextManager[None]:
    """Return a context that keeps what kernels write, if a comparison of compilers asks for it."""
    path = os.environ.pop("TKDEBUG_KEEP_OUTPUTS", None)
    if path is None:
        return contextlib.nullcontext()
    # It imports torch, which scripts that are not compared may do without.
    from tkdebug.compat.captured_outputs import kept_outputs

    return kept_outputs(Path(path))


@contextlib.contextmanager
def _origins(request: RunRequest, recorder: Recorder) -> Iterator[None]:
    """Record the line that calls each operation of torch, if that is asked for."""
    if request.stalls and not KNOBS.cupti:
        tell("--stalls: needs CUPTI, which the environment switches off")
    if not request.stacks:
        yield
        return
    if not KNOBS.recording_process or not KNOBS.cupti:
        tell("--stacks: needs CUPTI and a recording process, which the environment switches off")
    from tkdebug.compat.op_origins import op_origins

    with op_origins(recorder.note_operation):
        yield
