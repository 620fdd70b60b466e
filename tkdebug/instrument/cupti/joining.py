"""Matches the GPU's records with launches.

CUPTI numbers each call of the driver, and the record of a kernel has the number of the call that
launched it. Each call is noted as it returns, with its thread and the time. A launch knows its
thread and the two times between which it called the driver, and a thread makes one call at a time:
so the call of a launch is the one of its thread that returned between these times. That holds
beside other threads, other users of the same driver function, failed calls, records that were
dropped, and graph captures, whose launches have a call and no kernel. A launch without a call has
no time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from tkdebug.records.hook_chain import CALL_FIELDS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

# How long launches and calls wait for each other.
PATIENCE_NS = 2_000_000_000


class Made(NamedTuple):
    """A launch that was made.

    Attributes:
        thread: the native id of its thread.
        before_ns: a time before it called the driver, since 1970.
        after_ns: a time after it.
        grid: blocks along x, y and z, which its kernel's record has to have, too.
    """

    launch: int
    thread: int
    before_ns: int
    after_ns: int
    grid: tuple[int, int, int]


class Calls(NamedTuple):
    """Calls of the driver, as arrays.

    Attributes:
        time_ns: the time at which each returned, since 1970.
        is_captured: 1 where a CUDA graph captured its kernel.
    """

    thread: Numbers
    time_ns: Numbers
    correlation: Numbers
    is_captured: Numbers


class Joined(NamedTuple):
    """The results of joining launches.

    Attributes:
        launches: the launches by the number of their call.
        captured: launches that a CUDA graph captured, whose kernels did not run.
        lost: launches whose call did not come.
    """

    launches: dict[int, Made]
    captured: list[int]
    lost: list[int]


class CallJoiner:
    """Launches and calls that have not found each other yet."""

    def __init__(self) -> None:
        self._launches: list[Made] = []
        self._calls: list[Calls] = []

    def add(self, launches: Iterable[Made], calls: Calls | None) -> None:
        """Add launches and calls that became known."""
        self._launches.extend(launches)
        if calls is not None and len(calls.thread):
            self._calls.append(calls)

    def join(self, taken_ns: int) -> Joined:
        """Return the launches that were just matched with a call.

        Args:
            taken_ns: the time up to which calls are known; 0 to give up none.
        """
        import numpy as np

        found = Joined({}, [], [])
        oldest_ns = taken_ns - PATIENCE_NS
        calls = self._all_calls()
        is_free = np.ones(len(calls.thread), bool)
        left: list[Made] = []
        threads = np.array([one.thread for one in self._launches])
        for thread in np.unique(threads).tolist():
            own = [self._launches[i] for i in np.flatnonzero(threads == thread).tolist()]
            places = np.flatnonzero(calls.thread == thread)
            places = places[np.argsort(calls.time_ns[places], kind="stable")]
            times = calls.time_ns[places]
            own.sort(key=lambda one: one.before_ns)
            first = np.searchsorted(times, [one.before_ns for one in own])
            after_last = 0
            for one, at in zip(own, first.tolist(), strict=True):
                # A call belongs to one launch: the next launch may begin in the same tick of the
                # clock in which the call of the launch before it returned.
                at = max(at, after_last)
                if at < len(times) and times[at] <= one.after_ns:
                    place = places[at]
                    if calls.is_captured[place]:
                        found.captured.append(one.launch)
                    else:
                        found.launches[int(calls.correlation[place])] = one
                    is_free[place] = False
                    after_last = at + 1
                elif one.after_ns < oldest_ns:
                    found.lost.append(one.launch)
                else:
                    left.append(one)
        self._launches = left
        # A launch may become known some time after its call.
        kept = is_free & (calls.time_ns > oldest_ns)
        self._calls = [Calls(*(column[kept] for column in calls))] if kept.any() else []
        return found

    def _all_calls(self) -> Calls:
        import numpy as np

        if not self._calls:
            return Calls(*(np.zeros(0, np.int64) for _ in Calls._fields))
        return Calls(*(np.concatenate(parts) for parts in zip(*self._calls, strict=True)))

    def waiting(self) -> Numbers:
        """The numbers of the calls whose launches may yet become known."""
        return self._all_calls().correlation

    def give_up(self) -> list[int]:
        """Forget the launches that found no call, and return them."""
        launches = [one.launch for one in self._launches]
        self._launches, self._calls = [], []
        return launches


def noted_calls(notes: bytes) -> Calls:
    """The calls that `ActivityBuffers.calls` packed.

    Raises:
        ValueError: these are no whole notes.
    """
    import numpy as np

    found = np.frombuffer(notes, list(CALL_FIELDS))
    return Calls(*(found[name].astype(np.int64) for name in Calls._fields))
