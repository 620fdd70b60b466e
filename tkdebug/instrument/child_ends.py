"""Child processes that are ended by a signal, as those of a `multiprocessing.Pool` are.

Responsible for storing what they have recorded first. Invariants: a child ends by that signal as it
would without us; one that has a handler of its own, or ignores the signal, is left alone.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

_NAMES = ("SIGTERM", "SIGHUP")


def store_before_ending(store: Callable[[], None]) -> None:
    """Call `store` before SIGTERM or SIGHUP ends this process, where they would end it at once.

    In another thread than the main one, where no handler can be set, nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        return

    def end(number: int, frame: FrameType | None) -> None:
        try:
            store()
        finally:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in (getattr(signal, name, None) for name in _NAMES):
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)
