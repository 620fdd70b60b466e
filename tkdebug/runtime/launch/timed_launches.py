"""Launches that the script times, which therefore run as they are: unchecked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Asked at each launch of a kernel that is still checked, so not behind a function.
TIMED: ContextVar[bool] = ContextVar("tkdebug_timed", default=False)


@contextmanager
def timed_launches() -> Iterator[None]:
    """Launches of this thread inside the `with` block are timed."""
    token = TIMED.set(True)
    try:
        yield
    finally:
        TIMED.reset(token)
