"""The session that a command looks at: a recorded one, or one recorded for it from a script.

The script runs quick (nothing is measured), and what it prints goes to stderr: stdout is the
command's. Without a GPU its kernels are interpreted and also compiled for an architecture.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tkdebug.cli.command_line.arguments import Arguments
from tkdebug.cli.command_line.mistakes import check_variables
from tkdebug.cli.places import check_stdout, check_writable
from tkdebug.cli.runs.checks import program_of
from tkdebug.cli.runs.kernel_checks import is_upstream, mode_of
from tkdebug.cli.runs.native_target import check_known
from tkdebug.cli.runs.progress import progress_line
from tkdebug.cli.runs.upstream import check_upstream
from tkdebug.cli.script.execution import SQLITE_MAGIC, Program, quotable, run_program
from tkdebug.cli.script.torch_import import import_torch
from tkdebug.cli.statuses import INTERRUPTED_STATUS, ScriptEndedError
from tkdebug.compat.process_environment import Environment
from tkdebug.errors import UsageError
from tkdebug.fault_printing.text import counted
from tkdebug.instrument.recorder import SESSION_VARIABLE, Recorder
from tkdebug.instrument.session import Session
from tkdebug.knobs import KNOBS
from tkdebug.named_files import open_regular
from tkdebug.temporary_folders import temporary_folder
from tkdebug.terminal_text import tell

USUAL_TARGET = "sm_90a"


@dataclass(frozen=True, slots=True)
class CompiledRun:
    """What to look at.

    Attributes:
        session: the run.
        status: what the command is to end with once it has shown it: that of a script run for it.
        is_recorded: whether it was there before the command.
    """

    session: Session
    status: int = 0
    is_recorded: bool = False


def check_output(arguments: Arguments) -> None:
    """Look whether the answer can be written where `-o` says, before anything is run.

    Raises:
        TkError: it cannot, or that is what is looked at.
    """
    if arguments.output is None:
        check_stdout()
    else:
        check_writable("-o", arguments.output, {"what is looked at": arguments.target_file})


@contextlib.contextmanager
def compiled_run(
    arguments: Arguments, needs_code: bool = False, advises: bool = False
) -> Iterator[CompiledRun]:
    """The session that `arguments.target` names, or that of running it.

    Args:
        arguments: of the command line.
        needs_code: whether there is nothing to show of kernels that are only interpreted.
        advises: whether launches are looked at for advice, for which they are interpreted.

    Raises:
        SessionError: the session cannot be read.
        ScriptEndedError: the script failed before it launched anything.
        UsageError: there is nothing to run, it launched nothing, the target architecture is not
            known, or options of a script are given to a session.
    """
    target_file = arguments.target_file
    if target_file is not None and is_session(target_file):
        refuse_options_of_scripts(arguments, "a recorded run")
        with Session.open(arguments.target) as session:
            yield CompiledRun(session, is_recorded=True)
        return
    program = program_of(arguments)
    check_variables()
    import_torch()
    if is_upstream(arguments) and not advises:
        # It compiles for the GPU that is there, or for a target that the script names.
        check_upstream(arguments, mode_of(arguments))
        target = None
    else:
        target = _native_target(arguments.native_target, needs_code, advises)
    with temporary_folder() as folder:
        path = folder / "run.tkd"
        with _upstream_dumps(arguments), quotable(program):
            status = _record(program, path, target, advises, arguments)
        with Session.open(path) as session:
            _tell_of_faults(session, program.name)
            _tell_of_end(session, program.name, status, target)
            yield CompiledRun(session, status)


def refuse_options_of_scripts(arguments: Arguments, what: str) -> None:
    """Let nothing that only a script could heed be passed over.

    Raises:
        UsageError: there is such an option.
    """
    if arguments.native_target is not None:
        asked = f"--target {arguments.native_target}"
    elif arguments.triton is not None:
        asked = f"--triton {arguments.triton}"
    elif arguments.target_argv:
        asked = " ".join(arguments.target_argv)
    else:
        return
    raise UsageError(f"{asked}: {arguments.target} is {what}; this is for scripts only")


def _tell_of_end(session: Session, script: str, status: int, target: str | None) -> None:
    """Say what a script that failed or was interrupted leaves out."""
    kernels = session.kernels()
    how = "was interrupted" if status == INTERRUPTED_STATUS else f"ended with status {status}"
    if not kernels and status:
        raise ScriptEndedError(f"{script}: it {how} before it launched a kernel", status)
    if not kernels:
        raise UsageError(f"{script}: it launched no kernel")
    if not status:
        return
    tell(
        f"{script} {how}: shown is what was compiled until then, not what it would have "
        "launched later"
    )
    compiled = {kernel.name for kernel in kernels if kernel.options.get("arch") == target}
    left = dict.fromkeys(kernel.name for kernel in kernels if kernel.name not in compiled)
    if target is not None and left:
        tell(f"not compiled for {target}: {', '.join(left)}")


def _tell_of_faults(session: Session, script: str) -> None:
    faults = [
        group
        for group in session.fault_groups()
        if group.fault.is_open and group.fault.kind != "compile-error"
    ]
    if faults:
        number = counted(len(faults), "fault")
        tell(f"{number} in this run; `tkdebug run {script}` shows where")


def is_session(path: Path) -> bool:
    """Whether `path` is, or by its name should be, a recorded run."""
    if path.suffix == ".tkd":
        return True
    with contextlib.suppress(OSError, ValueError), open_regular(path) as file:
        return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    return False


def _native_target(asked: str | None, needs_code: bool, advises: bool) -> str | None:
    """What to compile for, too; None for nothing."""
    from tkdebug.runtime.compile.cross_compilation import obstacle
    from tkdebug.runtime.device.platform import platform_in_force

    if asked == "none" and not needs_code:
        return None
    if asked is not None:
        check_known("--target", asked, "" if needs_code else " or none")
    elif not advises and platform_in_force().obstacle() is None:
        return None  # kernels are compiled for the device that is there
    reason = obstacle(asked or USUAL_TARGET)
    if reason is None:
        return asked or USUAL_TARGET
    if asked is not None:
        raise UsageError(f"--target {asked}: {reason}")
    tell(f"Tile IR only: {reason}")
    return None


@contextlib.contextmanager
def _upstream_dumps(arguments: Arguments) -> Iterator[None]:
    """Have an installed Triton dump what `passes` shows, also of kernels that it has on disk."""
    if not is_upstream(arguments) or arguments.command != "passes":
        yield
        return
    names = ("MLIR_ENABLE_DUMP", "TRITON_ALWAYS_COMPILE")
    environment = Environment(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        environment.restore()


def _record(
    program: Program,
    path: Path,
    target: str | None,
    advises: bool,
    arguments: Arguments,
) -> int:
    """Run it; the result is its exit status."""
    from tkdebug import compat
    from tkdebug.checks import NO_CHECKS

    recorder = Recorder(path, script=program.name, argv=program.argv[1:], output=False)
    knobs = KNOBS.scope(cross_compile=target or KNOBS.cross_compile, advise=advises or KNOBS.advise)
    with _stdout_to_stderr(), knobs:
        recorder.start()
        os.environ[SESSION_VARIABLE] = str(recorder.path)
        status = 1
        try:
            mode = "interpret" if target is not None else KNOBS.mode
            installed = compat.install(
                mode=mode,
                quick=True,
                interpret=KNOBS.interpret_kernels,
                checks=KNOBS.checks or (NO_CHECKS,),
                triton=arguments.triton,
                compiler=arguments.compiler,
            )
            with installed, progress_line():
                status = run_program(program).exit_status
        finally:
            os.environ.pop(SESSION_VARIABLE, None)
            recorder.stop(status)
    return status


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """What is written to stdout inside, child processes' included, goes to stderr."""
    if sys.stdout is None:  # closed before the process began: nothing is led elsewhere
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        with contextlib.suppress(OSError, ValueError):  # the script may have closed it
            sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
