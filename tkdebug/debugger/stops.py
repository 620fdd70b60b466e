"""Moments of a launch, with the counts that identify them, and stops as fronts get them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tkdebug.errors import Frame


class Moment(NamedTuple):
    """A moment of a launch; the same in each execution of it, and ordered by time.

    Attributes:
        op: the number of ops that had begun, this one included, in all programs and batches.
        place: the position among the marks before that op; their number for the op itself.
    """

    op: int
    place: int


BEGINNING = Moment(0, 0)
END = Moment(1 << 62, 0)


class Reason(Enum):
    """Reason why a launch is stopped."""

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
        moment: the moment, for `GoTo`.
        breakpoints: the numbers of the met breakpoints.
        detail: further text, one line each: which element was written by whom, the fault's text.
        notes: other events, such as an assignment that was undone.
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
