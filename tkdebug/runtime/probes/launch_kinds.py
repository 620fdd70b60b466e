"""Which launches of a kernel are checked, where not all of them are.

A launch whose addresses may differ from those of all launches before it is checked: it has another
grid, or other shapes, strides or ints. What is loaded from memory, and NaNs, may differ in any
launch, so the launches 2, 4, 8, … of a kernel are checked where that matters, or where there are
more kinds of launches than are remembered.

Looking at a launch costs some microseconds. A kernel that shows nothing new is left alone for
`QUIET` launches, then for twice as many, and in the end for good.
"""

from __future__ import annotations

from collections.abc import Hashable

MOST_KINDS = 16
QUIET = 64
LONGEST_REST = 1 << 14


class LaunchKinds:
    """The launches of one kernel so far.

    Attributes:
        depends_on_data: whether it may go wrong in a launch like another that was checked.
        rest: how many launches from now on nobody need look at; None for all of them.
    """

    def __init__(self) -> None:
        self.depends_on_data = False
        self.rest: int | None = 0
        self._seen: set[Hashable] = set()
        # Whether launches 2, 4, 8, … are checked.
        self._stays = False
        self._launches = 0
        self._checked_at = 0
        # Launches in a row that showed nothing new.
        self._quiet = 0
        self._next_rest = QUIET

    def wants(self, kind: Hashable) -> bool:
        """Whether the launch that is made now is checked.

        Args:
            kind: equal for launches with the same addresses, but for what is loaded.
        """
        self._launches += 1 + (self.rest or 0)
        self.rest = 0
        is_new = kind not in self._seen
        if is_new and len(self._seen) < MOST_KINDS:
            self._seen.add(kind)
            return self._checked()
        # One that is not remembered may come again.
        self._stays = self._stays or is_new or self.depends_on_data
        if self._stays and self._launches >= 2 * self._checked_at:
            return self._checked()
        self._quiet += 1
        if self._quiet >= QUIET:
            self._take_rest()
        return False

    def _checked(self) -> bool:
        self._checked_at = self._launches
        self._quiet = 0
        self._next_rest = QUIET
        return True

    def _take_rest(self) -> None:
        rest = self._next_rest
        if self._stays:
            # Up to the one before the next that is checked.
            rest = min(rest, max(0, 2 * self._checked_at - self._launches - 1))
        elif rest > LONGEST_REST:
            self.rest = None
            return
        self._next_rest *= 2
        self.rest = rest
