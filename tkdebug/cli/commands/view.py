"""`tkdebug view`: a recorded run in the TUI."""

from __future__ import annotations

import argparse
from pathlib import Path

from tkdebug.cli.command import Command
from tkdebug.cli.options import SESSION_HELP
from tkdebug.errors import UsageError


class ViewCommand(Command):
    """Opens a session in the TUI; the ranks of a folder are printed side by side."""

    help = "open a recorded run in the TUI"
    description = (
        "Open a recorded run in the TUI, here or on another machine than where it ran; one that "
        "goes on is followed. ? shows the keys, q leaves."
    )

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the session."""
        parser.add_argument("session", type=Path, metavar="run.tkd|FOLDER", help=SESSION_HELP)

    def run(self, options: argparse.Namespace) -> int:
        """Open the session; the result is the exit status."""
        from tkdebug.instrument.session import Session
        from tkdebug.terminal.display import has_terminal, has_textual

        path: Path = options.session
        if path.is_dir():
            from tkdebug.cli.commands.report import ranks_of_folder
            from tkdebug.cli.places import put_out

            put_out(ranks_of_folder(path, as_json=False))
            return 0
        Session.open(path).close()
        if not has_textual():
            raise UsageError("view: the TUI needs the package textual; pip install textual")
        if not has_terminal():
            raise UsageError(
                f"view: needs a terminal; `tkdebug report {path}` prints the run as text"
            )
        from tkdebug.tui.live import view

        return view(path)


COMMAND = ViewCommand()
