"""`tkdebug view`: a recorded run in the TUI, or in a browser."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from tkdebug.cli.command import Command
from tkdebug.cli.options import SESSION_HELP
from tkdebug.errors import SessionError, UsageError


class ViewCommand(Command):
    """Opens a session in the TUI; the ranks of a folder are printed side by side."""

    help = "open a recorded run in the TUI"
    description = (
        "Open a recorded run in the TUI, here or on another machine than where it ran; one that "
        "goes on is followed. ? shows the keys, q leaves."
    )

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the session."""
        parser.add_argument(
            "session",
            type=Path,
            nargs="?",
            metavar="run.tkd|FOLDER",
            help=f"{SESSION_HELP}; without it, one of those in the current folder",
        )
        parser.add_argument(
            "--web",
            action="store_true",
            help="serve its page to browsers of this machine, while the run goes on, too",
        )
        parser.add_argument(
            "--port",
            type=int,
            metavar="PORT",
            help="of --web, on 127.0.0.1; by default any",
        )

    def check(self, parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
        """Refuse a port that nothing listens at."""
        if options.port is not None and not options.web:
            parser.error("--port: is of --web; give both")

    def run(self, options: argparse.Namespace) -> int:
        """Open the session; the result is the exit status."""
        from tkdebug.instrument.session import Session
        from tkdebug.terminal.display import has_terminal, has_textual

        path: Path | None = options.session
        can_ask = not options.web and has_textual() and has_terminal()
        if path is None or (path.is_dir() and can_ask and are_unrelated(path)):
            found = recent_sessions(path or Path())
            path = found[0]
            if len(found) > 1 and can_ask:
                from tkdebug.tui.recent import choose_session

                path = choose_session(found)
        if path is None:
            return 0
        if path.is_dir():
            if options.web:
                raise UsageError(f"view --web: {path} is a folder; name one of its sessions")
            from tkdebug.cli.commands.report import ranks_of_folder
            from tkdebug.cli.places import put_out

            put_out(ranks_of_folder(path, as_json=False))
            return 0
        Session.open(path).close()
        if options.web:
            return serve_page(path, options.port or 0)
        if not has_textual():
            raise UsageError("view: the TUI needs the package textual; pip install textual")
        if not has_terminal():
            raise UsageError(
                "view: needs a terminal with UTF-8 (LC_ALL=C.UTF-8); "
                f"`tkdebug report {path}` prints the run as text"
            )
        from tkdebug.cli.runs.live import view_or_run

        return view_or_run(path)


COMMAND = ViewCommand()


def are_unrelated(folder: Path) -> bool:
    """Whether a session in `folder` is of no rank of a run of several, or cannot be read."""
    from tkdebug.instrument.session import Session

    groups = set()
    for path in folder.glob("*.tkd"):
        try:
            with Session.open(path) as session:
                groups.add(session.run().rank_group)
        except SessionError:
            return True  # the list says what is wrong with it
    return None in groups  # a rank of a run of several has a group


def recent_sessions(folder: Path) -> list[Path]:
    """Return the sessions in `folder`, the one that was written last first.

    Raises:
        UsageError: there is no session.
    """
    found = [(path.stat().st_mtime_ns, path) for path in folder.glob("*.tkd") if path.is_file()]
    if not found:
        where = "the current folder" if folder == Path() else str(folder)
        raise UsageError(
            f"view: there is no session (*.tkd) in {where}; name one, or "
            "`tkdebug run -o run.tkd script.py` records one"
        )
    return [path for _, path in sorted(found, reverse=True)]


def serve_page(path: Path, port: int) -> int:
    """Serve the page of the session at `path` until Ctrl-C; the result is the exit status."""
    from tkdebug.instrument.live_page import LivePage, PageServer
    from tkdebug.terminal.text import tell

    with PageServer(LivePage(path), port) as server, contextlib.suppress(KeyboardInterrupt):
        tell(f"{path} is at {server.address} until Ctrl-C")
        server.serve_forever()
    return 0
