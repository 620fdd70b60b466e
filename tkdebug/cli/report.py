"""`tkdebug report`: a recorded run as text or JSON."""

from __future__ import annotations

import sys

from tkdebug.cli.arguments import Arguments
from tkdebug.cli.places import check_writable
from tkdebug.errors import UsageError
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
            for piece in render(session, arguments.format):
                sys.stdout.write(piece)
            sys.stdout.flush()
            return 0
        if output.exists() and output.samefile(path):
            raise UsageError(f"-o {output}: is the session itself; choose another name")
        check_writable("-o", output)
        write_report(session, output, arguments.format)
    return 0
