"""What Ctrl-C does while a script runs under the debugger."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tkdebug.debugger.console.shell import Console
    from tkdebug.debugger.engine import Debugger


@contextlib.contextmanager
def interrupts(
    debugger: Debugger, console: Console, is_ending: Callable[[], bool] = bool
) -> Iterator[None]:
    """Ctrl-C stops in the kernel that runs, or at the script's next line.

    Args:
        debugger: of the kernels.
        console: knows what stops at the script's lines.
        is_ending: whether it is to end the script instead.
    """
    before = signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: FrameType | None) -> None:
        script = console.script_lines
        if is_ending():
            pass
        elif debugger.is_running:
            debugger.pause()
            return
        elif debugger.expressions.interrupt():
            return
        elif debugger.inspection is None and script is not None and script.interrupt(frame):
            return
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
