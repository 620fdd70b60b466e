"""The script as a child process on a pty of its own (POSIX only).

Responsible for starting it, carrying bytes both ways, ending it, and letting it run on without the
TUI. Headless; `pump` runs in a thread.

The child leads a session of its own with the pty as its controlling terminal, so that Ctrl-C typed
into the TUI becomes the terminal's SIGINT to the child's foreground group, as in any terminal. If
the TUI itself is killed the pty hangs up and the child gets SIGHUP, as when a terminal window is
closed; `detach` lets it run on: see `drain`.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import fcntl
import os
import platform
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tkdebug.errors import UsageError
from tkdebug.tui.script import drain

READ_BYTES = 1 << 16
POST_INTERVAL_S = 0.1
TICK_S = 0.05
MAX_READS_AFTER_END = 1000
# How long a script that is asked to stop may take over each signal.
STOP_STEPS: tuple[tuple[signal.Signals, float], ...] = (
    (signal.SIGINT, 3.0),
    (signal.SIGTERM, 2.0),
    (signal.SIGKILL, 5.0),
)


class Child:
    """A running script.

    Args:
        argv: program and arguments.
        rows: height of the terminal it sees.
        columns: the width of its terminal.
        descriptors: files that it inherits besides.

    Raises:
        UsageError: the program cannot be started.
    """

    def __init__(
        self, argv: Sequence[str], rows: int, columns: int, descriptors: Sequence[int] = ()
    ) -> None:
        self._master, slave = pty.openpty()
        self._terminal = os.ttyname(slave)
        try:
            self.resize(rows, columns)
            # Started before the app's threads, so that code between fork and exec is safe.
            self._process = subprocess.Popen(
                list(argv),
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
                preexec_fn=_take_terminal,
                pass_fds=descriptors,
            )
        except OSError as error:
            os.close(self._master)
            reason = error.strerror or str(error)
            raise UsageError(
                f"{argv[0]}: cannot be started ({reason}); check that it is there and executable"
            ) from error
        finally:
            os.close(slave)
        os.set_blocking(self._master, False)
        self._lock = threading.Lock()
        self._open = True
        self._stop_pump = threading.Event()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Its exit status, -N when signal N killed it, None while it runs."""
        return self._process.poll()

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of its terminal (it gets SIGWINCH)."""
        size = struct.pack("HHHH", max(1, min(rows, 9999)), max(1, min(columns, 9999)), 0, 0)
        with contextlib.suppress(OSError):  # its other end is gone
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def write(self, data: bytes) -> int:
        """Type `data`, and return how many bytes it took (it may not be reading)."""
        with self._lock:
            if not self._open:
                return 0
            try:
                return os.write(self._master, data)
            except BlockingIOError:
                return 0
            except OSError as error:
                if error.errno == errno.EIO:
                    return 0
                raise

    def interrupt(self) -> None:
        """Press Ctrl-C: SIGINT, or the character itself where the script reads keys raw."""
        attributes = self._attributes()
        local = attributes[3] if attributes is not None else 0
        if not (isinstance(local, int) and local & termios.ISIG):
            self.write(self._control_character(termios.VINTR, b"\x03"))
            return
        # Not the character: behind a full queue of unread input it would wait forever. The
        # terminal knows who is in the foreground.
        with self._lock, contextlib.suppress(OSError):
            # There, group 0 means that there is none; for killpg it would be our own.
            if self._open and (group := os.tcgetpgrp(self._master)) > 0:
                os.killpg(group, signal.SIGINT)

    def end_input(self) -> None:
        """Press Ctrl-D."""
        self.write(self._control_character(termios.VEOF, b"\x04"))

    def echoes(self) -> bool:
        """Whether its terminal echoes typed keys; it does not while a password is asked for."""
        attributes = self._attributes()
        if attributes is None:
            return True
        local = attributes[3]
        return not isinstance(local, int) or bool(
            local & termios.ECHO or not local & termios.ICANON
        )

    def waits_for_input(self) -> bool:
        """Whether it waits for typed input; never, if the system does not show it."""
        return self.status is None and waits_for_typing(self.pid, self._terminal)

    def pump(self, on_output: Callable[[str], None], on_pause: Callable[[], None]) -> None:
        """Hand its output to `on_output` until it has ended and all is read, or `stop_pump`.

        `on_pause` is called at most ten times a second when there was output.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        unposted = False
        posted_s = 0.0
        reads_after_end = 0
        while not self._stop_pump.is_set():
            reads_after_end += self.status is not None
            data = self._read()
            if data:
                on_output(decoder.decode(data))
                unposted = True
            elif data is None:
                self._stop_pump.wait(TICK_S)
            now_s = time.monotonic()
            if unposted and now_s - posted_s >= POST_INTERVAL_S:
                on_pause()
                unposted, posted_s = False, now_s
            # Its child processes may hold the pty open and even write: not forever.
            if reads_after_end > (MAX_READS_AFTER_END if data else 2):
                break
        if unposted:
            on_pause()

    def stop_pump(self) -> None:
        """Make `pump` return soon."""
        self._stop_pump.set()

    def stop(self) -> int:
        """End it: SIGINT, so that it can clean up, then SIGTERM, then SIGKILL."""
        for number, patience_s in STOP_STEPS:
            if self.status is not None:
                break
            self._signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)
        return self._process.wait()

    def detach(self, log_path: Path) -> None:
        """Let it run on: a drain process takes its terminal over. `pump` must have returned."""
        with self._lock:
            subprocess.Popen(
                [sys.executable, "-I", "-S", drain.__file__, str(self._master), str(log_path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(self._master,),
                start_new_session=True,
                cwd="/",
            )
        self.close()

    def close(self) -> None:
        """Close its terminal; a second call is a no-op."""
        with self._lock:
            if self._open:
                self._open = False
                os.close(self._master)

    def _read(self) -> bytes | None:
        """Read for at most a tick; None when the other end is closed."""
        if not select.select([self._master], [], [], TICK_S)[0]:
            return b""
        try:
            return os.read(self._master, READ_BYTES) or None
        except BlockingIOError:
            return b""
        except OSError as error:
            if error.errno == errno.EIO:
                return None
            raise

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _control_character(self, which: int, default: bytes) -> bytes:
        attributes = self._attributes()
        characters = attributes[6] if attributes is not None else []
        character = characters[which] if isinstance(characters, list) and characters else default
        return character if isinstance(character, bytes) else default

    def _attributes(self) -> list[int | list[bytes | int]] | None:
        with self._lock, contextlib.suppress(termios.error):
            return termios.tcgetattr(self._master) if self._open else None
        return None


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@dataclass(frozen=True, slots=True)
class _Calls:
    """Numbers of system calls (`asm/unistd.h` of the architecture)."""

    reads: frozenset[int]
    selects: frozenset[int]


_CALLS = {
    "x86_64": _Calls(frozenset({0}), frozenset({23, 270})),
    "aarch64": _Calls(frozenset({63}), frozenset({72})),
}


def can_be_known() -> bool:
    """Whether this system shows that a process waits for typed input."""
    return sys.platform == "linux" and platform.machine() in _CALLS


def waits_for_typing(pid: int, terminal: str) -> bool:
    """Whether the main thread of `pid` is blocked until something is typed into `terminal`.

    Args:
        pid: a process of this user.
        terminal: the path of its terminal, such as /dev/pts/3.
    """
    calls = _CALLS.get(platform.machine())
    if calls is None:
        return False
    try:
        # "running", or the number of the call, its arguments in hexadecimal, and two registers.
        with open(f"/proc/{pid}/syscall", encoding="ascii") as file:
            number, *arguments = file.read().split()
        if not arguments:
            return False
        first = int(arguments[0], 16)
        if int(number) in calls.selects:
            # readline selects on stdin alone before it reads: one descriptor, which is 0.
            descriptor = 0 if first == 1 else -1
        else:
            descriptor = first if int(number) in calls.reads else -1
        return descriptor >= 0 and os.readlink(f"/proc/{pid}/fd/{descriptor}") == terminal
    except (OSError, ValueError):
        return False  # it has just ended, or this system does not let us look
