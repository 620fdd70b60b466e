"""`tkdebug passes`: what each compiler pass did, of a recorded run or of a script run for it."""

from __future__ import annotations

from tkdebug.cli.command_line.arguments import Arguments
from tkdebug.cli.places import put_out, view_of_answer
from tkdebug.cli.runs.compiled_run import check_output, compiled_run
from tkdebug.instrument.passes.query import PassQuery
from tkdebug.instrument.passes_report import render_passes
from tkdebug.instrument.renderers.formats import PASSES, format_by_name


def passes_command(arguments: Arguments) -> int:
    """Print the passes on stdout, or write them into a file; the result is the exit status.

    Raises:
        TkError: there is nothing to show, or something about the command line is wrong.
    """
    check_output(arguments)
    format_name = arguments.format or format_by_name(arguments.output, PASSES)
    query = arguments.passes or PassQuery()
    with compiled_run(arguments) as run:
        view = view_of_answer(arguments.output)
        put_out(render_passes(run.session, query, format_name, view), arguments.output)
        return run.status
