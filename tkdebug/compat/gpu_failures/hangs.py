"""Kernels that do not end: looked into on Ctrl-C or after a time.

While the script waits for such a kernel it is in the driver, where Python's signal handlers do not
run. So a thread waits for the number of each signal, which Python writes to a pipe wherever the
main thread is. Then somebody else looks: `hang_dumps` where the driver writes core dumps,
`undumped_hangs` elsewhere.

Invariants: a script keeps its kernels if it has a handler of its own for Ctrl-C, if it comes back
to Python, or as long as launch after launch ends, none of them later than `_GRACE_S`; without a
hang timeout the thread sleeps until a signal comes.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable

from tkdebug.compat.gpu_failures.running_launches import oldest_running
from tkdebug.process.forks import renew_after_forks

# How long one launch may run after Ctrl-C, while the main thread waits.
_GRACE_S = 2.0
_POLL_S = 0.05
_SLOWEST_LOOK_S = 1.0


class HangWatch:
    """Waits for Ctrl-C and, where there is a timeout, for launches that take longer.

    Args:
        look: looks into a hang; called with since when a kernel has not ended, in words.
        timeout_s: how long a kernel may run; None for no limit.
    """

    def __init__(self, look: Callable[[str], None], timeout_s: float | None = None) -> None:
        self._look = look
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._timeout_s = timeout_s
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._process = os.getpid()
        self._is_stopped = False
        self._main = threading.main_thread()
        self._before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        renew_after_forks(self)
        self._thread = threading.Thread(target=self._run, name="tkdebug-hangs", daemon=True)
        self._thread.start()

    def renew_locks(self) -> None:
        """A forked child's signals are none of the parent's."""
        if not self._is_stopped:
            signal.set_wakeup_fd(-1)

    def stop(self) -> None:
        """End it; in a forked child nothing runs."""
        if os.getpid() != self._process:
            return
        self._is_stopped = True
        if signal.set_wakeup_fd(self._before) != self._write:
            # Somebody else's by now, such as an event loop's.
            signal.set_wakeup_fd(-1)
        os.write(self._write, b"\0")
        self._thread.join()
        os.close(self._read)
        os.close(self._write)

    def wait(self) -> None:
        """Wait until a hang that is being looked into has been reported."""
        if os.getpid() == self._process:
            self._is_idle.wait()

    def _run(self) -> None:
        oldest, since_s = None, 0.0
        while True:
            numbers = self._next_signals()
            if 0 in numbers:
                return
            if signal.SIGINT in numbers and self._is_stuck():
                self._look_into("since Ctrl-C")
                continue
            if self._timeout_s is None:
                continue
            now_s = time.monotonic()
            running = oldest_running()
            if running is None or running != oldest:
                oldest, since_s = running, now_s
            elif now_s - since_s >= self._timeout_s:
                self._look_into(f"in {self._timeout_s:g} s")
                oldest = None

    def _next_signals(self) -> bytes:
        wait_s = None if self._timeout_s is None else min(self._timeout_s / 4, _SLOWEST_LOOK_S)
        ready, _, _ = select.select((self._read,), (), (), wait_s)
        return os.read(self._read, 64) if ready else b""

    def _is_stuck(self) -> bool:
        """Whether the main thread stays in one call although Ctrl-C came, and a launch runs on."""
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return False
        before = self._place()
        oldest, since_s = oldest_running(), time.monotonic()
        while oldest is not None and time.monotonic() - since_s < _GRACE_S:
            time.sleep(_POLL_S)
            if self._place() != before:
                return False
            now = oldest_running()
            if now != oldest:
                # What is queued gets done: the script may come back by itself.
                oldest, since_s = now, time.monotonic()
        return oldest is not None

    def _place(self) -> tuple[int, int] | None:
        """Where the main thread is in Python code."""
        frame = sys._current_frames().get(self._main.ident or 0)  # noqa: SLF001
        return None if frame is None else (id(frame), frame.f_lasti)

    def _look_into(self, waited: str) -> None:
        self._is_idle.clear()
        try:
            self._look(waited)
        finally:
            self._is_idle.set()
