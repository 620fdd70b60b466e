"""Values by number, of which the script's process forgets all now and then."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Generations(Generic[_T]):
    """Values by number.

    Launches that refer to forgotten values may still lie in the ring, or be written by a thread
    that has looked one up before. So a generation stays until the next one is forgotten, too, and
    the ring was read so far.

    Args:
        absent: in place of a value that is gone all the same.
    """

    def __init__(self, absent: _T) -> None:
        self._absent = absent
        self._values: dict[int, _T] = {}
        self._forgotten: deque[tuple[int, int]] = deque()
        self._first = 0

    def __setitem__(self, number: int, value: _T) -> None:
        self._values[number] = value

    def __contains__(self, number: int) -> bool:
        return number in self._values or number < self._first

    def __getitem__(self, number: int) -> _T:
        return self._values.get(number, self._absent)

    def forget(self, at: int, first: int) -> None:
        """Values before `first` are not referred to by launches behind the slot `at`."""
        self._forgotten.append((at, first))

    def read_to(self, number: int) -> None:
        """The launches before that slot are dealt with."""
        while len(self._forgotten) > 1 and self._forgotten[1][0] < number:
            _, self._first = self._forgotten.popleft()
            self._values = {n: v for n, v in self._values.items() if n >= self._first}
