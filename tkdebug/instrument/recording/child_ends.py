"""Child processes that are ended by a signal, as those of a `multiprocessing.Pool` are.

Responsible for storing their records first. Invariants: a child ends by that signal as it would
without tkdebug; one that has a handler of its own, or ignores the signal, is left alone.

Python runs handlers in the main thread. If a signal comes just before that thread begins to wait
for a lock, or if another thread gets it, the handler would run once the wait is over, which may be
never. So a thread sends the signal to the main thread again until the handler runs.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from tkdebug.process.forks import renew_after_forks

_NAMES = ("SIGTERM", "SIGHUP")
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


def store_before_ending(store: Callable[[], None]) -> None:
    """Have `store` called before SIGTERM or SIGHUP ends this process, if the default would.

    A signal that is handled or ignored is left alone. In a thread other than the main one, where
    no handler can be set, nothing is done.
    """
    if threading.current_thread() is threading.main_thread():
        _HANDLER.install(store)


class _Handler:
    """The handler of this process for signals that had the default one."""

    def __init__(self) -> None:
        self._stores: list[Callable[[], None]] = []
        self._is_ending = False
        self._pipe: tuple[int, int] | None = None
        renew_after_forks(self)

    def install(self, store: Callable[[], None]) -> None:
        """Add `store` to the actions before the end."""
        numbers = [
            number
            for number in (getattr(signal, name, None) for name in _NAMES)
            if number is not None and signal.getsignal(number) in (signal.SIG_DFL, self._end)
        ]
        if not numbers:
            return
        if store not in self._stores:
            self._stores.append(store)
        for number in numbers:
            signal.signal(number, self._end)
        if self._pipe is None:
            self._watch()

    def renew_locks(self) -> None:
        """Forget the parent's pipe: a forked child has no thread that would wake it."""
        pipe, self._pipe = self._pipe, None
        if pipe is None:
            return
        before = signal.set_wakeup_fd(-1)
        if before not in (-1, pipe[1]):  # an event loop's
            signal.set_wakeup_fd(before)
        for end in pipe:
            os.close(end)

    def _end(self, number: int, frame: FrameType | None) -> None:
        if self._is_ending:
            return
        self._is_ending = True
        try:
            for store in self._stores:
                store()
        finally:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _watch(self) -> None:
        pipe = os.pipe()
        os.set_blocking(pipe[1], False)
        before = signal.set_wakeup_fd(pipe[1], warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            for end in pipe:
                os.close(end)
            return
        self._pipe = pipe
        threading.Thread(
            target=self._wake, args=(pipe[0],), name="tkdebug-signals", daemon=True
        ).start()

    def _wake(self, arrivals: int) -> None:
        """Send the main thread again the signals that its handler has not seen."""
        main = threading.main_thread().ident
        assert main is not None
        while numbers := os.read(arrivals, 64):
            for number in numbers:
                self._send_again(main, number)

    def _send_again(self, main: int, number: int) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            time.sleep(pause_s)
            if self._is_ending or signal.getsignal(number) != self._end:
                return
            signal.pthread_kill(main, number)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


_HANDLER = _Handler()
