"""`tkdebug report`: a recorded run as text, JSON and what else `RENDERERS` has."""

from __future__ import annotations

from pathlib import Path

from tkdebug.cli.arguments import Arguments
from tkdebug.cli.places import check_writable, put_out, view_of_answer
from tkdebug.instrument.report import format_of, render, write_report
from tkdebug.instrument.session import Session


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
            view = view_of_answer(output)
            report = render(session, arguments.report_format or "text", view)
            put_out(report, styled=view.style.is_on)
            return 0
        check_writable("-o", output, {"the session": path})
        write_report(session, output, _file_format(arguments, output))
    return 0


def _file_format(arguments: Arguments, output: Path) -> str:
    """The format as asked, by the file's name, or text where that has no suffix.

    Raises:
        UsageError: it has one that says no format.
    """
    if arguments.report_format is not None:
        return arguments.report_format
    return format_of(output, "--format") if output.suffix else "text"
