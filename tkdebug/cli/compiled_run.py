"""The session that a command looks at: a recorded one, or one recorded for it from a script.

The script runs quick (nothing is measured), and what it prints goes to stderr: stdout is the
command's. Without a GPU its kernels are interpreted and compiled for an architecture besides.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tkdebug.cli.arguments import Arguments
from tkdebug.cli.script import Program, find_program, run_program
from tkdebug.errors import UnsupportedError, UsageError
from tkdebug.instrument.reader import Session
from tkdebug.instrument.recorder import SESSION_VARIABLE, Recorder
from tkdebug.instrument.renderers.text_format import counted
from tkdebug.instrument.report import session_faults

USUAL_TARGET = "sm_90a"
_SQLITE_MAGIC = b"SQLite format 3\0"


@contextlib.contextmanager
def compiled_run(arguments: Arguments) -> Iterator[Session]:
    """The session that `arguments.target` names, or that of running it.

    Raises:
        SessionError: the session cannot be read.
        UsageError: there is nothing to run, it launched nothing, or the target architecture is
            not known.
    """
    if not arguments.is_module and is_session(Path(arguments.target)):
        with Session.open(arguments.target) as session:
            yield session
        return
    program = find_program(arguments.target, arguments.target_argv, arguments.is_module)
    target = _native_target(arguments.native_target)
    with tempfile.TemporaryDirectory(prefix="tkdebug-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "run.tkd"
        _record(program, path, target)
        with Session.open(path) as session:
            _tell_of_faults(session, program.name)
            if not session.kernels():
                raise UsageError(f"{program.name}: it launched no kernel")
            yield session


def _tell_of_faults(session: Session, script: str) -> None:
    faults = [f for f in session_faults(session) if f.fault.kind != "compile-error"]
    if faults:
        number = counted(len(faults), "fault")
        print(f"tkdebug: {number} in this run; `tkdebug run {script}` tells where", file=sys.stderr)


def is_session(path: Path) -> bool:
    """Whether `path` is, or by its name should be, a recorded run."""
    if path.suffix == ".tkd":
        return True
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC
    return False


def _native_target(asked: str | None) -> str | None:
    """What to compile for besides; None for nothing."""
    from tkdebug.compiler.targets import TARGETS, target_of
    from tkdebug.runtime.cross_compilation import obstacle
    from tkdebug.runtime.cuda.device import obstacle as device_obstacle

    if asked == "none":
        return None
    if asked is not None:
        try:
            target_of(asked)
        except UnsupportedError:
            known = ", ".join(TARGETS)
            raise UsageError(f"--target: got {asked!r}, expected {known} or none") from None
    elif device_obstacle() is None:
        return None  # kernels are compiled for the device that is there
    reason = obstacle()
    if reason is None:
        return asked or USUAL_TARGET
    if asked is not None:
        raise UsageError(f"--target {asked}: {reason}")
    print(f"tkdebug: Tile IR only: {reason}", file=sys.stderr)
    return None


def _record(program: Program, path: Path, target: str | None) -> None:
    from tkdebug import compat
    from tkdebug.knobs import KNOBS

    recorder = Recorder(path, script=program.name, argv=program.argv[1:], output=False)
    with _stdout_to_stderr(), KNOBS.scope(cross_compile=target or KNOBS.cross_compile):
        recorder.start()
        os.environ[SESSION_VARIABLE] = str(recorder.path)
        status = 1
        try:
            mode = "interpret" if target is not None else KNOBS.mode
            installed = compat.install(mode=mode, quick=True, interpret=KNOBS.interpret_kernels)
            with installed:
                status = run_program(program).exit_status
        finally:
            os.environ.pop(SESSION_VARIABLE, None)
            recorder.stop(status)
    if status:
        print(
            f"tkdebug: {program.name} ended with status {status}; shown is what was compiled",
            file=sys.stderr,
        )


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """What is written to stdout inside, child processes' included, goes to stderr."""
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
