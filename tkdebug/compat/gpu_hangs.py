"""Kernels that do not end: reported on Ctrl-C or after a time, with the lines where warps wait.

While the script waits for such a kernel it is in the driver, where Python's signal handlers do not
run. So a thread waits for the number of each signal, which Python writes to a pipe wherever the
main thread is. Then it has the driver write a core dump (`CUDA_COREDUMP_PIPE`), which ends the
kernel: the driver gives its caller an error, and the script ends by that, or by Ctrl-C.

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
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from tkdebug.errors import TkError
from tkdebug.forks import renew_after_forks
from tkdebug.runtime.device.platform import platform_in_force
from tkdebug.terminal_text import tell

# How long one launch may run after Ctrl-C, while the main thread waits.
_GRACE_S = 2.0
# A dump of a full GPU took 5 s (60 MB; driver 580).
_DUMP_S = 20.0
_POLL_S = 0.05
_SETTLED_S = 0.2
_SLOWEST_LOOK_S = 1.0


class HangWatch:
    """Waits for Ctrl-C and, where there is a timeout, for launches that take longer.

    Args:
        pipe: what the driver reads a request for a dump from.
        dumps: the dumps that nobody has read.
        asking: a `with` block in which dumps are of no crash.
        timeout_s: how long a kernel may run; None for no limit.
    """

    def __init__(
        self,
        pipe: str,
        dumps: Callable[[], list[str]],
        asking: Callable[[], AbstractContextManager[None]],
        timeout_s: float | None = None,
    ) -> None:
        self._pipe = pipe.replace("%p", str(os.getpid()))
        self._dumps = dumps
        self._asking = asking
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
                self._dump("since Ctrl-C")
                continue
            if self._timeout_s is None:
                continue
            now_s = time.monotonic()
            running = _oldest_running()
            if running is None or running != oldest:
                oldest, since_s = running, now_s
            elif now_s - since_s >= self._timeout_s:
                self._dump(f"in {self._timeout_s:g} s")
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
        oldest, since_s = _oldest_running(), time.monotonic()
        while oldest is not None and time.monotonic() - since_s < _GRACE_S:
            time.sleep(_POLL_S)
            if self._place() != before:
                return False
            now = _oldest_running()
            if now != oldest:
                # What is queued gets done: the script may come back by itself.
                oldest, since_s = now, time.monotonic()
        return oldest is not None

    def _place(self) -> tuple[int, int] | None:
        """Where the main thread is in Python code."""
        frame = sys._current_frames().get(self._main.ident or 0)  # noqa: SLF001
        return None if frame is None else (id(frame), frame.f_lasti)

    def _dump(self, waited: str) -> None:
        """Have the driver write a dump, and report what it says."""
        if not os.path.exists(self._pipe):
            tell(f"a kernel has not ended {waited}; this driver writes no core dumps on request")
            return
        self._is_idle.clear()
        try:
            with self._asking():
                self._ask(waited)
        finally:
            self._is_idle.set()

    def _ask(self, waited: str) -> None:
        try:
            with open(os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK), "wb") as pipe:
                pipe.write(b"1")
        except OSError as error:
            tell(f"a kernel has not ended {waited}; no core dump ({error.strerror})")
            return
        path = self._await_dump()
        if path is None:
            tell(f"a kernel has not ended {waited}; the driver wrote no core dump of it")
            return
        _tell_hang(path, waited)

    def _await_dump(self) -> str | None:
        """The dump, once it has not grown for a while."""
        deadline_s = time.monotonic() + _DUMP_S
        size, since_s = -1, 0.0
        while time.monotonic() < deadline_s:
            for path in self._dumps()[:1]:
                now = os.path.getsize(path)
                if now != size:
                    size, since_s = now, time.monotonic()
                elif now and time.monotonic() - since_s >= _SETTLED_S:
                    return path
            time.sleep(_POLL_S)
        return None


def _tell_hang(path: str, waited: str) -> None:
    from tkdebug.findings.reporting import report
    from tkdebug.runtime.launch.launches_in_flight import IN_FLIGHT

    dumps = platform_in_force().crash_dumps
    assert dumps is not None
    try:
        faults = dumps.read_hang(Path(path), IN_FLIGHT, waited)
    except TkError as error:
        tell(f"GPU core dump: {error}")
        return
    finally:
        with suppress(OSError):
            os.unlink(path)
    for fault in faults:
        report(fault, is_end=True)
    if not faults:
        tell(f"the GPU has not become idle {waited}, and no warp is on it")


def _oldest_running() -> int | None:
    """Ordinal of the oldest launch on a stream that is busy; None where none is."""
    from tkdebug.runtime.launch.launches_in_flight import IN_FLIGHT

    dumps = platform_in_force().crash_dumps
    busy: dict[tuple[int, int], bool] = {}
    for flight in IN_FLIGHT.latest:
        if dumps is None or flight.had_ended():
            continue
        place = (flight.kernel.device, flight.stream)
        if place not in busy:
            busy[place] = dumps.is_busy(*place)
        if busy[place] and not has_passed(flight.span):
            return flight.ordinal
    return None


def has_passed(span: object) -> bool:
    """Whether the end of a launch's time on the device has passed, where that is measured."""
    ask = getattr(span, "has_passed", None)
    return bool(ask is not None and ask())
