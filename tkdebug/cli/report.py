"""`tkdebug report`: a recorded run as text, JSON and what else `RENDERERS` has."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from tkdebug.cli.command_line.arguments import Arguments
from tkdebug.cli.places import check_writable, put_out, view_of_answer
from tkdebug.errors import UsageError
from tkdebug.instrument.analyses.ranks import compare_ranks, sessions_in
from tkdebug.instrument.renderers.formats import ANSWERS, format_by_name
from tkdebug.instrument.renderers.ranks_formats import ranks_json, ranks_text
from tkdebug.instrument.report import format_of, render, write_report
from tkdebug.instrument.session import Session
from tkdebug.terminal_text import visible


def report_command(arguments: Arguments) -> int:
    """Print the report on stdout, or write it into a file; the result is the exit status.

    Raises:
        SessionError: the session cannot be read.
        UsageError: the file cannot be written.
    """
    path, output = arguments.session, arguments.output
    assert path is not None
    # `os.path` takes what cannot be looked at, such as a name of 300 letters, for no folder.
    if os.path.isdir(path):
        return _report_ranks(arguments, path)
    with Session.open(path) as session:
        if arguments.kernel is not None:
            session.narrow(session.kernel_names(arguments.kernel))
        if output is None:
            view = view_of_answer(output)
            report = render(session, arguments.report_format or "text", view)
            put_out(report, styled=view.style.is_on)
            return 0
        check_writable("-o", output, {"the session": path})
        write_report(session, output, _file_format(arguments, output))
    return 0


def _report_ranks(arguments: Arguments, folder: Path) -> int:
    """The runs of a folder, rank by rank."""
    output = arguments.output
    format_name = arguments.report_format or format_by_name(output, ANSWERS)
    if format_name not in ("text", "json"):
        raise UsageError(f"--format {format_name}: of a folder there are text and json")
    if output is not None:
        check_writable("-o", output, {})
    put_out(ranks_of_folder(folder, format_name == "json", arguments.kernel), output)
    return 0


def ranks_of_folder(folder: Path, as_json: bool, kernel: str | None = None) -> tuple[str, ...]:
    """The ranks whose sessions lie in a folder, side by side.

    Args:
        folder: where they are.
        as_json: for programs.
        kernel: only kernels of that name or pattern, which no rank need have alone.

    Raises:
        SessionError: one of them cannot be read.
        UsageError: there is none.
    """
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(Session.open(path)) for path in sessions_in(folder)]
        if kernel is not None:
            _narrow(sessions, kernel)
        ranks = compare_ranks(sessions)
    if as_json:
        return (ranks_json(ranks),)
    return tuple(visible(piece) for piece in ranks_text(ranks))


def _narrow(sessions: Sequence[Session], kernel: str) -> None:
    """Have ranks tell of kernels of that name alone.

    Raises:
        UsageError: none has one.
    """
    problem: UsageError | None = None
    for session in sessions:
        names: tuple[str, ...] = ()
        try:
            names = session.kernel_names(kernel)
        except UsageError as error:
            problem = error
        session.narrow(names)
    if problem is not None and not any(session.kernel_summaries() for session in sessions):
        raise problem


def _file_format(arguments: Arguments, output: Path) -> str:
    """The format as asked, by the file's name, or text where that has no suffix.

    Raises:
        UsageError: it has one that says no format.
    """
    if arguments.report_format is not None:
        return arguments.report_format
    return format_of(output, "--format") if output.suffix else "text"
