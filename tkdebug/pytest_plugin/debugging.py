"""`--tkdebug-pdb`: the console at a kernel's fault, in a test, with pytest's capture suspended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pytest

from tkdebug.debugger.breakpoints import BreakKind
from tkdebug.debugger.console.shell import Console
from tkdebug.debugger.console.terminal import terminal_console
from tkdebug.debugger.engine import Debugger
from tkdebug.debugger.goals import Quit, Resume
from tkdebug.debugger.stops import Stop

if TYPE_CHECKING:
    from collections.abc import Callable


class Capture(Protocol):
    """The part of pytest's capture manager that is used here."""

    def suspend(self, in_: bool = False) -> None:
        """Let output through, and stdin be read if `in_` is set."""
        ...

    def resume(self) -> None:
        """Capture again."""
        ...


class SuspendingFront:
    """A console that is asked while pytest captures nothing.

    Args:
        console: the console that is asked at stops.
        capture: pytest's; None if nothing is captured.
    """

    def __init__(self, console: Console, capture: Capture | None) -> None:
        self._console = console
        self._capture = capture

    def log(self, text: str) -> None:
        """Print a log point's text as the test's output."""
        self._console.log(text)

    def stopped(self, debugger: Debugger, stop: Stop) -> Resume:
        """Ask at the console.

        Raises:
            Exit: `quit` was typed: pytest ends.
        """
        if self._capture is not None:
            self._capture.suspend(in_=True)
        try:
            resume = self._console.stopped(debugger, stop)
        finally:
            if self._capture is not None:
                self._capture.resume()
        if isinstance(resume, Quit):
            pytest.exit("tkdebug: quitting at the console", returncode=2)
        return resume


def stop_at_faults(config: pytest.Config) -> Callable[[], None]:
    """Open the console at each fault of a kernel, and at `breakpoint()`; return what undoes it."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    console = terminal_console()
    console.write = print  # stdout as it is at the stop
    debugger = Debugger(SuspendingFront(console, capture))
    console.attach(debugger)
    debugger.add(BreakKind.FAULT)
    debugger.attach()
    return debugger.detach
