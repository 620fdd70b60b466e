"""Kernels that do not end: looked into on Ctrl-C or after a time.

While the script waits for such a kernel it is in the driver, where Python's signal handlers do not
run. So a thread waits for the number of each signal, which Python writes to a pipe wherever the
main thread is. Then it looks which launches run: by `HangDumps` if the driver writes core dumps,
which show where the warps wait, and by `UndumpedHangs` otherwise.

Invariants: a script keeps its kernels if it has a handler of its own for Ctrl-C, if it comes back
to Python, or as long as launch after launch ends, none of them later than `_GRACE_S`; without a
hang timeout the thread sleeps until a signal comes.
"""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol

from tkdebug.errors import TkError
from tkdebug.findings.reporting import report
from tkdebug.process.forks import renew_after_forks
from tkdebug.records.events import Fault
from tkdebug.runtime.device.platform import platform_in_force
from tkdebug.runtime.launch.launches_in_flight import Flight
from tkdebug.terminal.text import tell

# How long one launch may run after Ctrl-C, while the main thread waits.
_GRACE_S = 2.0
_POLL_S = 0.05
_SLOWEST_LOOK_S = 1.0
NEXT_STEP = "the lines where its warps wait need --coredump or --hang-timeout S"
_STUCK_S = 1.5
_TAKE_S = 1.0
_MOST_FAULTS = 8
_MOST_NAMED = 5
_NS_PER_S = 1_000_000_000
# A dump of a full GPU took 5 s (60 MB; driver 580).
_DUMP_S = 20.0
_DUMP_POLL_S = 0.05
_SETTLED_S = 0.2


@dataclass(frozen=True, slots=True)
class Running:
    """Launches of one busy stream.

    Attributes:
        flights: launches that are not known to have ended, oldest first; at least one.
        last_end_ns: the end of the launch before them, since 1970; None if that is not known.
    """

    flights: tuple[Flight, ...]
    last_end_ns: int | None


def running_launches() -> list[Running]:
    """Return the launches that have not ended by stream, the stream of the oldest first."""
    from tkdebug.runtime.launch.launches_in_flight import IN_FLIGHT

    dumps = platform_in_force().crash_dumps
    if dumps is None:
        return []
    streams: dict[tuple[int, int], list[Flight]] = {}
    for flight in IN_FLIGHT.latest:
        streams.setdefault((flight.kernel.device, flight.stream), []).append(flight)
    busy = [flights for place, flights in streams.items() if dumps.is_busy(*place)]
    found = [_running(flights) for flights in busy]
    return sorted(
        (one for one in found if one.flights), key=lambda running: running.flights[0].ordinal
    )


def oldest_running() -> int | None:
    """Return the ordinal of the oldest launch that has not ended; None if no stream is busy."""
    running = running_launches()
    return running[0].flights[0].ordinal if running else None


def has_passed(span: object) -> bool:
    """Whether a launch's timed span on the device has ended; False if it is not timed."""
    ask = getattr(span, "has_passed", None)
    return bool(ask is not None and ask())


def _running(flights: list[Flight]) -> Running:
    """Return those launches of a stream that have not ended, oldest first."""
    for place in reversed(range(len(flights))):
        flight = flights[place]
        ended_ns = flight.ended_ns
        if ended_ns is not None or has_passed(flight.span):
            return Running(tuple(flights[place + 1 :]), ended_ns)
    return Running(tuple(flights), None)


class HangWatch:
    """Waits for Ctrl-C and, if there is a timeout, for launches that take longer.

    Args:
        look: looks into a hang; called with the time for which a kernel has not ended, in words.
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
        """Forget the parent's signals in a forked child."""
        if not self._is_stopped:
            signal.set_wakeup_fd(-1)

    def stop(self) -> None:
        """End the watch; do nothing in a forked child, where its thread does not run."""
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
        # Not `select`, which refuses numbers from 1024 on: a script may have many files open.
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        ready = poll.poll(None if wait_s is None else 1000 * wait_s)
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
                # Queued work gets done: the script may come back by itself.
                oldest, since_s = now, time.monotonic()
        return oldest is not None

    def _place(self) -> tuple[int, int] | None:
        """Return the frame and instruction of the main thread, or None if it has no frame."""
        frame = sys._current_frames().get(self._main.ident or 0)  # noqa: SLF001
        return None if frame is None else (id(frame), frame.f_lasti)

    def _look_into(self, waited: str) -> None:
        self._is_idle.clear()
        try:
            self._look(waited)
        finally:
            self._is_idle.set()


class RunOfScript(Protocol):
    """The run whose main thread is stuck."""

    def take_ended(self, limit_s: float) -> None:
        """Set the ends of launches, as far as they are known without waiting."""
        ...

    def end_stuck(self) -> NoReturn:
        """End the script's process as Ctrl-C would, from another thread than its main one."""
        ...


class UndumpedHangs:
    """Reports which launch is stuck, and ends the run."""

    def __init__(self, run: RunOfScript) -> None:
        self._run = run
        self._has_looked = False

    def look(self, waited: str) -> None:
        """Report the stuck launch; do nothing while launches end, one after the other.

        Args:
            waited: the time for which the kernel has not ended, in words.
        """
        self._run.take_ended(_TAKE_S)
        running = running_launches()
        if self._has_looked and running:
            # A launch asked for while it ran may have no time: nobody knows which one it is now.
            flights = [flight for one in running for flight in one.flights]
            tell(f"the GPU is still busy; the script ends here, with {_named(flights)} in flight")
            _report_unfinished()
            self._run.end_stuck()
        self._has_looked = True
        stuck = [one for one in running if _is_stuck(one)]
        if not stuck:
            return
        for one in stuck[:_MOST_FAULTS]:
            report(hang_fault(one, waited), is_end=True)
        _report_unfinished()
        self._run.end_stuck()


def _report_unfinished() -> None:
    """Report what checked launches have found so far."""
    # The module imports the interpreter, which needs torch; the callers here may not.
    from tkdebug.runtime.checked.checked_launches import CHECKED

    CHECKED.report_unfinished()


def hang_fault(running: Running, waited: str) -> Fault:
    """Return the fault of a stuck launch, at the line of the script that made it.

    If there are several, the stuck one is not known: the times of those that have ended may not be
    there yet. The line and the kernel are named if all launches share them.
    """
    first, last = running.flights[0], running.flights[-1]
    count = len(running.flights)
    callers = {flight.caller for flight in running.flights}
    kernels = {flight.kernel.name for flight in running.flights}
    caller = first.caller if len(callers) == 1 else None
    if count == 1:
        programs = math.prod(first.grid)
        said = f"launch {first.launch_id} of {programs:,} program{'s' * (programs != 1)}"
    else:
        said = f"one of {count:,} launches, {first.launch_id} to {last.launch_id}"
    if caller is not None:
        said += ", made here,"
    return Fault(
        kind="hang",
        kernel=first.kernel.name if len(kernels) == 1 else "unknown kernel",
        frames=() if caller is None else (caller,),
        message=f"{said} has not ended {waited}; {NEXT_STEP}",
        launch_id=first.launch_id if count == 1 else 0,
    )


def _is_stuck(running: Running) -> bool:
    """Whether no launch of a busy stream has ended lately."""
    ended_ns = running.last_end_ns
    return ended_ns is None or time.time_ns() - ended_ns > _STUCK_S * _NS_PER_S


def _named(flights: Sequence[Flight]) -> str:
    names = [f"launch {one.launch_id} ({one.kernel.name})" for one in flights[:_MOST_NAMED]]
    left = len(flights) - len(names)
    return ", ".join(names) + (f" and {left:,} more" if left else "")


class HangDumps:
    """Reports a kernel that does not end from a dump that the driver writes on request.

    Args:
        pipe: the pipe from which the driver reads a request for a dump.
        dumps: returns the dumps that nobody has read.
        asking: makes a `with` block in which dumps are of no crash.
    """

    def __init__(
        self,
        pipe: str,
        dumps: Callable[[], list[str]],
        asking: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._pipe = pipe.replace("%p", str(os.getpid()))
        self._dumps = dumps
        self._asking = asking

    def look(self, waited: str) -> None:
        """Wait for a dump by the driver and report it, or report why there is none.

        Args:
            waited: the time for which the kernel has not ended, in words.
        """
        if not os.path.exists(self._pipe):
            tell(f"a kernel has not ended {waited}; this driver writes no core dumps on request")
            return
        with self._asking():
            self._ask(waited)

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
        """Return the dump once it has not grown for a while, or None."""
        deadline_s = time.monotonic() + _DUMP_S
        size, since_s = -1, 0.0
        while time.monotonic() < deadline_s:
            for path in self._dumps()[:1]:
                now = os.path.getsize(path)
                if now != size:
                    size, since_s = now, time.monotonic()
                elif now and time.monotonic() - since_s >= _SETTLED_S:
                    return path
            time.sleep(_DUMP_POLL_S)
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
