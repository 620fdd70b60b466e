"""Ends an adapter whose client is gone, from a process of its own.

C code that keeps Python's lock for good, such as `sum(iter(int, 1))`, lets no other thread of the
adapter see that. This file is also the program of that process, without tkdebug.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# The time for the adapter to end by itself, or to say that it will.
_GRACE_MS = 5_000


@contextmanager
def watched(client: int) -> Iterator[None]:
    """End this process if it does not leave the block soon after the client is gone.

    Args:
        client: the file descriptor from which the client's requests are read.
    """
    if not hasattr(select, "poll"):  # Windows
        yield
        return
    theirs, ours = os.pipe()
    words = [sys.executable, "-I", "-S", __file__, str(client), str(theirs), str(os.getpid())]
    nothing = subprocess.DEVNULL
    with suppress(OSError):  # no process, no watchdog
        # It returns at once: the watchdog is nobody's child, so that no script waits for it.
        subprocess.run(
            words,
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            pass_fds=(client, theirs),
            check=False,
        )
    os.close(theirs)
    try:
        yield
    finally:
        with suppress(OSError):  # there is no watchdog, or no more
            os.write(ours, b".")  # children of the script may hold this end, too
        os.close(ours)


def watch(client: int, unwatched: int, pid: int) -> None:
    """Wait until the client is gone; then give the adapter some time, and kill it.

    Args:
        client: the adapter's input for requests; here it is only looked at.
        unwatched: a pipe into which the adapter writes once it needs no watching.
        pid: the adapter's, which has not ended yet.
    """
    # It stands for this process, even when another gets the number; only Linux has it.
    process = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    if os.fork():
        return
    os.setsid()  # Ctrl-C in the adapter's terminal is not meant
    ending, any_of_them = select.poll(), select.poll()
    for each in (ending, any_of_them):
        each.register(unwatched, select.POLLIN)
        if process is not None:
            each.register(process, select.POLLIN)
    # poll always reports that a pipe's other end is closed; for a socket it has to be asked.
    any_of_them.register(client, getattr(select, "POLLRDHUP", 0))
    if any(ready != client for ready, _ in any_of_them.poll()) or ending.poll(_GRACE_MS):
        return
    if process is not None:
        signal.pidfd_send_signal(process, signal.SIGKILL)
    else:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    watch(*map(int, sys.argv[1:]))
