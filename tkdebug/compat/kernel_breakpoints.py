"""`breakpoint()` in a kernel opens the console where there is an interactive terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tkdebug.records.hook_chain import HOOKS, LaunchDebugger


def stop_at_breakpoints() -> Callable[[], None]:
    """Open the console where a kernel calls `breakpoint()`; gives what ends that."""
    made: list[LaunchDebugger] = []

    def break_into() -> LaunchDebugger | None:
        # Once, so that `detach` is for all kernels behind it.
        if not made and (found := _console()) is not None:
            made.append(found)
        return made[0] if made else None

    HOOKS.break_into = break_into

    def restore() -> None:
        HOOKS.break_into = None

    return restore


def _console() -> LaunchDebugger | None:
    """A debugger on this terminal, of this and all later launches; None without a terminal."""
    streams = (sys.stdin, sys.stdout)
    if not all(stream is not None and stream.isatty() for stream in streams):
        return None
    # Only who stops in a kernel imports the debugger.
    from tkdebug.debugger.console.terminal import terminal_console
    from tkdebug.debugger.engine import Debugger

    console = terminal_console()
    debugger = Debugger(console)
    console.attach(debugger)
    debugger.attach()
    return debugger
