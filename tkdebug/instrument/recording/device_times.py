"""The device times of launches: waited for in the background, or asked for in the session file.

Responsible for asking each launch's `device_ns` until it answers, in the order of the launches, so
that no launch has to wait, and for times that the recording process stores: few ask for those, so a
launch costs no more than an object. The runtime measures.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from tkdebug.instrument.session_file.connection import open_read_only

_POLL_S = 0.005
# (launch id, nanoseconds on the device, error, how they were obtained)
Settled = Callable[[int, int | None, str | None, str], None]
_BY_EVENTS, _NO_TIME = "events", "none"


class DeviceTimes:
    """Launches whose device time is not known yet.

    Args:
        settled: called for each launch when it is.
    """

    def __init__(self, settled: Settled) -> None:
        self._settled = settled
        self._pending: deque[tuple[int, Callable[..., int | None]]] = deque()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._owner = os.getpid()
        self._stopped = False

    def add(self, launch: int, device_ns: Callable[..., int | None]) -> None:
        """Ask `device_ns` in the background until it answers."""
        if os.getpid() != self._owner:
            # After a fork: the device and what was pending are the parent's.
            return
        self._pending.append((launch, device_ns))
        if self._thread is None or not self._thread.is_alive():
            self._start()

    def stop(self) -> None:
        """Wait for the times of all launches, and end the thread."""
        if os.getpid() != self._owner:
            return
        self._stopped = True
        self._settle(wait=True)

    def abandon(self) -> None:
        """End without waiting: launches that have not ended by now get no time."""
        if os.getpid() != self._owner:
            return
        self._stopped = True
        with self._lock:
            self._settle(wait=False)
            for launch, _ in self._pending:
                self._settled(launch, None, None, _NO_TIME)
            self._pending.clear()

    def wait(self) -> None:
        """Wait for the times of all launches so far."""
        if os.getpid() == self._owner:
            self._settle(wait=True)

    def _start(self) -> None:
        with self._lock:
            if self._stopped or (self._thread is not None and self._thread.is_alive()):
                return
            thread = threading.Thread(target=self._run, name="tkdebug-device-times", daemon=True)
            # No more threads, or the interpreter is ending: `stop` settles what is left.
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        while not self._stopped:
            self._settle(wait=False)
            time.sleep(_POLL_S)

    def _settle(self, wait: bool) -> None:
        """Report the launches that have ended, up to the first that has not."""
        with self._lock:
            while self._pending:
                launch, device_ns = self._pending[0]
                try:
                    duration_ns = device_ns(wait)
                except Exception as error:
                    self._pending.popleft()
                    self._settled(launch, None, f"{type(error).__name__}: {error}", _BY_EVENTS)
                    continue
                if duration_ns is None:
                    return
                self._pending.popleft()
                source = getattr(device_ns, "source", _BY_EVENTS)
                self._settled(launch, duration_ns, None, source)


class StoredTime:
    """The `LaunchRecord.device_ns` of a launch whose time the recording process stores.

    Args:
        path: the session.
        launch: the launch's number in this process.
        wait: waits until all times that can be known are stored.
    """

    __slots__ = ("_launch", "_path", "_process", "_wait")

    def __init__(self, path: Path, launch: int, wait: Callable[[], None]) -> None:
        self._path = path
        self._launch = launch
        self._process = os.getpid()
        self._wait = wait

    def __call__(self, wait: bool = False) -> int | None:
        """Return the launch's nanoseconds on the device; None if they are not known."""
        found = self._stored()
        if found is None and wait:
            self._wait()
            found = self._stored()
        return None if found is None else found[1]

    @property
    def duration_ns(self) -> int | None:
        """The launch's nanoseconds on the device; None when they are not known."""
        return self()

    @property
    def settled_ns(self) -> int | None:
        """The launch's end by the GPU's clock, since 1970; None if unknown."""
        found = self._stored()
        return None if found is None else found[0] + found[1]

    def _stored(self) -> tuple[int, int] | None:
        """Return the launch's stored start and nanoseconds on the device, or None."""
        statement = (
            "SELECT device_start_ns, duration_ns FROM launches WHERE process = ? AND id = ? "
            "AND device_start_ns IS NOT NULL ORDER BY seq DESC LIMIT 1"
        )
        with contextlib.closing(open_read_only(self._path, "mode=ro")) as connection:
            found: tuple[int, int] | None = connection.execute(
                statement, (self._process, self._launch)
            ).fetchone()
        return found
