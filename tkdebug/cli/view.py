"""`tkdebug view`: a recorded run in the TUI."""

from __future__ import annotations

from tkdebug.cli.command_line.arguments import Arguments
from tkdebug.errors import UsageError
from tkdebug.instrument.session import Session


def view_command(arguments: Arguments) -> int:
    """Open the session in the TUI; the result is the exit status.

    Of a folder the ranks are printed side by side.

    Raises:
        SessionError: the session cannot be read.
        UsageError: there is no terminal, or no textual.
    """
    from tkdebug.cli.terminal import has_terminal, has_textual

    path = arguments.session
    assert path is not None
    if path.is_dir():
        from tkdebug.cli.places import put_out
        from tkdebug.cli.report import ranks_of_folder

        put_out(ranks_of_folder(path, as_json=False))
        return 0
    Session.open(path).close()
    if not has_textual():
        raise UsageError("view: the TUI needs the package textual; pip install textual")
    if not has_terminal():
        raise UsageError(f"view: needs a terminal; `tkdebug report {path}` prints the run as text")
    from tkdebug.tui.live import view

    return view(path)
