"""The progress line of a long interpreted launch, on a terminal's stderr."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator
from typing import TextIO

from tkdebug.records.events import Fault, LaunchProgress, LaunchRecord
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.terminal.text import visible_line

SHOW_AFTER_NS = 1_000_000_000
_ERASE_LINE = "\r\x1b[K"


class ProgressLine:
    """Rewrites one line of `stream` while a launch takes long, and erases it at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown: int | None = None

    def on_progress(self, event: LaunchProgress) -> None:
        """Show how far the launch is; nothing in its first second."""
        if event.elapsed_ns < SHOW_AFTER_NS:
            return
        columns = shutil.get_terminal_size().columns
        self._stream.write(_ERASE_LINE + progress_text(event)[: max(columns - 1, 20)])
        self._stream.flush()
        self._shown = event.launch_id

    def on_exit(self, kernel: object, record: LaunchRecord) -> None:
        """Erase the line of a launch that has ended."""
        if self._shown == record.id:
            self._erase()

    def on_fault(self, fault: Fault) -> None:
        """Make room for a fault, which is about to be printed."""
        if self._shown is not None:
            self._erase()

    def _erase(self) -> None:
        self._stream.write(_ERASE_LINE)
        self._stream.flush()
        self._shown = None


@contextlib.contextmanager
def progress_line() -> Iterator[None]:
    """Show how far long launches are while this lasts, where stderr is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    line = ProgressLine(sys.stderr)
    hook = Hook(exit=line.on_exit, progress=line.on_progress, fault=line.on_fault, native=False)
    HOOKS.add(hook)
    try:
        yield
    finally:
        HOOKS.remove(hook)


def progress_text(event: LaunchProgress) -> str:
    """Programs done, rate and time left, as one line."""
    elapsed_s = event.elapsed_ns / 1e9
    rate = event.programs_done / elapsed_s if elapsed_s else 0.0
    percent = 100 * event.programs_done // max(event.programs, 1)
    left = format_seconds((event.programs - event.programs_done) / rate) if rate else "unknown"
    kernel = visible_line(event.kernel)
    return (
        f"tkdebug: {kernel}: {event.programs_done:,} of {event.programs:,} programs "
        f"({percent} %), {rate:,.0f}/s, {left} left"
    )


def format_seconds(seconds: float) -> str:
    """Return a duration as a text such as `8 s`, `2 min 5 s` or `3 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
