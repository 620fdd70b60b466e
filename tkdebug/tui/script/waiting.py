"""Whether a process waits for input, by the system call that it is blocked in.

Known on Linux only. What a script prints is no sign of it: a prompt and a progress bar look alike.
"""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass


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
    """Whether this system tells."""
    return sys.platform == "linux" and platform.machine() in _CALLS


def waits_for_typing(pid: int, terminal: str) -> bool:
    """Whether the main thread of `pid` is blocked until something is typed into `terminal`.

    Args:
        pid: a process of this user's.
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
