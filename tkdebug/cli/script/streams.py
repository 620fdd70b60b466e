"""Standard streams for tkdebug's own output after a script, which may replace or close them.

Invariant: after the script `sys.stdout` and `sys.stderr` can be written to, and what is written
goes where it went before the script, as far as the script left that open.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO


@contextlib.contextmanager
def kept_streams() -> Iterator[None]:
    """Put the streams back at the end; those that the script closed are opened anew."""
    before = (sys.stdout, sys.stderr)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            # One of the script's own, which Python would flush when it ends.
            with contextlib.suppress(Exception):
                stream.flush()
        sys.stdout, sys.stderr = _usable(before[0], 1), _usable(before[1], 2)


def _usable(stream: TextIO, descriptor: int) -> TextIO:
    """`stream`, or what takes its place where the script has closed it."""
    if stream is None:  # a process may begin without
        return stream
    if not stream.closed:
        try:
            os.fstat(stream.fileno())
        except io.UnsupportedOperation:
            return stream  # no file behind it
        except OSError:
            return _nowhere()
        return stream
    try:
        copy = os.dup(descriptor)
    except OSError:
        return _nowhere()
    return os.fdopen(copy, "w", buffering=1, encoding="utf-8", errors="backslashreplace")


def _nowhere() -> TextIO:
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
