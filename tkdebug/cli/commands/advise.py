"""`tkdebug advise`: why kernels take as long as they do, and what would help, line by line."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug.cli.command import Command, ScriptRule
from tkdebug.cli.options import (
    ANSWER_FORMATS,
    ASKED,
    ASKED_EPILOG,
    ASKED_EXPECTED,
    add_format,
    add_kernel,
    add_output,
    add_program,
    add_triton,
)
from tkdebug.errors import UsageError
from tkdebug.instrument.renderers.formats import ANSWERS, format_by_name

if TYPE_CHECKING:
    from tkdebug.instrument.analyses.advice import Times

_PREDICTED = "sm_80, sm_86, sm_89, sm_90a"


class AdviseCommand(Command):
    """Reports the lines where kernels lose time, why, and what would help."""

    help = "why kernels take as long as they do, and what would help"
    usage = f"tkdebug advise [options] ({ASKED}) [arguments]"
    description = (
        "Say at which lines kernels lose time, why, and what would help, the largest predicted "
        "gain first. The script is run for it: its kernels are interpreted and compiled, no GPU is "
        "needed. What it prints goes to stderr. Of a recorded run, what was recorded."
    )
    epilog = ASKED_EPILOG
    script = ScriptRule(ASKED_EXPECTED, or_recorded=True)

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the kernels, the GPU that they are judged for, and how remarks are shown."""
        add_program(parser)
        add_kernel(parser, "name or pattern; gains are shares of their time")
        parser.add_argument(
            "--target",
            "--arch",
            dest="native_target",
            metavar="ARCH",
            help=f"compile and predict for that architecture ({_PREDICTED}); sm_90a by default",
        )
        parser.add_argument(
            "--times",
            type=Path,
            metavar="run.tkd",
            help="a run on a GPU, whose times say how much each kernel counts",
        )
        add_triton(parser)
        add_format(parser, ANSWER_FORMATS, by_name=True)
        add_output(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Print the remarks; the result is the exit status."""
        # Sessions and the compiler: nothing that help needs.
        from tkdebug.cli.places import check_answer, put_out
        from tkdebug.cli.runs.compiled_run import AskedRun, compiled_run
        from tkdebug.instrument.analyses.advice import advice_of, launch_costs
        from tkdebug.instrument.renderers.advice_formats import advice_json, advice_text, cost_line
        from tkdebug.terminal.text import visible

        check_answer(options.output, options.script.file)
        format_name = options.format or format_by_name(options.output, ANSWERS)
        times = None if options.times is None else _times(options.times)
        asked = AskedRun.of(options, needs_code=True, advises=True)
        if times is not None and times.gpu is not None:
            asked = replace(asked, given={**asked.given, "advise_gpu": times.gpu})
        with compiled_run(asked) as run:
            if options.kernel is not None:
                run.session.narrow(run.session.kernel_names(options.kernel))
            advice = advice_of(run.session, times)
            costs = launch_costs(run.session)
            is_judged = bool(advice or costs)
            if not is_judged and run.is_recorded:
                raise UsageError(
                    f"{options.script.target}: no launch was looked at for advice there; "
                    "`tkdebug advise script.py` does that, and `tkdebug run --advise` records it"
                )
            if format_name == "json":
                put_out((advice_json(advice, costs),), options.output)
            else:
                rates = [
                    f"{cost_line(cost, times.by_kernel_ns.get(cost.kernel))}\n"
                    for cost in costs
                    if times is not None
                ]
                # Without figures of the GPU no launch was judged, and stderr says so.
                text = advice_text(advice, run.session.source_line, costs) if is_judged else ()
                put_out(map(visible, (*text, *rates)), options.output)
            return run.status


COMMAND = AdviseCommand()


def _times(path: Path) -> Times:
    """The mean time of a launch by kernel, from a run on a GPU.

    Raises:
        UsageError: the run has no such times.
    """
    from tkdebug.instrument.analyses.advice import times_of
    from tkdebug.instrument.session import Session

    with Session.open(path) as session:
        if "native" not in session.run().mode:
            raise UsageError(f"--times {path}: its kernels did not run on a GPU")
        return times_of(session)
