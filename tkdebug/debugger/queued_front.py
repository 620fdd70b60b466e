"""A front in another thread, whose questions are answered in the thread that is stopped."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from tkdebug.debugger.goals import Detach, Resume
from tkdebug.debugger.stops import Stop
from tkdebug.errors import UsageError
from tkdebug.process.forks import renew_after_forks

if TYPE_CHECKING:
    from tkdebug.debugger.engine import Debugger


class QueuedFront:
    """Passes stops to a listener, and answers another thread's questions in the stopped thread.

    Args:
        on_stop: called with each stop, in the stopped thread, before anything is asked. It must not
            wait for the other thread.
        on_log: called with the text of a log point.
    """

    def __init__(self, on_stop: Callable[[Stop], None], on_log: Callable[[str], None]) -> None:
        self._on_stop, self._on_log = on_stop, on_log
        self._asked: queue.SimpleQueue[tuple[Callable[[Debugger], Any], Future[Any]] | Resume]
        self._asked = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_stopped = False
        self._is_closed = False
        renew_after_forks(self)

    def renew_locks(self) -> None:
        """Close the front in a forked child: its thread is the parent's, so nothing stops."""
        self._lock = threading.Lock()
        self._is_closed = True

    def call(self, function: Callable[[Debugger], Any]) -> Future[Any]:
        """Have `function` called with the debugger, at the stop. From any thread.

        Raises:
            UsageError: nothing is stopped.
        """
        future: Future[Any] = Future()
        with self._lock:
            if not self._is_stopped:
                raise UsageError("no kernel is stopped")
            self._asked.put((function, future))
        return future

    def resume(self, resume: Resume) -> None:
        """Let the launch go on. From any thread.

        Raises:
            UsageError: nothing is stopped.
        """
        with self._lock:
            if not self._is_stopped:
                raise UsageError("no kernel is stopped")
            self._is_stopped = False
            self._asked.put(resume)

    def close(self) -> None:
        """Note that nobody asks any more: the launch resumes, and no other stops. In any thread."""
        with self._lock:
            self._is_closed = True
            if self._is_stopped:
                self._is_stopped = False
                self._asked.put(Detach())

    def log(self, text: str) -> None:
        """Pass on a log point's text."""
        self._on_log(text)

    def stopped(self, debugger: Debugger, stop: Stop) -> Resume:
        """Answer questions until the launch is to go on. In the stopped thread."""
        with self._lock:
            if self._is_closed:
                return Detach()
            self._is_stopped = True
        self._on_stop(stop)
        while True:
            asked = self._asked.get()
            if not isinstance(asked, tuple):
                return asked
            _answer(debugger, *asked)


def _answer(debugger: Debugger, function: Callable[[Debugger], Any], future: Future[Any]) -> None:
    """Do what another thread asks, which may cancel or interrupt it meanwhile."""

    def answer() -> Any:
        return function(debugger) if future.set_running_or_notify_cancel() else None

    try:
        result = debugger.expressions.call(answer)
    except BaseException as error:
        if not future.cancelled():
            future.set_exception(error)  # the asking thread's to see
        if not isinstance(error, Exception):
            raise  # a signal that ends the script
    else:
        if not future.cancelled():
            future.set_result(result)
