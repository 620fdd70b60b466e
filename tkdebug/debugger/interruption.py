"""The user's code that runs in a debugger, and Ctrl-C while a script runs under one.

That code runs at stops, and as conditions while a launch runs. It may be endless, raise any
exception, or ask for the process to end. Invariant: none of that gets further than an
`EvaluationError`, and an interrupt hits nothing else of its thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from tkdebug.debugger.expressions import EvaluationError
from tkdebug.debugger.goals import Ended
from tkdebug.errors import Terminated, error_text

if TYPE_CHECKING:
    from tkdebug.debugger.console.shell import Console
    from tkdebug.debugger.engine import Debugger

T = TypeVar("T")
# The time for an interrupt to be raised in a thread of Python code; later it was raised and caught
# by the user's code.
_LONGEST_DELIVERY_S = 0.1


class InterruptedEvaluation(EvaluationError):
    """The user's code was interrupted."""


class Interruptible:
    """Runs the user's code so that other threads, and Ctrl-C, can interrupt it.

    In the main thread SIGINT interrupts it, which ends waiting in the system, too. In others an
    exception is set, which Python raises once it is back from C code.
    """

    def __init__(self) -> None:
        # Handlers of signals take it, too, maybe in the thread that holds it.
        self._lock = threading.RLock()
        # By thread: what handled SIGINT before, and when an interrupt was sent that is to come.
        self._running: dict[int, Any] = {}
        self._sent_s: dict[int, float] = {}

    def call(self, function: Callable[[], T], *, is_brief: bool = False) -> T:
        """Return the result of `function`; if calls are nested, the outer one is interrupted.

        Args:
            function: runs the user's code.
            is_brief: whether it is called often, as conditions are: SIGINT then goes to its usual
                handler, which may call `interrupt`, since taking it over costs 50 us.

        Raises:
            EvaluationError: it was interrupted, or raised an exception that would end the process.
        """
        thread = threading.get_ident()
        if thread in self._running:
            return function()
        takes_signal = not is_brief and thread == threading.main_thread().ident
        before = signal.getsignal(signal.SIGINT) if takes_signal else None
        try:
            self._enter(thread, before)
            return function()
        except KeyboardInterrupt:
            self._sent_s.pop(thread, None)
            raise InterruptedEvaluation("interrupted") from None
        except (Exception, Terminated, Ended):
            raise
        except SystemExit as error:
            raise EvaluationError(f"SystemExit: {error}: only `quit` ends the script") from None
        except BaseException as error:
            raise EvaluationError(error_text(error)) from None
        finally:
            has_left = False
            while not has_left:
                try:
                    has_left = self._leave(thread, before)
                except KeyboardInterrupt:
                    self._sent_s.pop(thread, None)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Let nothing interrupt code that is not the user's, such as a launch by an expression."""
        thread = threading.get_ident()
        if thread not in self._running:
            yield
            return
        before = self._running[thread]
        self._leave(thread, before)
        try:
            yield
        finally:
            self._enter(thread, before)

    def interrupt(self) -> bool:
        """Interrupt what runs; return False if nothing does. From any thread or signal handler.

        Raises:
            KeyboardInterrupt: it runs in this thread, below a signal's handler.
        """
        with self._lock:
            for thread in self._running:
                if thread == threading.get_ident():
                    raise KeyboardInterrupt  # a signal's handler, on top of what runs
                if time.monotonic() - self._sent_s.get(thread, 0.0) > _LONGEST_DELIVERY_S:
                    self._sent_s[thread] = time.monotonic()
                    self._send(thread)
            return bool(self._running)

    def _send(self, thread: int) -> None:
        is_main = thread == threading.main_thread().ident
        if is_main and self._is_handling() and hasattr(signal, "pthread_kill"):
            signal.pthread_kill(thread, signal.SIGINT)
        else:
            interrupt = ctypes.py_object(KeyboardInterrupt)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), interrupt)

    def _enter(self, thread: int, before: Any) -> None:
        """Let this thread be interrupted, by SIGINT too where something of Python's handles it."""
        with self._lock:
            self._running[thread] = before
        if before is not None:
            signal.signal(signal.SIGINT, self._handle)

    def _leave(self, thread: int, before: Any) -> bool:
        """Let nothing interrupt this thread once interrupts already sent have come; return True."""
        with self._lock:
            self._running.pop(thread, None)
        until = self._sent_s.get(thread, 0.0) + _LONGEST_DELIVERY_S
        while thread in self._sent_s and time.monotonic() < until:
            pass
        self._sent_s.pop(thread, None)
        if before is not None and self._is_handling():
            signal.signal(signal.SIGINT, before)
        return True

    def _is_handling(self) -> bool:
        return signal.getsignal(signal.SIGINT) == self._handle

    def _handle(self, number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt


@contextlib.contextmanager
def interrupts(
    debugger: Debugger, console: Console, is_ending: Callable[[], bool] = bool
) -> Iterator[None]:
    """Let Ctrl-C, inside the block, stop in the kernel that runs or at the script's next line.

    Args:
        debugger: the debugger of the kernels.
        console: knows what stops at the script's lines.
        is_ending: whether Ctrl-C is to be handled as before the block, and to end the script.
    """
    before = signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: FrameType | None) -> None:
        script = console.script_lines
        if is_ending():
            pass
        elif debugger.is_running:
            debugger.pause()
            return
        elif debugger.expressions.interrupt():
            return
        elif debugger.inspection is None and script is not None and script.interrupt(frame):
            return
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
