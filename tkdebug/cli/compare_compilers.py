"""`tkdebug compare --compilers`: a script run by an installed Triton, and by tkdebug."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tkdebug.cli.command_line.arguments import Arguments
from tkdebug.cli.script.execution import command_in_a_process, find_program
from tkdebug.cli.statuses import ScriptEndedError
from tkdebug.compat.captured_outputs import VARIABLE, OutputDifference, output_differences
from tkdebug.compat.upstream.installed import installed_triton
from tkdebug.errors import UsageError
from tkdebug.temporary_folders import temporary_folder

_COMPILERS = ("triton", "tkdebug")


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """Two runs of one script.

    Attributes:
        before: session of the run whose kernels the installed Triton compiled.
        after: of that with tkdebug's.
        outputs: what the kernels wrote.
    """

    before: Path
    after: Path
    outputs: list[OutputDifference]


@contextmanager
def compared_runs(arguments: Arguments) -> Iterator[ComparedRuns]:
    """Run the script with both compilers, one after the other.

    Raises:
        UsageError: there is no GPU, no Triton that can compile, or no such script.
        ScriptEndedError: one of the runs failed.
    """
    from tkdebug.runtime.device.driver import has_real_gpu

    program = find_program(arguments.target, arguments.target_argv, False)
    installed_triton()
    if not has_real_gpu():
        raise UsageError("--compilers: both launch on a GPU, and there is none here")
    with temporary_folder() as folder:
        for compiler in _COMPILERS:
            _run(compiler, folder, [program.name, *arguments.target_argv])
        sessions = [folder / f"{compiler}.tkd" for compiler in _COMPILERS]
        outputs = [folder / f"{compiler}.pt" for compiler in _COMPILERS]
        yield ComparedRuns(sessions[0], sessions[1], output_differences(*outputs))


def _run(compiler: str, folder: Path, words: list[str]) -> None:
    session = folder / f"{compiler}.tkd"
    options = ["--no-tui", "--compiler", compiler, "-o", str(session)]
    if compiler == "tkdebug":
        options += ["--check-launches", "none"]
    done = subprocess.run(
        command_in_a_process("run", *options, *words),
        env={**os.environ, VARIABLE: str(folder / f"{compiler}.pt")},
        stdout=sys.stderr.fileno(),
    )
    if done.returncode:
        status = done.returncode
        raise ScriptEndedError(
            f"{words[0]}: compiled by {compiler} it ended with status {status}", status
        )


def output_lines(outputs: Iterable[OutputDifference]) -> Iterator[str]:
    """What kernels wrote, a line for each argument."""
    for one in outputs:
        where = f"{one.kernel} `{one.argument}`, launch {one.launch}"
        if one.reason:
            yield f"  {where}: not compared: {one.reason}"
        elif one.different == 0:
            yield f"  {where}: equal, {one.elements:,} elements"
        else:
            yield (
                f"  {where}: {one.different:,} of {one.elements:,} elements differ, by up to "
                f"{one.relative:.2g} (of values above 1: of the value)"
            )
