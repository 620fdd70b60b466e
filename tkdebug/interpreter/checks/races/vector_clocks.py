"""Vector clocks that share what they have in common.

A clock tells for each program how many of its segments are known to have ended. A launch may have
tens of thousands of programs, and each of them a clock for each of its segments, so a clock is an
immutable tree: clocks that differ in one program share all but one path. Programs that synchronise
in a chain, as at a lock or a counter, have clocks of which the later holds the earlier, and joining
those looks at little more than where they differ.

Invariant: a clock never changes, and a join gives one of its operands where that holds the other.
"""

from __future__ import annotations

from operator import is_
from typing import TypeAlias

_BITS = 4
_WIDTH = 1 << _BITS

# A node's children, or a leaf's counts; None where all counts are 0.
Clock: TypeAlias = tuple["Clock | int", ...] | None

_NO_COUNTS: Clock = (0,) * _WIDTH
_NO_CHILDREN: Clock = (None,) * _WIDTH


class VectorClocks:
    """The clocks of one launch of `programs` programs; the one of a program's begin is None."""

    def __init__(self, programs: int) -> None:
        levels = 1
        while _WIDTH**levels < programs:
            levels += 1
        self._shift = _BITS * (levels - 1)

    def count(self, clock: Clock, program: int) -> int:
        """How many segments of `program` are known to have ended."""
        shift = self._shift
        node: Clock | int = clock
        while isinstance(node, tuple):
            node = node[program >> shift & _WIDTH - 1]
            shift -= _BITS
        return node or 0

    def with_count(self, clock: Clock, program: int, count: int) -> Clock:
        """`clock`, but with that count for `program`."""
        return _with_count(clock, program, count, self._shift)

    def join(self, a: Clock, b: Clock) -> Clock:
        """What is known to one or the other."""
        return _join(a, b, self._shift)


def _with_count(node: Clock, program: int, count: int, shift: int) -> Clock:
    place = program >> shift & _WIDTH - 1
    if shift == 0:
        counts = node or _NO_COUNTS
        assert counts is not None
        return (*counts[:place], count, *counts[place + 1 :])
    children = node or _NO_CHILDREN
    assert children is not None
    child = children[place]
    assert not isinstance(child, int)
    child = _with_count(child, program, count, shift - _BITS)
    return (*children[:place], child, *children[place + 1 :])


def _join(a: Clock, b: Clock, shift: int) -> Clock:
    if a is b or b is None:
        return a
    if a is None:
        return b
    joined: Clock
    if shift == 0:
        joined = tuple(map(max, a, b))  # type: ignore[arg-type]
        if joined == a:
            return a
        return b if joined == b else joined
    joined = tuple(
        [_join(x, y, shift - _BITS) for x, y in zip(a, b, strict=True)]  # type: ignore[arg-type]
    )
    # By identity, so that this does not compare whole trees.
    if all(map(is_, joined, a)):
        return a
    return b if all(map(is_, joined, b)) else joined
