"""Signals that end a script, as an exception: so that its report is still written."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_NAMES = ("SIGTERM", "SIGHUP")


class Terminated(BaseException):
    """The signal of that number asked this process to end."""

    def __init__(self, number: int) -> None:
        self.signal = number
        super().__init__(number)


@contextlib.contextmanager
def ending_signals() -> Iterator[None]:
    """Raise `Terminated` where SIGTERM or SIGHUP would have ended the process at once.

    A script that has handlers of its own, or sets them, keeps them; a forked child ends by the
    signal as it would without us.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()

    def raise_terminated(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            end_by_signal(number)
        raise Terminated(number)

    covered = []
    for name in _NAMES:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, raise_terminated)
            covered.append(number)
    try:
        yield
    finally:
        for number in covered:
            if signal.getsignal(number) is raise_terminated:
                signal.signal(number, signal.SIG_DFL)


def end_by_signal(number: int) -> None:
    """End this process by that signal, so that whoever waits for it sees the signal."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
