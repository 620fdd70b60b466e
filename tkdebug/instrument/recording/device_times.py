"""Waits in the background for the device times of launches, so that no launch has to.

Responsible for asking each launch's `device_ns` until it answers, in the order of the launches.
What is measured, and how, is the runtime's.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable

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
        """Have `device_ns` asked until it answers."""
        if os.getpid() != self._owner:
            # After a fork: the device and what was pending are the parent's.
            return
        self._pending.append((launch, device_ns))
        if self._thread is None or not self._thread.is_alive():
            self._start()

    def stop(self) -> None:
        """Wait for all launches, and end the thread."""
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
        """Wait for all launches so far."""
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
