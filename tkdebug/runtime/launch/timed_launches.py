"""The next action at a kernel's launch: timed launches run bare."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum, auto


class NextAction(Enum):
    """The action at the next launch of a kernel that has checks."""

    # Launch its bare code.
    SUBMIT = auto()
    # Let the kernel look at the launch, and check it where that is the launch's turn.
    LOOK = auto()


# The action of a kernel of which every launch is looked at. The generated launch function calls
# `UNLESS_TIMED.get` at each launch: a Python function would take longer.
UNLESS_TIMED: ContextVar[NextAction] = ContextVar("tkdebug_next_action", default=NextAction.LOOK)


@contextmanager
def timed_launches() -> Iterator[None]:
    """Mark the launches of this thread inside the `with` block as timed."""
    token = UNLESS_TIMED.set(NextAction.SUBMIT)
    try:
        yield
    finally:
        UNLESS_TIMED.reset(token)


def are_timed() -> bool:
    """Whether launches that are made here and now are timed."""
    return UNLESS_TIMED.get() is NextAction.SUBMIT
