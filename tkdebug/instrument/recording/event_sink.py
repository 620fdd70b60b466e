"""The receiver of a recorder's events: a thread of this process, or another process.

It begins with the thread, which costs a short run nothing. Once CUDA is in use, or many events have
come, a recording process takes over, as Python code beside the script holds the script up. Events
in the thread are stored before. Responsible for that change, and for forks: a child begins with a
thread of its own.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug.instrument.session_file.queued_events import Event
from tkdebug.instrument.session_file.writer import SessionWriter, flush_at_process_exit
from tkdebug.knobs import KNOBS
from tkdebug.process.forks import follow_forks
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.instrument.recording_process.client import RecordingProcess

MOVED_AFTER = 2000  # events


class EventSink:
    """Takes the events of one recorder.

    Args:
        path: the session.
        is_child: whether another process may end this one at any time.
        left: called in a forked child, and where recording has stopped.

    Attributes:
        put: takes an event, from any thread.
        process: the recording process, None if there is none.
    """

    def __init__(self, path: Path, is_child: bool, left: Callable[[], None]) -> None:
        self._path = path
        self._left = left
        self._is_child = is_child
        self._writer = SessionWriter(path, is_child=is_child)
        self._moving = threading.RLock()
        self._is_closed = False
        self._begin_here()
        follow_forks(after_in_child=self.after_fork_in_child)

    def _begin_here(self) -> None:
        self.process: RecordingProcess | None = None
        self.put: Callable[[Event], None] = self._put_here
        self._may_move = KNOBS.recording_process and hasattr(os, "memfd_create")
        self._count = itertools.count(1)

    @property
    def error(self) -> str | None:
        """The reason why recording stopped before `close`, if it did."""
        return self._writer.error or (self.process.error if self.process is not None else None)

    def _put_here(self, event: Event) -> None:
        self._writer.put(event)
        if self._may_move and next(self._count) >= MOVED_AFTER and not self._writer.is_locked:
            self.move()

    def move(self) -> RecordingProcess | None:
        """Let a recording process take over, and return it; None if there can be none."""
        with self._moving:
            if not self._may_move or self._is_closed or self._writer.error is not None:
                return self.process
            # First, as a signal handler may come here, too.
            self._may_move = False
            # An event that cannot be stored here cannot be there.
            self._writer.rest()
            if self._writer.error is not None:
                return None
            if self._writer.is_locked:
                self._may_move = True  # what waits here is to be stored first
                return None
            # Most runs without a GPU end before they need it.
            from tkdebug.instrument.recording_process.client import CannotStart, RecordingProcess

            try:
                process = RecordingProcess(self._path)
            except CannotStart as error:
                tell(
                    f"{self._path}: no recording process ({error}); launches are recorded in this "
                    "one, which takes the script more time"
                )
                return None
            process.failed = self._left
            self.process = process
            if self._is_child:
                flush_at_process_exit(self)
            self.put = process.put
        self._writer.rest()
        return process

    def flush(self, timeout_s: float = 60.0) -> None:
        """Wait until all events so far are in the file."""
        self._writer.flush(timeout_s)
        if self.process is not None:
            self.process.flush(timeout_s)

    def close(self) -> None:
        """Store what came; later events are dropped."""
        self._is_closed = True
        self._writer.close()
        if self.process is not None:
            self.process.close()

    def after_fork_in_child(self) -> None:
        """Forget the recording process, which is the parent's."""
        self._moving = threading.RLock()
        self._is_child = True
        if self.process is not None:
            self.process.leave()
            self._left()
        self._begin_here()
