"""`tkdebug numerics`: how exact kernels are, line by line, measured against fp64."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug.cli.command import USAGE_STATUS, Command, ScriptEndedError, ScriptRule
from tkdebug.cli.options import (
    ANSWER_FORMATS,
    add_format,
    add_kernel,
    add_output,
    add_program,
    add_reference,
    add_triton,
    positive_count,
    positive_seconds,
)
from tkdebug.errors import UsageError
from tkdebug.instrument.renderers.formats import ANSWERS, format_by_name

if TYPE_CHECKING:
    from tkdebug.precision.looking import Looker


class NumericsCommand(Command):
    """Runs launches in fp64, too, and reports which lines lose how much precision."""

    help = "which lines lose precision, why, and how much of the result's error is theirs"
    usage = "tkdebug numerics [options] (script.py | -m module | -c code | -) [arguments]"
    description = (
        "Run a script with its kernels interpreted, and some programs of each kernel's first "
        "launch in fp64, too: the error of each line, made there and carried, the causes, and how "
        "much of each output's error they explain. What the script prints goes to stderr."
    )
    epilog = (
        "Everything after the script (or after -m module, -c code, - for stdin) belongs to the "
        "script. Its exit status is passed on; what was measured by then is shown."
    )
    script = ScriptRule("a script.py, -m module, -c code, or - for stdin")

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the kernels, how much of them is looked at, and how it is shown."""
        add_program(parser)
        add_kernel(parser, "name or pattern")
        parser.add_argument(
            "--launches",
            type=positive_count,
            default=1,
            metavar="N",
            help="look at the first N launches of each kernel (1 by default)",
        )
        parser.add_argument(
            "--whole",
            action="store_true",
            help="look at all programs of a launch, in place of 8 of them",
        )
        parser.add_argument(
            "--seconds",
            type=positive_seconds,
            default=10.0,
            metavar="S",
            help="processor time for each launch (10 by default)",
        )
        add_reference(parser)
        add_triton(parser)
        add_format(parser, ANSWER_FORMATS, by_name=True)
        add_output(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Print what was measured; the result is the exit status."""
        # Torch and the interpreter: nothing that help needs.
        from tkdebug.cli.places import check_answer, put_out
        from tkdebug.precision.report import numerics_json, numerics_text

        check_answer(options.output, options.script.file)
        format_name = options.format or format_by_name(options.output, ANSWERS)
        looker, status = _looked_at(options)
        kernels = looker.found
        if not kernels and status:
            raise ScriptEndedError(
                f"{options.script.target}: it ended with status {status} before a launch was "
                "looked at",
                status,
            )
        if not kernels:
            of_that = "" if options.kernel is None else f" of {options.kernel}"
            raise UsageError(f"{options.script.target}: it launched no kernel{of_that}")
        pieces = (numerics_json(kernels),) if format_name == "json" else numerics_text(kernels)
        put_out(pieces, options.output)
        return status or (USAGE_STATUS if looker.unfit else 0)


COMMAND = NumericsCommand()


def _looked_at(options: argparse.Namespace) -> tuple[Looker, int]:
    """Run the script; return the `Looker` that ran its launches in fp64, and the exit status."""
    from tkdebug import compat
    from tkdebug.checks import NO_CHECKS
    from tkdebug.cli.command_line import check_variables
    from tkdebug.cli.runs.compiled_run import stdout_to_stderr
    from tkdebug.cli.runs.request import given_knobs, program_of
    from tkdebug.cli.script.execution import loaded, quotable, run_program
    from tkdebug.fault_printing.processes import printing_faults
    from tkdebug.knobs import KNOBS
    from tkdebug.precision.looking import Looker
    from tkdebug.precision.references import reference_by_name
    from tkdebug.records.hook_chain import HOOKS
    from tkdebug.runtime.device.torch_package import import_torch

    program = loaded(program_of(options.script))
    check_variables()
    import_torch()
    knobs = KNOBS.scope(**{**given_knobs(options), "checks": KNOBS.checks or (NO_CHECKS,)})
    with stdout_to_stderr(), knobs, compat.install("interpret", True), quotable(program):
        reference = None
        if options.reference is not None:
            reference = reference_by_name(options.reference, Path(program.path_entry or "."))
        looker = Looker(options.kernel, options.launches, options.whole, options.seconds, reference)
        with printing_faults():
            HOOKS.debugger = looker
            try:
                status = run_program(program).exit_status
            finally:
                HOOKS.debugger = None
    return looker, status
