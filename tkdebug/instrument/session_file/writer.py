"""The writer of a session file: events go into a queue, one background thread stores them.

Responsible for batching, checkpoints, forks and the end of the process. Not responsible for the
choice of records (`recorder`) nor for storing them (`store`).

Invariants: `put` never touches the disk; a kill loses at most the rows of the last 100 ms or the
last 500 rows, whichever is less (so `put` waits while 500 rows are not yet committed, which only a
starved writer thread lets happen); while another connection has the file locked rows wait in memory
and the script goes on; nothing in `put` holds a lock that a signal handler which prints or launches
could wait for; no connection and no thread is open across a fork; an error stops the recording with
one line on stderr and never the script.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Protocol

from tkdebug.instrument.recording.child_ends import store_before_ending
from tkdebug.instrument.session_file.queued_events import Event
from tkdebug.instrument.session_file.store import (
    LOCK_WAIT_S,
    LOCKED,
    MAX_WAITING_EVENTS,
    SessionStore,
    is_locked,
    remedy,
)
from tkdebug.instrument.session_file.tables import BUSY_TIMEOUT_S, SQLITE_ERRORS
from tkdebug.process.forks import follow_forks
from tkdebug.terminal.text import tell

# Half of what a kill may lose, so that the commit itself is within that bound, too.
BATCH_S = 0.05
BATCH_ROWS = 250
MAX_UNSTORED_ROWS = 500
ROOM_POLL_S = 0.0005
CHECKPOINT_S = 1.0
LAST_STORE_S = 5.0
LOCK_TOLD_S = 1.0
FLUSH_TRIES = 4


class _Stop:
    """Asks the thread to store rows queued before it and to end."""


class SessionWriter:
    """Writes rows into an existing session file, from any thread and across forks.

    Args:
        path: a file made by `session_file.creation.create_session`.
        is_child: whether another process may end this one at any time.
    """

    def __init__(self, path: Path, is_child: bool = False) -> None:
        self.path = path.absolute()
        self.error: str | None = None
        self._closed = False
        self._has_told_lock = False
        self._is_child = is_child
        self._start_fresh()
        follow_forks(
            before=self.before_fork,
            after_in_parent=self.after_fork_in_parent,
            after_in_child=self.after_fork_in_child,
        )

    def put(self, row: Event) -> None:
        """Queue one row; waits while 500 are not yet committed."""
        if self._closed:
            return
        self._queue.put(row)
        if self._thread is None:
            self._start_thread()
        number = next(self._put_count)
        if number - self._stored_count >= BATCH_ROWS:
            self._wake_writer()
            self._await_room(number)

    def flush(self, timeout_s: float = 60.0) -> None:
        """Wait until all rows so far are committed; only briefly while the file is locked."""
        if self._closed or (self._thread is None and not self._has_rows()):
            return
        if threading.current_thread() is self._thread:
            return
        stored = threading.Event()
        self._queue.put(stored)
        if self._thread is None:
            self._start_thread()
        self._wake_writer()
        # The script itself may have locked the file: it would wait for itself.
        ends_s, tries = time.monotonic() + timeout_s, self._refused_tries + FLUSH_TRIES
        while time.monotonic() < ends_s and self._refused_tries < tries:
            if stored.wait(min(timeout_s, LOCK_WAIT_S)):
                return

    def _has_rows(self) -> bool:
        return bool(self._waiting) or not self._queue.empty()

    def close(self) -> None:
        """Store queued rows and end the thread; later rows are dropped."""
        with self._lifecycle:
            self._closed = True
            self._stop_thread()
            # Events that other threads put while the thread ended.
            self._stop_thread()

    def rest(self) -> None:
        """Store queued rows and end the thread, which the next row starts again."""
        with self._lifecycle:
            self._stop_thread()

    def _store_the_last(self) -> None:
        """Store the rest in a handler of a signal that ends the process, perhaps inside `close`."""
        thread = self._thread
        if not self._closed:
            self.flush(LAST_STORE_S)
        elif thread is not None and thread.is_alive():
            self._queue.put(_Stop())
            self._wake_writer()
            thread.join(LAST_STORE_S)

    def _start_fresh(self) -> None:
        self._queue: queue.SimpleQueue[Event | threading.Event | _Stop] = queue.SimpleQueue()
        self._waiting: list[Event] = []
        self._markers: list[threading.Event] = []
        self._locked_since_s: float | None = None
        self._refused_tries = 0
        # A queue, since `Event.set` is not safe against a signal handler that comes here too.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._woken = False
        self._put_count = itertools.count(1)
        self._stored_count = 0
        # Reentrant: a signal handler may fork or launch while this thread is in `_start_thread`.
        self._lifecycle = threading.RLock()
        self._thread: threading.Thread | None = None
        self._may_start = {"thread": True}

    def _wake_writer(self) -> None:
        if not self._woken:
            self._woken = True
            self._wake.put(None)

    @property
    def is_locked(self) -> bool:
        """Whether rows wait because another connection has the file locked."""
        return self._locked_since_s is not None

    def _await_room(self, number: int) -> None:
        writer = self._thread
        while (
            not self.is_locked
            and number - self._stored_count >= MAX_UNSTORED_ROWS
            and writer is not None
            and writer is self._thread
            and writer is not threading.current_thread()
            and writer.is_alive()
        ):
            time.sleep(ROOM_POLL_S)

    def _start_thread(self, *, is_last: bool = False) -> None:
        with self._lifecycle:
            if self._closed and not is_last:
                return
            # Taken in one step: a signal handler that runs this, too, must not start a second.
            if self._may_start.pop("thread", None) is None:
                return
            self._thread = threading.Thread(target=self._run, name="tkdebug-session", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # no more threads, or the interpreter is ending
                self._thread = None
                self._may_start["thread"] = True
                raise
            if self._is_child:
                # Not before there is something to store: not every child launches kernels.
                store_before_ending(self._store_the_last)

    def _stop_thread(self) -> None:
        """Store queued rows, and end the thread."""
        if self._thread is None and self._has_rows():
            # Another thread, which still saw the writer thread, queued the rows after its `_Stop`.
            with contextlib.suppress(RuntimeError):
                self._start_thread(is_last=True)
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        self._queue.put(_Stop())
        self._wake_writer()
        with contextlib.suppress(RuntimeError):  # an exception of a signal kept it from starting
            thread.join()
        self._thread = None
        self._may_start["thread"] = True

    def _run(self) -> None:
        store: SessionStore | None = None
        checkpoint_due_s: float | None = None
        stop = False
        while not stop:
            rows = self._next_rows(checkpoint_due_s)
            stop = any(isinstance(row, _Stop) for row in rows)
            self._markers += [row for row in rows if isinstance(row, threading.Event)]
            self._waiting += [row for row in rows if isinstance(row, tuple)]
            store = self._store_waiting(store)
            self._stored_count += sum(isinstance(row, tuple) for row in rows)
            if stop:
                store = self._outlast_lock(store)
            if not self.is_locked:
                for marker in self._markers:
                    marker.set()
                self._markers.clear()
            checkpoint_due_s = self._end_round(store, rows, checkpoint_due_s, stop)

    def _next_rows(self, checkpoint_due_s: float | None) -> list[Event | threading.Event | _Stop]:
        try:
            if self.is_locked:
                rows = [self._queue.get(timeout=LOCK_WAIT_S)]
            elif checkpoint_due_s is None:
                rows = [self._queue.get()]
            else:
                rows = [self._queue.get(timeout=max(0.0, checkpoint_due_s - time.monotonic()))]
        except queue.Empty:
            return []
        with contextlib.suppress(queue.Empty):
            self._wake.get(timeout=BATCH_S)
        self._woken = False
        with contextlib.suppress(queue.Empty):
            while not isinstance(rows[-1], _Stop):
                rows.append(self._queue.get_nowait())
        return rows

    def _store_waiting(self, store: SessionStore | None) -> SessionStore | None:
        """Commit what waits, unless the file is locked; return the open file, None without one.

        Once something has failed the store is closed and rows are dropped.
        """
        is_stored = True
        try:
            if self.error is None and self._waiting:
                store = store or SessionStore(self.path)
                is_stored = store.write(self._waiting)
        except Exception as error:
            # Whatever goes wrong here must not leave a `flush` waiting for a dead thread.
            is_stored = not (store is None and is_locked(error))
            if is_stored:
                self._fail(str(error) or type(error).__name__, store)
        if is_stored:
            self._locked_since_s = None
            self._waiting.clear()
        else:
            self._note_lock(store)
        return store

    def _note_lock(self, store: SessionStore | None) -> None:
        """Note when the file was locked; report a long lock, and fail if too many rows wait."""
        self._refused_tries += 1
        if self._locked_since_s is None:
            self._locked_since_s = time.monotonic()
        elif time.monotonic() - self._locked_since_s > LOCK_TOLD_S and not self._has_told_lock:
            self._has_told_lock = True
            tell(f"{self.path}: {LOCKED}; what is recorded waits in memory")
        if len(self._waiting) > MAX_WAITING_EVENTS:
            self._fail(f"{LOCKED}, while {MAX_WAITING_EVENTS:,} events came", store)

    def _outlast_lock(self, store: SessionStore | None) -> SessionStore | None:
        """After `close`, wait up to a limit for the lock of the file, and store what waits."""
        ends_s = time.monotonic() + BUSY_TIMEOUT_S
        while self._closed and self.is_locked and self.error is None:
            if time.monotonic() > ends_s:
                self._fail(f"{LOCKED}, for {BUSY_TIMEOUT_S:g} s at the end", store)
            time.sleep(LOCK_WAIT_S)
            store = self._store_waiting(store)
        return store

    def _end_round(
        self,
        store: SessionStore | None,
        rows: list[Event | threading.Event | _Stop],
        checkpoint_due_s: float | None,
        stop: bool,
    ) -> float | None:
        """Close the file, or checkpoint its log if due; return when the next one is due."""
        if store is None or self.error is not None:
            return None
        try:
            if stop:
                store.close()
                return None
            if any(isinstance(row, tuple) for row in rows) and checkpoint_due_s is None:
                return time.monotonic() + CHECKPOINT_S
            if checkpoint_due_s is not None and time.monotonic() >= checkpoint_due_s:
                store.checkpoint()
                return None
        except Exception as error:
            self._fail(str(error) or type(error).__name__, store)
            return None
        return checkpoint_due_s

    def _fail(self, reason: str, store: SessionStore | None) -> None:
        self.error = reason
        self._locked_since_s = None
        self._waiting.clear()
        tell(f"{self.path}: recording stopped: {reason}; {remedy(reason)}")
        if store is not None:
            with contextlib.suppress(*SQLITE_ERRORS):
                store.close()

    def before_fork(self) -> None:
        """Store queued rows and end the thread."""
        # SQLite's locks and threads do not survive a fork: parent and child each start again.
        self._lifecycle.acquire()
        self._stop_thread()

    def after_fork_in_parent(self) -> None:
        """Let the next row start the thread again."""
        self._lifecycle.release()

    def after_fork_in_child(self) -> None:
        """Begin with an empty queue: the parent stores the queued rows."""
        self._is_child = True
        self._start_fresh()
        if "multiprocessing.util" in sys.modules:
            from multiprocessing import util

            # A multiprocessing child ends by os._exit, which runs finalizers but no atexit; they
            # are cleared before the after-fork calls, so they are registered from one.
            util.register_after_fork(self, flush_at_process_exit)


class _Flushes(Protocol):
    def flush(self) -> None:
        """Wait until all events so far are in the file."""


def flush_at_process_exit(writer: _Flushes) -> None:
    """Flush in a multiprocessing child, which ends without `atexit` functions."""
    if "multiprocessing.util" in sys.modules:
        from multiprocessing import util

        util.Finalize(writer, writer.flush, exitpriority=-100)
