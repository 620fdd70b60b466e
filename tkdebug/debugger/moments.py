"""Moments of a launch, and the counts that identify them."""

from __future__ import annotations

from typing import NamedTuple


class Moment(NamedTuple):
    """A moment of a launch; the same in each execution of it, and ordered by time.

    Attributes:
        op: how many ops had begun, this one included, in all programs and batches.
        place: the position among the marks before that op; their number for the op itself.
    """

    op: int
    place: int


BEGINNING = Moment(0, 0)
END = Moment(1 << 62, 0)
