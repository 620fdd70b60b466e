"""Takes away what Python lacks on Windows, and then imports tkdebug or runs a command of it.

`python -m without_posix modules` imports every module but those that the TUI needs over a running
script; `screen FILE` opens a recorded session; `run …` is `tkdebug run …` in such a Python.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import select
import signal
import socket
import sys
from pathlib import Path

# Python documentation, "Module Index" and the availability notes of `os`, `signal`, `select` and
# `socket`; what the standard library has imported by now keeps its own reference.
MODULES = ("fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "posix", "curses")
OF_OS = (
    *("fork", "forkpty", "register_at_fork", "memfd_create", "pidfd_open", "killpg", "setsid"),
    *("getuid", "geteuid", "getgid", "getpgid", "getpgrp", "tcgetpgrp", "tcsetpgrp", "openpty"),
    *("pread", "pwrite", "preadv", "sched_getaffinity", "mkfifo", "uname", "sysconf", "getloadavg"),
    *("wait4", "wait3", "waitid", "nice", "fchown", "lchown", "chown", "getpriority", "sendfile"),
    *("eventfd", "posix_spawn", "ctermid", "ttyname", "O_NONBLOCK", "O_CLOEXEC", "MFD_CLOEXEC"),
    *("O_NOFOLLOW", "O_DIRECTORY", "O_SYNC", "WNOHANG", "set_blocking", "get_blocking"),
)
OF_SIGNAL = (
    *("SIGHUP", "SIGKILL", "SIGQUIT", "SIGTSTP", "SIGCONT", "SIGSTOP", "SIGUSR1", "SIGUSR2"),
    *("SIGALRM", "SIGWINCH", "SIGPIPE", "SIGCHLD", "SIGTTOU", "SIGTTIN", "setitimer", "alarm"),
    *("pthread_kill", "pthread_sigmask", "sigwait", "siginterrupt", "pause", "sigpending"),
)
OF_SELECT = ("poll", "epoll", "EPOLLIN", "POLLIN", "POLLHUP", "kqueue")
OF_SOCKET = ("AF_UNIX", "SOCK_SEQPACKET", "recv_fds", "send_fds", "SCM_RIGHTS")
# The terminal of a running script, and the process that records beside a GPU of Linux; the SDK of
# MCP, which the server imports, goes by `sys.platform`, and that is still Linux here.
POSIX_ONLY = ("tkdebug.tui.script.child", "tkdebug.tui.script.drain", "tkdebug.mcp_server.server")


def take_away(event_loop_runs: bool = False) -> None:
    """Remove it all from this process, but what its event loop uses."""
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    names = [(os, OF_OS), (signal, OF_SIGNAL), (socket, OF_SOCKET)]
    if not event_loop_runs:
        names.append((select, OF_SELECT))
    for module, gone in names:
        for name in gone:
            if hasattr(module, name):
                delattr(module, name)


def import_all() -> list[str]:
    """Return the failures of imports, a line for each module."""
    import tkdebug

    problems = []
    # What an extra installs.
    lacks_mcp = importlib.util.find_spec("mcp") is None
    for found in pkgutil.walk_packages(tkdebug.__path__, "tkdebug."):
        if found.name in POSIX_ONLY or found.name.endswith("__main__"):
            continue
        if lacks_mcp and found.name.startswith("tkdebug.mcp_server."):
            continue
        try:
            importlib.import_module(found.name)
        except (ImportError, AttributeError) as error:
            problems.append(f"{found.name}: {type(error).__name__}: {error}")
    return problems


def main() -> int:
    """Run what the arguments say."""
    # These use more of the system than we do, and use it as they are imported.
    import asyncio
    import multiprocessing.util  # noqa: F401

    import textual.app
    import textual.drivers.linux_driver  # noqa: F401
    import torch  # noqa: F401

    if sys.argv[1] == "screen":
        return asyncio.run(_screen(sys.argv[2]))
    take_away()
    if sys.argv[1:] == ["modules"]:
        print("\n".join(import_all()))
        return 0
    from tkdebug.cli import main as tkdebug_main

    sys.argv[0] = "tkdebug"
    return tkdebug_main(sys.argv[1:])


async def _screen(path: str) -> int:
    """Open a recorded session in the TUI and print the screen."""
    from opened_session import screen_of

    take_away(event_loop_runs=True)
    print("\n".join(await screen_of(Path(path))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
