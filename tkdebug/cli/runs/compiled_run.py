"""The session that a command shows: a recorded one, or one recorded for it from a script.

The script runs quick (nothing is measured), and its output goes to stderr: stdout is the command's.
Without a GPU its kernels are interpreted and also compiled for an architecture.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tkdebug.cli.command import INTERRUPTED_STATUS, ScriptEndedError
from tkdebug.cli.command_line import ScriptWords, check_variables
from tkdebug.cli.runs.checks import check_known, check_upstream
from tkdebug.cli.runs.progress import progress_line
from tkdebug.cli.runs.request import USUAL_TARGET, given_knobs, is_upstream, program_of
from tkdebug.cli.script.execution import SQLITE_MAGIC, Program, loaded, quotable, run_program
from tkdebug.compat.replacements import Environment
from tkdebug.errors import UsageError
from tkdebug.fault_printing.text import counted
from tkdebug.instrument.recorder import SESSION_VARIABLE, Recorder
from tkdebug.instrument.session import Session
from tkdebug.knobs import KNOBS
from tkdebug.process.named_files import open_regular
from tkdebug.process.temporary_folders import temporary_folder
from tkdebug.runtime.device.torch_package import import_torch
from tkdebug.terminal.text import tell


@dataclass(frozen=True, slots=True)
class CompiledRun:
    """A session to look at.

    Attributes:
        session: the run.
        status: the command's exit status once it has shown the session: that of a script run for
            it.
        is_recorded: whether it was there before the command.
    """

    session: Session
    status: int = 0
    is_recorded: bool = False


@dataclass(frozen=True, slots=True)
class AskedRun:
    """The run that a command shows: a recorded one, or one of a script.

    Attributes:
        script: the script's words on the command line.
        native_target: the architecture to compile for without a GPU, "none" for none, None for
            the usual one where this machine can.
        given: the knobs that options change, by name.
        needs_code: whether kernels that are only interpreted have nothing to show.
        advises: whether launches are looked at for advice, for which they are interpreted.
        shows_passes: whether an installed Triton has to dump its passes.
    """

    script: ScriptWords
    native_target: str | None
    given: Mapping[str, object]
    needs_code: bool = False
    advises: bool = False
    shows_passes: bool = False

    @classmethod
    def of(
        cls,
        options: argparse.Namespace,
        needs_code: bool = False,
        advises: bool = False,
        shows_passes: bool = False,
    ) -> AskedRun:
        """Read the options that `passes`, `lines` and `advise` share."""
        given = given_knobs(options)
        return cls(options.script, options.native_target, given, needs_code, advises, shows_passes)

    def refuse_options_of_scripts(self, what: str) -> None:
        """Refuse options that only a script could use.

        Raises:
            UsageError: there is such an option.
        """
        if self.native_target is not None:
            asked = f"--target {self.native_target}"
        elif "triton_version" in self.given:
            asked = f"--triton {self.given['triton_version']}"
        elif self.script.argv:
            asked = " ".join(self.script.argv)
        else:
            return
        raise UsageError(f"{asked}: {self.script.target} is {what}; this is for scripts only")


@contextlib.contextmanager
def compiled_run(asked: AskedRun) -> Iterator[CompiledRun]:
    """Yield the session that is asked for, or the session of a run of the script.

    Raises:
        SessionError: the session cannot be read.
        ScriptEndedError: the script failed before it launched anything.
        UsageError: there is nothing to run, it launched nothing, the target architecture is not
            known, or options of a script are given to a session.
    """
    file = asked.script.file
    if file is not None and is_session(file):
        asked.refuse_options_of_scripts("a recorded run")
        with Session.open(file) as session:
            yield CompiledRun(session, is_recorded=True)
        return
    program = loaded(program_of(asked.script))
    check_variables()
    import_torch()
    upstream = is_upstream(asked.given)
    if upstream and not asked.advises:
        # It compiles for the GPU that is there, or for a target that the script names.
        target = asked.native_target
        given = {**asked.given, **({} if target is None else {"cross_compile": target})}
        check_upstream(given, "native" if KNOBS.mode == "auto" else KNOBS.mode)
        target = None
    else:
        target = _native_target(asked)
    dumps = _upstream_dumps() if upstream and asked.shows_passes else contextlib.nullcontext()
    with temporary_folder() as folder:
        path = folder / "run.tkd"
        with dumps, quotable(program):
            status = _record(program, path, target, asked)
        with Session.open(path) as session:
            _tell_of_faults(session, program.name)
            _tell_of_end(session, program.name, status, target)
            yield CompiledRun(session, status)


def _tell_of_end(session: Session, script: str, status: int, target: str | None) -> None:
    """Report what is missing after a script that failed; raise if it launched no kernel."""
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


def _native_target(run: AskedRun) -> str | None:
    """Return the architecture that interpreted kernels are also compiled for, or None."""
    from tkdebug.runtime.compile.cross_compilation import obstacle
    from tkdebug.runtime.device.platform import platform_in_force

    asked = run.native_target
    if asked == "none" and not run.needs_code:
        return None
    if asked is not None:
        check_known("--target", asked, "" if run.needs_code else " or none")
    elif not run.advises and platform_in_force().obstacle() is None:
        return None  # kernels are compiled for the device that is there
    reason = obstacle(asked or USUAL_TARGET)
    if reason is None:
        return asked or USUAL_TARGET
    if asked is not None:
        raise UsageError(f"--target {asked}: {reason}")
    tell(f"Tile IR only: {reason}")
    return None


@contextlib.contextmanager
def _upstream_dumps() -> Iterator[None]:
    """Have an installed Triton dump its passes, also of kernels that it has on disk."""
    names = ("MLIR_ENABLE_DUMP", "TRITON_ALWAYS_COMPILE")
    environment = Environment(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        environment.restore()


def _record(program: Program, path: Path, target: str | None, asked: AskedRun) -> int:
    """Run a program and record it; the result is its exit status."""
    from tkdebug import compat
    from tkdebug.checks import NO_CHECKS

    recorder = Recorder(path, script=program.name, argv=program.arguments, output=False)
    knobs = KNOBS.scope(
        **{
            **asked.given,
            "cross_compile": target or KNOBS.cross_compile,
            "advise": asked.advises or KNOBS.advise,
            "checks": KNOBS.checks or (NO_CHECKS,),
        }
    )
    with stdout_to_stderr(), knobs:
        recorder.start()
        os.environ[SESSION_VARIABLE] = str(recorder.path)
        status = 1
        try:
            installed = compat.install("interpret" if target is not None else KNOBS.mode, True)
            with installed, progress_line():
                status = run_program(program).exit_status
        finally:
            os.environ.pop(SESSION_VARIABLE, None)
            recorder.stop(status)
    return status


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send output for stdout to stderr, child processes' included."""
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
