# ruff: noqa: SLF001 (pools have no public way to end them as Python does)
"""The end of a script: by a signal, and by Python's own rules.

Responsible for signals that end it, as an exception, so that its report is still written; for its
threads, processes and exit handlers, which Python ends with the interpreter, after the summary and
without the stand-ins: they may launch kernels, and their output belongs before the summary; and for
the standard streams, which a script may replace or close.

Invariant: after the script `sys.stdout` and `sys.stderr` can be written to, and output goes where
it went before the script, as far as the script left that open.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TextIO

from tkdebug.errors import Terminated

_NAMES = ("SIGTERM", "SIGHUP")
# Ours, and that of `weakref`, after which no finalizer would ever run.
_OF_THE_PROCESS = ("tkdebug", "weakref")
Handler = tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]


@contextlib.contextmanager
def ending_signals() -> Iterator[None]:
    """Raise `Terminated` when SIGTERM or SIGHUP would have ended the process at once.

    A script that has handlers of its own, or sets them, keeps them; a forked child ends by the
    signal as it would without tkdebug.
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
    """tkdebug's handlers of signals that had the default one."""

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
        """Keep the signals pending: a child forgets signals that a Python handler has seen."""
        if self._numbers:
            self._mask_before_fork = signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)

    def release(self) -> None:
        """Unblock the signals that `hold` kept pending."""
        mask, self._mask_before_fork = self._mask_before_fork, None
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _raise_terminated(number: int, frame: FrameType | None) -> None:
    raise Terminated(number)


class ExitHandlers:
    """The handlers that were registered with `atexit` while this was in force."""

    def __init__(self) -> None:
        self._handlers: list[Handler] = []
        self._register, self._unregister = atexit.register, atexit.unregister

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Note the registered functions; they stay registered in case the process ends earlier."""
        atexit.register, atexit.unregister = self._note, self._forget
        try:
            yield
        finally:
            atexit.register, atexit.unregister = self._register, self._unregister

    def _note(
        self, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Callable[..., Any]:
        self._register(function, *args, **kwargs)
        if str(getattr(function, "__module__", "")).partition(".")[0] not in _OF_THE_PROCESS:
            self._handlers.append((function, args, kwargs))
        return function

    def _forget(self, function: Callable[..., object], /) -> None:
        self._unregister(function)
        self._handlers = [handler for handler in self._handlers if handler[0] != function]

    def run(self) -> None:
        """Call the handlers, the last one first; one that raises is reported as Python does."""
        while self._handlers:
            function, args, kwargs = self._handlers.pop()
            self._unregister(function)
            try:
                function(*args, **kwargs)
            except SystemExit:
                continue  # as Python ignores it there
            except BaseException as error:
                print(f"Exception ignored in atexit callback: {function!r}", file=sys.stderr)
                trace = error.__traceback__
                traceback.print_exception(type(error), error, trace and trace.tb_next)


def join_threads() -> None:
    """Wait for the threads that Python waits for before it ends."""
    with _idle_pools_end():
        for thread in threading.enumerate():
            if not thread.daemon and thread is not threading.current_thread():
                thread.join()


@contextlib.contextmanager
def _idle_pools_end() -> Iterator[None]:
    """Let the threads of pools that nobody shut down end once they have nothing to do.

    Python does this before it waits for threads. Unlike there, pools can be made afterwards.
    """
    pools: Any = sys.modules.get("concurrent.futures.thread")
    queues = getattr(pools, "_threads_queues", None)
    if queues is None:
        yield
        return
    with pools._global_shutdown_lock:
        before, pools._shutdown = pools._shutdown, True
    try:
        for queue in list(queues.values()):
            queue.put(None)
        yield
    finally:
        pools._shutdown = before


def join_processes() -> None:
    """Wait for the processes of `multiprocessing` that Python waits for before it ends."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is None:
        return
    for process in multiprocessing.active_children():
        if not process.daemon:
            process.join()


@contextlib.contextmanager
def kept_streams() -> Iterator[None]:
    """Restore the streams at the end; streams that the script closed are opened again."""
    before = (sys.stdout, sys.stderr)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            # One of the script's own, which Python would flush when it ends.
            with contextlib.suppress(Exception):
                stream.flush()
        sys.stdout, sys.stderr = _usable(before[0], 1), _usable(before[1], 2)


def _usable(stream: TextIO, descriptor: int) -> TextIO:
    """`stream`, or its replacement if the script has closed it."""
    if stream is None:  # a process may begin without
        return stream
    if not stream.closed:
        try:
            os.fstat(stream.fileno())
        except io.UnsupportedOperation:
            return stream  # it has no file
        except OSError:
            return _nowhere()
        return stream
    try:
        copy = os.dup(descriptor)
    except OSError:
        return _nowhere()
    return os.fdopen(copy, "w", buffering=1, encoding="utf-8", errors="backslashreplace")


def _nowhere() -> TextIO:
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
