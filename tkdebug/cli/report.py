"""`tkdebug report`: a recorded run as text or JSON."""

from __future__ import annotations

from tkdebug.cli.arguments import Arguments
from tkdebug.cli.places import check_writable, put_out
from tkdebug.instrument.reader import Session
from tkdebug.instrument.report import render, write_report


def report_command(arguments: Arguments) -> int:
    """Print the report on stdout, or write it into a file; the result is the exit status.

    Raises:
        SessionError: the session cannot be read.
        UsageError: the file cannot be written.
    """
    path, output = arguments.session, arguments.output
    assert path is not None
    with Session.open(path) as session:
        if output is None:
            put_out(render(session, arguments.format))
            return 0
        check_writable("-o", output, {"the session": path})
        write_report(session, output, arguments.format)
    return 0
