# ruff: noqa: SLF001 (pools have no public way to end them as Python does)
"""The end of a script as Python would have it: its threads, processes and exit handlers.

Python sees to them when the interpreter ends, after the summary and without the stand-ins; they may
launch kernels, and what they print belongs before the summary.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

# Ours, and that of `weakref`, after which no finalizer would ever run.
_OF_THE_PROCESS = ("tkdebug", "weakref")
Handler = tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]


class ExitHandlers:
    """What was registered with `atexit` while this was in force."""

    def __init__(self) -> None:
        self._handlers: list[Handler] = []
        self._register, self._unregister = atexit.register, atexit.unregister

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Note what is registered; it stays registered for when the process ends earlier."""
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
        """Call them, the last one first; one that raises is reported as Python does."""
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

    Python does this before it waits for threads. Other than there, pools can be made afterwards.
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
