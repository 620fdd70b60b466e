"""`tkdebug passes`: what each compiler pass did, of a recorded run or of a script run for it."""

from __future__ import annotations

import sys

from tkdebug.cli.arguments import Arguments
from tkdebug.cli.compiled_run import compiled_run
from tkdebug.cli.places import check_writable
from tkdebug.instrument.pass_query import PassQuery
from tkdebug.instrument.passes_report import render_passes


def passes_command(arguments: Arguments) -> int:
    """Print the passes on stdout, or write them into a file; the result is the exit status.

    Raises:
        TkError: there is nothing to show, or something about the command line is wrong.
    """
    output = arguments.output
    if output is not None:
        check_writable("-o", output)
    query = arguments.passes or PassQuery()
    with compiled_run(arguments) as session:
        pieces = render_passes(session, query, arguments.format)
        if output is not None:
            output.write_text("".join(pieces), encoding="utf-8")
            return 0
        for piece in pieces:
            sys.stdout.write(piece)
        sys.stdout.flush()
    return 0
