"""Ends an adapter whose client is gone, from a process of its own.

C code that keeps Python's lock for good, such as `sum(iter(int, 1))`, lets no other thread of the
adapter see that. This file is also what that process runs, without tkdebug.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# For the adapter to end by itself, or to say that it sees to it.
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
    # It returns at once: the watchdog is nobody's child, so that no script waits for it.
    subprocess.run(
        words, stdin=nothing, stdout=nothing, stderr=nothing, pass_fds=(client, theirs), check=False
    )
    os.close(theirs)
    try:
        yield
    finally:
        os.close(ours)


def watch(client: int, adapter: int, pid: int) -> None:
    """Wait until the client is gone; then give the adapter some time, and kill it.

    Args:
        client: what the adapter reads requests from; here it is only looked at.
        adapter: a pipe that the adapter closes once it needs no watching, or ends.
        pid: the adapter's.
    """
    both, ours = select.poll(), select.poll()
    # That a pipe's other end is closed is always told; that a socket's is, where it is asked for.
    both.register(client, getattr(select, "POLLRDHUP", 0))
    both.register(adapter, 0)
    ours.register(adapter, 0)
    if any(ready == adapter for ready, _ in both.poll()):
        return
    if not ours.poll(_GRACE_MS):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    if not os.fork():
        os.setsid()  # Ctrl-C in the adapter's terminal is not meant
        watch(*map(int, sys.argv[1:]))
