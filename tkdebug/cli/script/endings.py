"""Signals that end a script, as an exception: so that its report is still written."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import weakref
from collections.abc import Iterator
from types import FrameType

from tkdebug.errors import Terminated

_NAMES = ("SIGTERM", "SIGHUP")


@contextlib.contextmanager
def ending_signals() -> Iterator[None]:
    """Raise `Terminated` where SIGTERM or SIGHUP would have ended the process at once.

    A script that has handlers of its own, or sets them, keeps them; a forked child ends by the
    signal as it would without us.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = _Handlers()
    handlers.follow_forks()
    try:
        yield
    finally:
        handlers.remove()


def end_by_signal(number: int) -> None:
    """End this process by that signal, so that its parent sees the signal."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


class _Handlers:
    """Our handlers of those signals that had the default one."""

    def __init__(self) -> None:
        self._numbers = [
            number
            for number in (getattr(signal, name, None) for name in _NAMES)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL
        ]
        self._mask_before_fork: set[int] | None = None
        for number in self._numbers:
            signal.signal(number, _raise_terminated)

    def remove(self) -> None:
        """Put the default handlers back, except where the script has set its own."""
        for number in self._numbers:
            if signal.getsignal(number) is _raise_terminated:
                signal.signal(number, signal.SIG_DFL)
        self._numbers = []

    def follow_forks(self) -> None:
        """Give forked children the default handlers, and lose no signal on the way."""
        if not hasattr(os, "register_at_fork"):
            return
        # Fork hooks stay forever; these are then about nothing.
        reference = weakref.ref(self)

        def before() -> None:
            alive = reference()
            if alive is not None:
                alive.hold()

        def after_in_parent() -> None:
            alive = reference()
            if alive is not None:
                alive.release()

        def after_in_child() -> None:
            alive = reference()
            if alive is not None:
                alive.remove()
                alive.release()

        os.register_at_fork(
            before=before, after_in_parent=after_in_parent, after_in_child=after_in_child
        )

    def hold(self) -> None:
        """Keep the signals pending: a child forgets what a Python handler has seen by then."""
        if self._numbers:
            self._mask_before_fork = signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)

    def release(self) -> None:
        """Let them come."""
        mask, self._mask_before_fork = self._mask_before_fork, None
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _raise_terminated(number: int, frame: FrameType | None) -> None:
    raise Terminated(number)
