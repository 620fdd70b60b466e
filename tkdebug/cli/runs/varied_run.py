"""A script that is run for its launches, which then run again, varied."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tkdebug.cli.command import INTERRUPTED_STATUS, ScriptEndedError
from tkdebug.cli.command_line import check_variables
from tkdebug.cli.runs.compiled_run import stdout_to_stderr
from tkdebug.cli.runs.request import program_of
from tkdebug.cli.script.execution import Program, loaded, quotable, run_program
from tkdebug.errors import UsageError
from tkdebug.runtime.device.torch_package import import_torch
from tkdebug.terminal.text import tell
from tkdebug.variations.launches import KeptLaunch, LaunchKeeper

# Inputs of launches that are kept until the script has ended.
_MOST_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class VariedRun:
    """A script that has ended.

    Attributes:
        launches: the first of each kind, with their inputs.
        status: its exit status.
    """

    launches: Sequence[KeptLaunch]
    status: int


@contextlib.contextmanager
def varied_run(options: argparse.Namespace, *, each: bool = False) -> Iterator[VariedRun]:
    """Run a script interpreted, and yield its launches while what it needs is in place.

    Args:
        options: of the command: the script, `--kernel`, `--triton`.
        each: whether every launch counts, not only the first of its kind.

    Raises:
        ScriptEndedError: the script failed before it launched anything.
        UsageError: it launched nothing, or nothing of that name.
    """
    # Torch and the interpreter: nothing that help needs.
    from tkdebug import compat
    from tkdebug.checks import NO_CHECKS
    from tkdebug.records.hook_chain import HOOKS

    program = loaded(program_of(options.script))
    check_variables()
    import_torch()
    keeper = LaunchKeeper(options.kernel, _MOST_BYTES, each)
    triton = options.triton_version
    installed = compat.install("interpret", True, checks=(NO_CHECKS,), triton=triton)
    with installed, quotable(program):
        before, HOOKS.debugger = HOOKS.debugger, keeper
        try:
            with stdout_to_stderr():
                status = run_program(program).exit_status
        finally:
            HOOKS.debugger = before
        _tell_of_end(program, keeper, options.kernel, status)
        yield VariedRun(keeper.kept, status)


def _tell_of_end(program: Program, keeper: LaunchKeeper, wanted: str | None, status: int) -> None:
    """Say what is left out, and why."""
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
