"""The two ways into the app: over a recorded session, and over a script that it starts."""

from __future__ import annotations

import contextlib
import gc
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug.debugger.remote.records import Wire
from tkdebug.errors import UnsupportedError
from tkdebug.instrument.session import Session
from tkdebug.terminal.text import tell
from tkdebug.tui.app import TkdebugApp
from tkdebug.tui.debug.link import DebugLink
from tkdebug.tui.home.pane import HomePane
from tkdebug.tui.next_run import Again
from tkdebug.tui.session.follow import AwaitedSession

if TYPE_CHECKING:
    from tkdebug.tui.script.child import Child


# How long a thread that reads the session may keep a key waiting.
_LONGEST_TURN_S = 0.001


def answer_keys_soon() -> None:
    """Keep collections of garbage and turns of other threads short, for the rest of the process."""
    gc.collect()
    gc.freeze()  # what was imported stays; to look through it each time takes longer than a key
    sys.setswitchinterval(_LONGEST_TURN_S)


@dataclass(frozen=True, slots=True)
class DebugEnds:
    """A connected pair of sockets, for the TUI and for the script's process."""

    ours: socket.socket
    theirs: socket.socket

    @classmethod
    def made(cls) -> DebugEnds:
        """Return a new pair of connected sockets."""
        return cls(*socket.socketpair())


def view(session_path: Path) -> tuple[int, Again | None]:
    """Show a recorded session until the user quits.

    Returns:
        0, and the request to run its script again; None for none.

    Raises:
        SessionError: the session cannot be opened.
    """
    app = TkdebugApp(Session.open(session_path), opens=HomePane.TAB)
    answer_keys_soon()
    try:
        app.run()
    finally:
        app.close_session()
    return app.return_code or 0, app.again


def run_live(
    argv: list[str],
    session_path: Path,
    owns_session: bool,
    debugged: DebugEnds | None = None,
    commands: Sequence[str] = (),
    opens: str = HomePane.TAB,
    saves: tuple[str, ...] = (),
) -> tuple[int, Again | None]:
    """Start a script on a pty of its own and show its session while it is recorded.

    Args:
        argv: the command; it creates the session at `session_path` and records to it.
        session_path: the file of the session.
        owns_session: delete the session at the end, unless the script runs on without the TUI.
        debugged: the socket to the debugger in the command's process; both ends are closed.
        commands: the first commands of the debugger.
        opens: the tab of the pane to begin with.
        saves: the files that start another run when one of them is saved.

    Returns:
        The command's own exit status (3 where faults were recorded), 128 + N when signal N ended
        it, 0 when the user let it run on; and the request to run it again, or None.

    Raises:
        UsageError: the command cannot be started.
        UnsupportedError: this system has no ptys.
    """
    try:
        # POSIX only, while recorded sessions open anywhere.
        from tkdebug.tui.script.child import Child
    except ImportError as error:
        raise UnsupportedError(
            f"the live TUI needs a POSIX terminal ({error}); use --no-tui, then `tkdebug view`"
        ) from error
    session_path = session_path.absolute()
    awaited = AwaitedSession(session_path)
    inherited = () if debugged is None else (debugged.theirs.fileno(),)
    child = Child(argv, rows=24, columns=80, descriptors=inherited)
    link = None
    if debugged is not None:
        debugged.theirs.close()
        link = DebugLink(Wire(debugged.ours), commands)
    app = TkdebugApp(awaited, child, link, opens, saves)
    answer_keys_soon()
    try:
        app.run()
        if app.runs_on and child.status is None:
            return _let_run_on(child, session_path), None
    finally:
        if not (app.runs_on and child.status is None):
            child.stop()
        child.close()
        app.close_session()
    if owns_session:
        _delete(session_path)
    status = child.stop()
    return status if status >= 0 else 128 - status, app.again


def _let_run_on(child: Child, session_path: Path) -> int:
    log_path = session_path.with_name(session_path.name + ".log")
    child.detach(log_path)
    tell(
        f"the script runs on as process {child.pid}; `tkdebug view {session_path}` "
        f"follows it, its output also goes to {log_path}"
    )
    return 0


def _delete(session_path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            session_path.with_name(session_path.name + suffix).unlink()
