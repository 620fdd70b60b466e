"""The recording process: reads the script's packed launches, joins and stores them.

It imports neither torch nor anything of the script's. It has a session of its own, so that Ctrl-C
does not reach it, and ends when the script does: once the script's process has closed its end, or
has died, however that was (a pidfd shows it; a forked child may hold the socket open for long).
Then everything in the shared memory and in the socket is stored, and the file closed.

Invariants: whatever a launch in the ring refers to is known, or the launch waits for it; the
session of a script that was killed is not completed by guesses: its run has no end, and nor have
launches whose end was not received.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import signal
import socket
import sqlite3
import sys
import time
from pathlib import Path

from tkdebug.errors import TkError
from tkdebug.instrument.recording_process.channel import (
    DESCRIPTOR_NUMBER,
    Channel,
    ChannelClosed,
    Message,
)
from tkdebug.instrument.recording_process.received import Received
from tkdebug.instrument.recording_process.ring import RingReader
from tkdebug.instrument.session_file.lock import SessionLock
from tkdebug.instrument.session_file.queued_events import Event
from tkdebug.instrument.session_file.store import LOCKED, MAX_WAITING_EVENTS, SessionStore
from tkdebug.instrument.session_file.tables import BUSY_TIMEOUT_S

ROUND_S = 0.02
IDLE_S = 0.05
CHECKPOINT_S = 1.0
NAMES_S = 5.0
LOCKED_S = 0.3
_BATCH = 20_000


class RecordingEnd:
    """The other end of `client.RecordingProcess`."""

    def __init__(self, settings: dict[str, object]) -> None:
        self._channel = Channel(socket.socket(fileno=int(str(settings["channel"]))))
        self._ring = RingReader(int(str(settings["ring"])))
        self._watched = int(str(settings["watched"]))
        self._path = Path(str(settings["path"]))
        self._lock = SessionLock(self._path)
        self._descriptors = socket.socket(fileno=int(str(settings["descriptors"])))
        self._incoming = Received(self._ask, self._shown_memory)
        self._asked: list[int] = []
        self._shown: dict[int, int] = {}
        self._is_ended = False
        self._is_gone = False
        self._checkpoint_due_s: float | None = None
        self._unstored: list[Event] = []
        self._locked_since_s: float | None = None
        self._has_told_lock = False
        # Not `select`, which refuses numbers from 1024 on: a script may have many files open.
        self._poll = select.poll()
        self._poll.register(self._channel.fileno(), select.POLLIN)
        self._poll.register(self._watched, select.POLLIN)
        self._await_begin()
        if not self._lock.share(BUSY_TIMEOUT_S):
            raise self._lock.in_use()
        process, rank = int(str(settings["process"])), int(str(settings["rank"]))
        self._store = SessionStore(self._path, process, rank)

    def _await_begin(self) -> None:
        """Wait until this process is needed, and end it if the script ends before."""
        self._poll.poll()
        if not self._received():
            os._exit(0)

    def run(self) -> None:
        """Record until the script's process is done."""
        self._ask("ready", os.getpid())
        is_busy = False
        while not (self._is_ended or self._is_gone):
            found = self._poll.poll(1000 * (ROUND_S if is_busy else IDLE_S))
            self._is_gone = any(descriptor == self._watched for descriptor, _ in found)
            is_busy = self._round()
            self._checkpoint()
            if is_busy and not self._is_ended:
                # Events that come together are stored together.
                time.sleep(ROUND_S / 4)
        self._await_names()
        while self._round():
            pass
        self._unstored += self._incoming.left(self._is_gone)
        self._store_all()
        self._store.close()

    def _await_names(self) -> None:
        """Wait for names from the script's process, which answers before it ends."""
        ends_s = time.monotonic() + NAMES_S
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        while self._incoming.wants_names and not self._is_gone and time.monotonic() < ends_s:
            poll.poll(1000 * ROUND_S)
            self._round()

    def _round(self) -> bool:
        """Read and store what has come; return whether messages or launches had come."""
        before = self._ring.head()
        messages = self._received()
        events = self._incoming.messages(message for message in messages if self._is_for(message))
        # After the messages, since an end may be among them of a launch that came meanwhile; what
        # these launches refer to was sent before, if not yet received.
        read = max(before, self._ring.head())
        launches = self._ring.take(read)
        events += self._incoming.launches(launches, read)
        events += self._incoming.joined()
        events += self._incoming.seen()
        self._unstored += events
        self._store_some()
        if self._is_locked():
            if self._asked or not self._has_told_lock:
                self._ask("locked", max(self._asked, default=0))
                self._asked.clear()
                self._has_told_lock = True
        elif not (self._unstored or self._incoming.has_ends_in_slots):
            for number in self._asked:
                self._ask("stored", number)
            self._asked.clear()
        if events and self._checkpoint_due_s is None:
            self._checkpoint_due_s = time.monotonic() + CHECKPOINT_S
        return bool(messages or launches)

    def _store_some(self) -> None:
        """Store arrivals; while another connection has the file locked, keep them in memory.

        Raises:
            sqlite3.OperationalError: too many events wait for the lock.
        """
        while self._unstored:
            if not self._store.write(self._unstored[:_BATCH]):
                break
            del self._unstored[:_BATCH]
        since_s = self._locked_since_s
        self._locked_since_s = (since_s or time.monotonic()) if self._unstored else None
        if len(self._unstored) > MAX_WAITING_EVENTS:
            raise sqlite3.OperationalError(f"{LOCKED}, while {MAX_WAITING_EVENTS:,} events came")

    def _is_locked(self) -> bool:
        """Whether the file has been locked for so long that flushes stop waiting for it."""
        since_s = self._locked_since_s
        return since_s is not None and time.monotonic() > since_s + LOCKED_S

    def _store_all(self) -> None:
        """Store all at the end, and wait while another connection has the file locked.

        Raises:
            sqlite3.OperationalError: it takes too long.
        """
        ends_s = time.monotonic() + BUSY_TIMEOUT_S
        self._store_some()
        while self._unstored:
            if time.monotonic() > ends_s:
                raise sqlite3.OperationalError(f"{LOCKED}, for {BUSY_TIMEOUT_S:g} s at the end")
            time.sleep(ROUND_S)
            self._store_some()

    def _shown_memory(self, number: int) -> mmap.mmap:
        """Map the shared memory of that number; its descriptor was sent before its message."""
        while number not in self._shown:
            data, (descriptor,), _, _ = socket.recv_fds(
                self._descriptors, DESCRIPTOR_NUMBER.size, 1
            )
            self._shown[DESCRIPTOR_NUMBER.unpack(data)[0]] = descriptor
        descriptor = self._shown.pop(number)
        try:
            return mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)

    def _received(self) -> list[Message]:
        try:
            return self._channel.receive()
        except ChannelClosed:
            self._is_gone = True
            return []

    def _is_for(self, message: Message) -> bool:
        """Whether a message is for `Received`; a request to this process is noted here instead."""
        if message[0] == "flush":
            self._asked.append(message[1])
        elif message[0] == "end":
            self._is_ended = True
        else:
            return True
        return False

    def _checkpoint(self) -> None:
        if self._checkpoint_due_s is not None and time.monotonic() >= self._checkpoint_due_s:
            self._store.checkpoint()
            self._checkpoint_due_s = None

    def _ask(self, *message: object) -> None:
        with contextlib.suppress(ChannelClosed):
            self._channel.send(*message)

    def conclude(self, error: Exception | None) -> None:
        """Report to the script's process how recording ended."""
        self._lock.release()
        if error is None:
            self._ask("done")
        else:
            self._ask("failed", str(error) or type(error).__name__)


def main() -> None:
    """Record as `argv[1]` says."""
    for name in ("SIGINT", "SIGHUP", "SIGTERM", "SIGPIPE"):
        # These signals may end the script; this process has to store everything after that.
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    settings = json.loads(sys.argv[1])
    try:
        end = RecordingEnd(settings)
    except Exception as error:
        channel = Channel(socket.socket(fileno=settings["channel"]))
        channel.send("failed", str(error))
        os._exit(1)
    try:
        end.run()
    except (Exception, TkError) as error:
        end.conclude(error)
        os._exit(1)
    end.conclude(None)
    # Nothing is left to tidy up, and the script waits.
    os._exit(0)
