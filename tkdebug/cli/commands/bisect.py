"""`tkdebug bisect`: the compiler pass, and the rewrite, that change a kernel's result."""

from __future__ import annotations

import argparse
from itertools import product

from tkdebug.cli.command import FAULT_STATUS, Command, ScriptRule
from tkdebug.cli.options import (
    ANSWER_FORMATS,
    ARCHITECTURES,
    add_format,
    add_kernel,
    add_output,
    add_program,
    add_triton,
    positive_seconds,
)

_SECONDS = 60.0


class BisectCommand(Command):
    """Interprets kernels after each pass, and then with fewer rewrites of one."""

    help = "which compiler pass, and which rewrite of it, changes a kernel's result"
    usage = "tkdebug bisect [options] (script.py | -m module | -c code | -) [arguments]"
    description = (
        "Run a script, interpret each of its kernels again after every compiler pass on the same "
        "inputs, and name the first pass after which the result differs. Then leave out rewrites "
        "of that pass, to name the one that changes it, with its op and source line. No GPU is "
        "needed; where there is one, what lies below tkdebug's IR is looked at, too."
    )
    epilog = (
        "The exit status is 3 where a pass, or what lies below, changes a result, else the "
        "script's own. Everything after the script (or after -m module, -c code, - for stdin) "
        "belongs to the script."
    )
    script = ScriptRule("a script.py, -m module, -c code, or - for stdin, to run")

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the kernels, the architecture, and how long it may take."""
        add_program(parser)
        add_kernel(parser, "name or pattern")
        parser.add_argument(
            "--target",
            dest="native_target",
            metavar="ARCH",
            help=f"the passes for that architecture ({ARCHITECTURES}); by default those of the "
            "GPU here, without one those of sm_90a and sm_80",
        )
        parser.add_argument(
            "--seconds",
            type=positive_seconds,
            default=_SECONDS,
            metavar="S",
            help="processor time for each kernel and architecture; 60 by default",
        )
        add_triton(parser)
        add_format(parser, ANSWER_FORMATS)
        add_output(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Print what was found; the result is the exit status."""
        # Torch, the interpreter and the compiler: nothing that help needs.
        from tkdebug.cli.places import check_answer, put_out
        from tkdebug.cli.runs.checks import check_known
        from tkdebug.cli.runs.varied_run import varied_run
        from tkdebug.variations.bisect_report import bisect_json, bisect_text
        from tkdebug.variations.bisection import bisect
        from tkdebug.variations.native_levels import targets

        check_answer(options.output, options.script.file)
        if options.native_target is not None:
            check_known("--target", options.native_target)
        with varied_run(options) as run:
            each = product(run.launches, targets(options.native_target))
            found = run.looked_at(bisect(*one, options.seconds) for one in each)
        shown = bisect_json(found) if options.format == "json" else bisect_text(found)
        put_out(shown, options.output)
        return FAULT_STATUS if any(one.differs for one in found) else run.status


COMMAND = BisectCommand()
