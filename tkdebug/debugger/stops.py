"""Stops, as fronts get them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tkdebug.debugger.moments import Moment
from tkdebug.errors import Frame


class Reason(Enum):
    """Why a launch is stopped."""

    # A launch begins, and was to stop at once.
    ENTRY = "entry"
    STEP = "step"
    BREAKPOINT = "breakpoint"
    # A variable or an element of memory changed.
    WATCH = "watch"
    # `breakpoint()` in the kernel.
    CALL = "breakpoint()"
    FAULT = "fault"
    PAUSE = "pause"
    # A moment that was asked for.
    ARRIVED = "arrived"
    # Time ran back to the beginning of the launch.
    BEGINNING = "beginning"
    # The launch has ended; its tensors are as it left them.
    END = "end"


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop of a launch.

    Attributes:
        launch: its number, 1 for the first of the process.
        kernel: its name.
        frames: the chain of calls, outermost first; () at the END.
        moment: to come back to by `GoTo`.
        breakpoints: the numbers of those that were met.
        detail: more to say, one line each: which element was written by whom, the fault's text.
        notes: what else happened, such as an assignment that was undone.
        is_return: whether the function is about to return.
    """

    reason: Reason
    launch: int
    kernel: str
    frames: tuple[Frame, ...]
    moment: Moment
    breakpoints: tuple[int, ...] = ()
    detail: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_return: bool = False

    @property
    def place(self) -> Frame | None:
        """The innermost line."""
        return self.frames[-1] if self.frames else None
