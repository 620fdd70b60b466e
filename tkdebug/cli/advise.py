"""`tkdebug advise`: why kernels take as long as they do, and what would help, line by line."""

from __future__ import annotations

from pathlib import Path

from tkdebug.cli.command_line.arguments import Arguments
from tkdebug.cli.places import put_out
from tkdebug.cli.runs.compiled_run import check_output, compiled_run
from tkdebug.errors import UsageError
from tkdebug.instrument.analyses.advice import Times, advice_of, launch_costs, times_of
from tkdebug.instrument.renderers.advice_formats import advice_json, advice_text
from tkdebug.instrument.renderers.advice_report import cost_line
from tkdebug.instrument.renderers.formats import ANSWERS, format_by_name
from tkdebug.instrument.session import Session
from tkdebug.terminal_text import visible


def advise_command(arguments: Arguments) -> int:
    """Print the remarks on stdout, or write them into a file; the result is the exit status.

    Raises:
        TkError: there is nothing to show, or something about the command line is wrong.
    """
    check_output(arguments)
    format_name = arguments.format or format_by_name(arguments.output, ANSWERS)
    times = None if arguments.times is None else _times(arguments.times)
    with compiled_run(arguments, needs_code=True, advises=True) as run:
        if arguments.kernel is not None:
            run.session.narrow(run.session.kernel_names(arguments.kernel))
        advice = advice_of(run.session, times)
        costs = launch_costs(run.session)
        is_judged = bool(advice or costs)
        if not is_judged and run.is_recorded:
            raise UsageError(
                f"{arguments.target}: no launch was looked at for advice there; "
                "`tkdebug advise script.py` does that, and `tkdebug run --advise` records it"
            )
        if format_name == "json":
            put_out((advice_json(advice, costs),), arguments.output)
        else:
            rates = [
                f"{cost_line(cost, times.by_kernel_ns.get(cost.kernel))}\n"
                for cost in costs
                if times is not None
            ]
            # Without figures of the GPU no launch was judged, and stderr says so.
            text = advice_text(advice, run.session.source_line, costs) if is_judged else ()
            put_out(map(visible, (*text, *rates)), arguments.output)
        return run.status


def _times(path: Path) -> Times:
    """The mean time of a launch by kernel, of a run on a GPU.

    Raises:
        UsageError: it has no such times.
    """
    with Session.open(path) as session:
        if "native" not in session.run().mode:
            raise UsageError(f"--times {path}: its kernels did not run on a GPU")
        return times_of(session)
