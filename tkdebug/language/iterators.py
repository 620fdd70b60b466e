"""Loop iterators; the front end reads the call, nothing here runs."""

from __future__ import annotations

from tkdebug.errors import TkError


class _Iterator:
    def __init__(self, *arguments: object, **keywords: object) -> None:
        name = type(self).__name__
        raise TkError(
            f"tl.{name} was called outside a kernel; it has a meaning only in the head of a `for` "
            "inside a function decorated with @triton.jit"
        )


class range(_Iterator):
    """A run-time loop: `range(start, end, step, num_stages=…, loop_unroll_factor=…, …)`."""


class static_range(_Iterator):
    """A loop unrolled at compile time; its bounds are constants."""


class condition(_Iterator):
    """A `while` condition with hints, as in `while tl.condition(x < n, …)`."""
