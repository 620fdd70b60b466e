"""`tkdebug report`: a recorded run as text, JSON and the other formats of `REPORTS`."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug.cli.command import Command
from tkdebug.cli.options import (
    REPORT_FORMATS,
    REPORT_FORMATS_TEXT,
    SESSION_HELP,
    add_kernel,
    add_output,
)
from tkdebug.errors import UsageError
from tkdebug.instrument.renderers.formats import ANSWERS, format_by_name
from tkdebug.plugins import WithPlugins

if TYPE_CHECKING:
    from tkdebug.instrument.session import Session


class ReportCommand(Command):
    """Prints the report of a session, or of a folder of them, or writes it into a file."""

    help = "print the report of a run, or of several"
    description = (
        "Print the report of a recorded run: launches and times by kernel, and each fault with its "
        "line. The JSON's keys are described in docs/json.md."
    )

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the session, and how it is reported."""
        parser.add_argument(
            "session",
            type=Path,
            metavar="run.tkd|FOLDER",
            help=f"{SESSION_HELP}; of a folder of such runs, its ranks side by side",
        )
        parser.add_argument(
            "others",
            type=Path,
            nargs="*",
            default=[],  # else argparse says that it is required
            metavar="other.tkd",
            help="further runs, such as those of jobs among which tests were split: one answer "
            "about the faults of all, as text, json, sarif or junit; of the format html two, side "
            "by side",
        )
        parser.add_argument(
            "--format",
            choices=WithPlugins(REPORT_FORMATS, "tkdebug.renderers"),
            metavar="FORMAT",
            help=f"{REPORT_FORMATS_TEXT}; by the name of the file of -o, else text",
        )
        add_output(parser)
        add_kernel(parser, "name or pattern: times, faults and all else")

    def run(self, options: argparse.Namespace) -> int:
        """Report the session; the result is the exit status."""
        path, output = options.session, options.output
        if options.others:
            return _report_several([path, *options.others], output, options.format, options.kernel)
        # `os.path` takes what cannot be looked at, such as a name of 300 letters, for no folder.
        if os.path.isdir(path):
            return _report_ranks(path, output, options.format, options.kernel)
        report_session(path, output, options.format, options.kernel)
        return 0


COMMAND = ReportCommand()


def report_session(
    path: Path, output: Path | None, asked: str | None = None, kernel: str | None = None
) -> None:
    """Report a session.

    Args:
        path: the session.
        output: the file to write; None for stdout.
        asked: the format; None for the one by the file's name.
        kernel: only kernels of that name or pattern.
    """
    from tkdebug.cli.places import check_writable, put_out, view_of_answer
    from tkdebug.instrument.report import render, write_report
    from tkdebug.instrument.session import Session

    with Session.open(path) as session:
        if kernel is not None:
            session.narrow(session.kernel_names(kernel))
        if output is None:
            view = view_of_answer(output)
            put_out(render(session, asked or "text", view), styled=view.style.is_on)
            return
        check_writable("-o", output, {"the session": path})
        write_report(session, output, asked or _format_of(output))


def _report_several(
    paths: Sequence[Path], output: Path | None, asked: str | None, kernel: str | None
) -> int:
    """Report several runs: two of them on one page, or the faults of all."""
    from tkdebug.cli.places import check_writable, put_out
    from tkdebug.instrument.renderers.joined import render_joined
    from tkdebug.instrument.renderers.page import render_comparison
    from tkdebug.instrument.session import Session

    format_name = asked or ("text" if output is None else _format_of(output))
    if any(path.suffix == ".json" for path in paths):
        raise UsageError(
            f"{' '.join(map(str, paths))}: expected recorded runs (run.tkd); "
            "`tkdebug verify --join` joins answers of verify"
        )
    if len({os.path.realpath(path) for path in paths}) < len(paths):
        raise UsageError(f"{' '.join(map(str, paths))}: a run is given twice; name each once")
    if output is not None:
        check_writable("-o", output, {f"the session {path}": path for path in paths})
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(Session.open(path)) for path in paths]
        if kernel is not None:
            _narrow(sessions, kernel)
        if format_name == "html" and len(sessions) == 2:
            put_out(render_comparison(*sessions), output)
        else:
            put_out(render_joined(sessions, format_name), output)
    return 0


def _report_ranks(folder: Path, output: Path | None, asked: str | None, kernel: str | None) -> int:
    """Report the runs of a folder, rank by rank."""
    from tkdebug.cli.places import check_writable, put_out

    format_name = asked or format_by_name(output, ANSWERS)
    if format_name not in ("text", "json"):
        raise UsageError(f"--format {format_name}: of a folder there are text and json")
    if output is not None:
        check_writable("-o", output, {})
    put_out(ranks_of_folder(folder, format_name == "json", kernel), output)
    return 0


def ranks_of_folder(folder: Path, as_json: bool, kernel: str | None = None) -> tuple[str, ...]:
    """The text or JSON of a folder's ranks, side by side, in pieces.

    Args:
        folder: the folder of the sessions.
        as_json: whether the answer is for programs.
        kernel: only kernels of that name or pattern, which no rank need have alone.

    Raises:
        SessionError: one of the sessions cannot be read.
        UsageError: there is no session.
    """
    from tkdebug.instrument.analyses.ranks import compare_ranks, sessions_in
    from tkdebug.instrument.renderers.ranks_formats import ranks_json, ranks_text
    from tkdebug.instrument.session import Session
    from tkdebug.terminal.text import visible

    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(Session.open(path)) for path in sessions_in(folder)]
        if kernel is not None:
            _narrow(sessions, kernel)
        ranks = compare_ranks(sessions)
    if as_json:
        return (ranks_json(ranks),)
    return tuple(visible(piece) for piece in ranks_text(ranks))


def _narrow(sessions: Sequence[Session], kernel: str) -> None:
    """Narrow the ranks to kernels of that name.

    Raises:
        UsageError: no rank has one.
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


def _format_of(output: Path) -> str:
    """Return the format by the file's name, or text if that has no suffix.

    Raises:
        UsageError: the suffix is no format's.
    """
    from tkdebug.instrument.report import format_of

    return format_of(output, "--format") if output.suffix else "text"
