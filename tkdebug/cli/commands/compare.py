"""`tkdebug compare`: two recorded runs, or one script compiled by two compilers."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug.cli.command import FAULT_STATUS, Command, ScriptEndedError, ScriptRule
from tkdebug.cli.options import ANSWER_FORMATS, SESSION_HELP, add_format, percent
from tkdebug.errors import UsageError
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.cli.command_line import ScriptWords
    from tkdebug.compat.captured_outputs import OutputDifference
    from tkdebug.instrument.analyses.comparison import Comparison

_COMPILERS = ("triton", "tkdebug")
_EXPECTED = "before.tkd and after.tkd, or --compilers script.py"


class CompareCommand(Command):
    """Prints the differences between two runs; exits with 3 for a new fault or a slow kernel."""

    help = "what differs between two runs, or between two compilers"
    usage = "tkdebug compare [options] (before.tkd after.tkd | --compilers script.py [arguments])"
    description = (
        "Compare two recorded runs: times by kernel and whether they changed for certain, "
        "registers and spills, and faults and remarks that are new or gone. The exit status is 3 "
        "where a fault is new, or --max-slowdown is exceeded."
    )
    script = ScriptRule(_EXPECTED, only_with="--compilers")

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the two runs, and the permitted differences."""
        parser.add_argument("before", type=Path, nargs="?", metavar="before.tkd", help=SESSION_HELP)
        parser.add_argument("after", type=Path, nargs="?", metavar="after.tkd", help="a later one")
        parser.add_argument(
            "--compilers",
            action="store_true",
            help="instead of two runs give a script.py: it is run with the Triton that is "
            "installed and with tkdebug, and what its kernels write is compared, too",
        )
        parser.add_argument(
            "--max-slowdown",
            type=percent,
            metavar="PERCENT",
            help="exit with 3 where a kernel is slower by more than that, with 99 %% confidence",
        )
        add_format(parser, ANSWER_FORMATS)

    def check(self, parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
        """Refuse anything but two runs or one script."""
        script, runs = options.script, (options.before, options.after)
        if options.compilers == any(runs) or (not options.compilers and None in runs):
            parser.error(f"give {_EXPECTED}")
        if script is not None and (script.is_module or script.is_code):
            parser.error(f"give {_EXPECTED}")

    def run(self, options: argparse.Namespace) -> int:
        """Print what differs; the result is the exit status."""
        if options.script is None:
            return _compare(options, options.before, options.after, ())
        with compared_runs(options.script) as runs:
            lines = [*output_lines(runs.outputs)]
            return _compare(options, runs.before, runs.after, lines)


COMMAND = CompareCommand()


def _compare(
    options: argparse.Namespace, earlier: Path, later: Path, outputs: Sequence[str]
) -> int:
    # Sessions: nothing that help needs.
    from tkdebug.cli.places import put_out, view_of_answer
    from tkdebug.instrument.analyses.comparison import compare
    from tkdebug.instrument.renderers.comparison_formats import comparison_json, comparison_text
    from tkdebug.instrument.session import Session

    with Session.open(earlier) as before, Session.open(later) as after:
        comparison = compare(before, after)
        if options.format == "json":
            put_out(comparison_json(comparison, before, after))
        else:
            view = view_of_answer(None)
            text = comparison_text(comparison, before, after, view)
            put_out(chain(text, _section(outputs)), styled=view.style.is_on)
    new = any(group.fault.fails for group in comparison.new_faults)
    allowed = options.max_slowdown
    slower = comparison.slower(allowed) if allowed is not None else ()
    for change in slower:
        tell(f"{change.kernel}: slower than before by more than {allowed:g} %")
    if allowed is not None:
        _tell_unjudged(comparison)
    return FAULT_STATUS if new or slower else 0


def _tell_unjudged(comparison: Comparison) -> None:
    """Name the kernels that `--max-slowdown` does not judge."""
    if not comparison.is_timed:
        tell("--max-slowdown: nothing is judged, as times of interpreted kernels are not a GPU's")
        return
    for why, kernels in comparison.unknown().items():
        tell(f"--max-slowdown: not judged: {', '.join(kernels)} ({why})")


def _section(outputs: Sequence[str]) -> Iterator[str]:
    if outputs:
        yield "\nwhat kernels wrote, before and after\n"
    yield from (f"{line}\n" for line in outputs)


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """Two runs of one script.

    Attributes:
        before: session of the run whose kernels the installed Triton compiled.
        after: the run with tkdebug's compiler.
        outputs: the tensors that the kernels wrote.
    """

    before: Path
    after: Path
    outputs: list[OutputDifference]


@contextmanager
def compared_runs(script: ScriptWords) -> Iterator[ComparedRuns]:
    """Run the script with both compilers, one after the other.

    Raises:
        UsageError: there is no GPU, no Triton that can compile, or no such script.
        ScriptEndedError: one of the runs failed.
    """
    from tkdebug.cli.script.execution import find_program
    from tkdebug.compat.captured_outputs import output_differences
    from tkdebug.compat.upstream.installed import installed_triton
    from tkdebug.process.temporary_folders import temporary_folder
    from tkdebug.runtime.device.driver import has_real_gpu

    program = find_program(script.target, script.argv, False)
    installed_triton()
    if not has_real_gpu():
        raise UsageError("--compilers: both launch on a GPU, and there is none here")
    with temporary_folder() as folder:
        for compiler in _COMPILERS:
            _run(compiler, folder, [program.name, *script.argv])
        sessions = [folder / f"{compiler}.tkd" for compiler in _COMPILERS]
        outputs = [folder / f"{compiler}.pt" for compiler in _COMPILERS]
        yield ComparedRuns(sessions[0], sessions[1], output_differences(*outputs))


def _run(compiler: str, folder: Path, words: list[str]) -> None:
    import subprocess  # a tenth of what help takes

    from tkdebug.cli.script.execution import command_in_a_process
    from tkdebug.compat.captured_outputs import VARIABLE

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
    """Yield a line for each argument that kernels wrote."""
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
