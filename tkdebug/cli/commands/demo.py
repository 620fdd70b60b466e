"""`tkdebug demo`: a recorded run that comes with the package."""

from __future__ import annotations

import argparse
from pathlib import Path

from tkdebug.cli.command import Command
from tkdebug.cli.options import add_output
from tkdebug.errors import UsageError


class DemoCommand(Command):
    """Opens the recorded run in the TUI, serves its page, or writes it or another report."""

    help = "show a recorded run at once, without a GPU and without a script"
    description = (
        "Open a run that was recorded with an access past the end of a tensor, a wrong result with "
        "its cause, advice, watched values and every stage: in the TUI, as a page at a local "
        "address, or as a file. Its script is examples/demo/layer.py."
    )

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the ways to show it."""
        parser.add_argument("--web", action="store_true", help="serve its page, as view --web does")
        add_output(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Show it; the result is the exit status."""
        from tkdebug.process.temporary_folders import TemporaryFolder

        folder = TemporaryFolder("demo")
        try:
            path = folder.path / "demo.tkd"
            path.write_bytes(recorded_demo())
            return _show(path, options)
        finally:
            folder.remove()


COMMAND = DemoCommand()


def recorded_demo() -> bytes:
    """Return the session; `docs/demo_session.py` makes it.

    Raises:
        UsageError: this Python cannot unpack it.
    """
    from importlib.resources import files

    try:
        import lzma
    except ImportError:
        raise UsageError("demo: this Python was built without lzma; use another one") from None
    return lzma.decompress((files("tkdebug.cli") / "demo.tkd.xz").read_bytes())


def _show(path: Path, options: argparse.Namespace) -> int:
    from tkdebug.cli.commands.report import report_session
    from tkdebug.cli.commands.view import serve_page
    from tkdebug.terminal.display import has_terminal, has_textual

    if options.web:
        return serve_page(path, 0)
    if options.output is None and has_terminal() and has_textual():
        from tkdebug.cli.runs.live import view_or_run

        return view_or_run(path)
    report_session(path, options.output)
    return 0
