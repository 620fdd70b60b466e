"""The threads of the app, which follow session, output and debugger; they only post."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.message import Message

from tkdebug.errors import SessionError
from tkdebug.instrument.session import Session
from tkdebug.tui.debug.link import DebugLink
from tkdebug.tui.messages import OutputChanged, ScriptEnded, SessionFailed, SnapshotTaken
from tkdebug.tui.script.terminal import Terminal
from tkdebug.tui.session.follow import AwaitedSession, Follower
from tkdebug.tui.session.snapshot import ScriptState, Snapshot

if TYPE_CHECKING:
    from tkdebug.tui.script.child import Child

POLL_S = 0.15
POLL_ENDED_S = 1.0
# Keys wait for a thread that reads: it rests so many times as long as it read.
_REST = 4


class Feed:
    """The app's sources of events in a run.

    Args:
        session: a recorded one, or one still to be created by `child`.
        child: the script, when it is the app that started it.
        link: the link to the debugger of the script, if there is one.
        post: takes messages, from any thread.

    Attributes:
        session: the session; None before there is one.
        terminal: the script's output.
    """

    def __init__(
        self,
        session: Session | AwaitedSession,
        child: Child | None,
        link: DebugLink | None,
        post: Callable[[Message], object],
    ) -> None:
        self._awaited = session if isinstance(session, AwaitedSession) else None
        self.session = None if isinstance(session, AwaitedSession) else session
        self.terminal = Terminal()
        self._reads_rows = False
        self._child, self._link = child, link
        self._post = post
        self._quits = False
        self._woken = threading.Event()

    def stop(self) -> None:
        """Let the threads end."""
        self._quits = True
        self._woken.set()
        if self._child is not None:
            self._child.stop_pump()
        if self._link is not None:
            self._link.close()

    def read_launches(self, reads_rows: bool) -> None:
        """Begin or stop to read launches one by one, which only panes that list them need."""
        is_news, self._reads_rows = reads_rows and not self._reads_rows, reads_rows
        if is_news:
            self._woken.set()

    def _waited(self, interval_s: float) -> bool:
        """Wait for an interval, or until woken; return whether the thread is to end."""
        self._woken.wait(interval_s)
        self._woken.clear()
        return self._quits

    def follow(self) -> None:
        """Post new records of the session, until `stop`. In a thread."""
        follower: Follower | None = None
        last: tuple[Snapshot | None, ScriptState] | None = None
        interval_s = 0.0
        while not self._waited(interval_s):
            interval_s, begin_s = POLL_S, time.monotonic()
            try:
                follower = follower or self._open()
                if follower is None:
                    continue
                news = (follower.poll(reads_rows=self._reads_rows), self._state(follower))
                printed = follower.poll_output()
            except SessionError as error:
                last = None
                self._post(SessionFailed(str(error)))
                interval_s = POLL_ENDED_S
                continue
            interval_s = max(POLL_S, _REST * (time.monotonic() - begin_s))
            if printed:
                self._post_output()
            if last is None or news[0] != last[0] or news[1] != last[1]:
                last = news
                self._post(SnapshotTaken(*news))
            elif not news[1].going_on and not printed:
                interval_s = POLL_ENDED_S

    def pump(self) -> None:
        """Post the script's output, and its end. In a thread."""
        child = self._child
        if child is None:
            return
        child.pump(self.terminal.feed, self._post_output)
        if child.status is not None:
            self._post(ScriptEnded())

    def listen(self) -> None:
        """Post the debugger's messages, until it has gone. In a thread."""
        if self._link is not None:
            self._link.read(self._post)

    def _open(self) -> Follower | None:
        if self.session is None and self._awaited is not None:
            self.session = self._awaited.open()
        if self.session is None:
            return None
        # The pty has all that a script of ours prints; of others, the session has the most.
        return Follower(self.session, self.terminal.feed if self._child is None else None)

    def _state(self, follower: Follower) -> ScriptState:
        return follower.state() if self._child is None else child_state(self._child)

    def _post_output(self) -> None:
        self._post(OutputChanged(self.terminal.snapshot()))


def child_state(child: Child) -> ScriptState:
    """Return the state of a script by its process."""
    status = child.status
    if status is None:
        return ScriptState("running", process=child.pid)
    if status < 0:
        return ScriptState("signalled", -status, child.pid)
    return ScriptState("ended", status, child.pid)
