"""A script that is run for its launches, which then run again, varied."""

from __future__ import annotations

import argparse
import contextlib
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from tkdebug.cli.command import INTERRUPTED_STATUS, ScriptEndedError
from tkdebug.cli.command_line import check_variables
from tkdebug.cli.runs.compiled_run import stdout_to_stderr
from tkdebug.cli.runs.request import program_of
from tkdebug.cli.script.execution import Program, loaded, quotable, run_program
from tkdebug.errors import UsageError
from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.device.torch_package import import_torch
from tkdebug.terminal.text import tell
from tkdebug.variations.launches import KeptLaunch, LaunchKeeper

Row = TypeVar("Row")
# Inputs of launches that are kept until the script has ended.
_MOST_BYTES = 2 << 30


@dataclass(slots=True)
class VariedRun:
    """A script that has ended.

    Attributes:
        launches: the first of each kind, with their inputs.
        status: its exit status.
    """

    launches: Sequence[KeptLaunch]
    status: int

    def looked_at(self, rows: Iterable[Row]) -> list[Row]:
        """Return the rows of all launches, or after Ctrl-C those that were found until then."""
        # Torch: nothing that help needs.
        from tkdebug.causes.rerun import on_one_thread

        found: list[Row] = []
        try:
            # Most launches are small: threads that wait for each other spin for nothing.
            with on_one_thread():
                found.extend(rows)
        except KeyboardInterrupt:
            self.status = INTERRUPTED_STATUS
            tell("interrupted: shown is what was found until then")
        return found

    def also(self, other: Program) -> tuple[KeptLaunch, ...]:
        """Run another version of the script, and return its launches.

        Raises:
            UsageError: it launches nothing.
        """
        keeper = LaunchKeeper(None, _MOST_BYTES)
        with quotable(other):
            status = _run(other, keeper)
        if not keeper.kept:
            how = f", and ended with status {status}" if status else ""
            raise UsageError(f"--against {other.name}: it launched no kernel{how}")
        return tuple(keeper.kept)


@contextlib.contextmanager
def varied_run(options: argparse.Namespace) -> Iterator[VariedRun]:
    """Run a script interpreted, and yield its launches while tkdebug stays installed.

    Args:
        options: options of the command: the script, `--kernel`, `--triton`.

    Raises:
        ScriptEndedError: the script failed before it launched anything.
        UsageError: it launched nothing, or nothing of that name.
    """
    # Torch and the interpreter: nothing that help needs.
    from tkdebug import compat
    from tkdebug.checks import NO_CHECKS

    program = loaded(program_of(options.script))
    check_variables()
    import_torch()
    keeper = LaunchKeeper(options.kernel, _MOST_BYTES)
    triton = options.triton_version
    installed = compat.install("interpret", True, checks=(NO_CHECKS,), triton=triton)
    with installed, quotable(program):
        status = _run(program, keeper)
        _tell_of_end(program, keeper, options.kernel, status)
        yield VariedRun(keeper.kept, status)


def _run(program: Program, keeper: LaunchKeeper) -> int:
    before, HOOKS.debugger = HOOKS.debugger, keeper
    try:
        with stdout_to_stderr():
            return run_program(program).exit_status
    finally:
        HOOKS.debugger = before


def other_version(options: argparse.Namespace) -> Program:
    """Return the other version of a script that `--against` names.

    Raises:
        UsageError: it is neither a file nor a commit that has the script.
    """
    program, asked = program_of(options.script), options.against
    if Path(asked).exists():
        return replace(program, name=asked, argv=(asked, *program.arguments), text=None)
    script = program.script
    if script is None:
        raise UsageError(f"--against {asked}: there is no such file, and only scripts have commits")
    command = ["git", "-C", str(script.parent), "show", f"{asked}:./{script.name}"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"--against {asked}: git: {error}") from None
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().splitlines()
        said = reason[0] if reason else f"git ended with {done.returncode}"
        raise UsageError(f"--against {asked}: no file, and no commit with {script}: {said}")
    name = f"<{script.name} of {asked}>"
    return replace(program, text=done.stdout, text_name=name)


def _tell_of_end(program: Program, keeper: LaunchKeeper, wanted: str | None, status: int) -> None:
    """Report what is left out, and why; raise if no launch is left."""
    script = program.name
    how = "was interrupted" if status == INTERRUPTED_STATUS else f"ended with status {status}"
    if not keeper.names and status:
        raise ScriptEndedError(f"{script}: it {how} before it launched a kernel", status)
    if not keeper.names:
        raise UsageError(f"{script}: it launched no kernel")
    for name in keeper.passed_over:
        tell(f"{name}: left out: inputs of more than {_MOST_BYTES >> 30} GiB are not kept")
    if not keeper.kept and wanted is not None and not keeper.passed_over:
        names = ", ".join(keeper.names)
        raise UsageError(f"--kernel {wanted}: {script} launched no such kernel, but {names}")
    if status:
        tell(f"{script} {how}: looked at are the launches until then")
