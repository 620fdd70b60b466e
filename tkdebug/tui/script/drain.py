"""Keeps a script's pty open after the TUI has gone. A program of its own: `drain.py FD LOG`.

A pty whose last master is closed hangs up: the script gets SIGHUP, and EIO where it writes. When
the user lets the script run on, this process inherits the master and stays for as long as anything
has the other end open. It does what `nohup` does: output is appended to a log file (the session
records output through `sys.stdout`; the log also has output that bypassed it), and reading the
terminal gives end of file. Only the standard library is used, for it is run with `-I -S`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import sys
import termios

MAX_LOG_BYTES = 64 << 20
_END_OF_FILES = 64


def main(master: int, log_path: str) -> None:
    """Read `master` until the other end is closed; the log is made when there is output."""
    _end_input(master)
    log: int | None = None
    room_bytes = MAX_LOG_BYTES
    while True:
        select.select([master], [], [])
        try:
            data = os.read(master, 1 << 16)
        except BlockingIOError:
            continue
        except OSError as error:
            if error.errno == errno.EIO:
                return
            raise
        if not data:
            return
        if log is None:
            log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if room_bytes > 0:
            _write(log, data[:room_bytes])
            room_bytes -= len(data)


def _end_input(master: int) -> None:
    # Each read of the script takes one end-of-file character; no more of them will be typed.
    with contextlib.suppress(termios.error, BlockingIOError):  # has ended; or has not read yet
        attributes = termios.tcgetattr(master)
        if attributes[3] & termios.ICANON:
            os.write(master, attributes[6][termios.VEOF] * _END_OF_FILES)


def _write(log: int, data: bytes) -> None:
    while data:
        data = data[os.write(log, data) :]


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
