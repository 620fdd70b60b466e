"""Which record of the GPU belongs to which launch.

CUPTI numbers each call of the driver, and the record of a kernel has the number of the call that
launched it. Of the call itself it is known which thread made it and a time of it: when it returned,
or, where CUPTI makes a record of each, when it began by CUPTI's clock. A launch knows its
thread and between which times it called the driver, and a thread makes one call at a time: so the
call of a launch is the one of its thread whose time is between these times. That holds beside other
threads, other users of the same driver function, failed calls, records that were dropped, and graph
captures, whose launches have a call and no kernel. A launch without a call has no time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from tkdebug.hook_chain import CALL_FIELDS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tkdebug.instrument.cupti.parsing import Records

    Numbers = npt.NDArray[np.int64]

_SLACK_NS = 200


class Clock(NamedTuple):
    """How CUPTI's clock stands to the host's.

    Attributes:
        offset_ns: what to add to a time of CUPTI's for nanoseconds since 1970.
        error_ns: how far that may be wrong.
    """

    offset_ns: int
    error_ns: int


class Made(NamedTuple):
    """A launch that was made.

    Attributes:
        thread: its native id.
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
        time_ns: of each, between those of its launch.
        error_ns: how far that may be wrong.
    """

    thread: Numbers
    time_ns: Numbers
    correlation: Numbers
    error_ns: Numbers


class Joined(NamedTuple):
    """The results of joining launches.

    Attributes:
        launches: by the number of their call.
        lost: launches whose call did not come.
    """

    launches: dict[int, Made]
    lost: list[int]


class CallJoiner:
    """Launches and calls that have not found each other yet.

    Attributes:
        patience_ns: how long a launch waits for its call once later ones of its thread are known.
    """

    def __init__(self, patience_ns: int = 2_000_000_000) -> None:
        self.patience_ns = patience_ns
        self._launches: list[Made] = []
        self._calls: list[Calls] = []

    def add(self, launches: Iterable[Made], calls: Calls | None) -> None:
        """What became known."""
        self._launches.extend(launches)
        if calls is not None and len(calls.thread):
            self._calls.append(calls)

    def join(self) -> Joined:
        """Those that have found each other now."""
        import numpy as np

        found = Joined({}, [])
        if not self._calls or not self._launches:
            return found
        calls = Calls(*(np.concatenate(parts) for parts in zip(*self._calls, strict=True)))
        slack_ns = int(calls.error_ns.max())
        left: list[Made] = []
        used = np.zeros(len(calls.thread), bool)
        threads = np.array([one.thread for one in self._launches])
        for thread in np.unique(threads).tolist():
            own = [self._launches[i] for i in np.flatnonzero(threads == thread).tolist()]
            places = np.flatnonzero(calls.thread == thread)
            places = places[np.argsort(calls.time_ns[places], kind="stable")]
            times = calls.time_ns[places]
            own.sort(key=lambda one: one.before_ns)
            first = np.searchsorted(times, [one.before_ns - slack_ns for one in own])
            after_last = 0
            for one, at in zip(own, first.tolist(), strict=True):
                # A call is of one launch: that of the one before may be in reach of the slack.
                at = max(at, after_last)
                if at < len(times) and times[at] <= one.after_ns + slack_ns:
                    found.launches[int(calls.correlation[places[at]])] = one
                    used[places[at]] = True
                    after_last = at + 1
                elif len(times) and times[-1] > one.after_ns + self.patience_ns:
                    found.lost.append(one.launch)
                else:
                    left.append(one)
        self._launches = left
        self._keep_latest(calls, ~used)
        return found

    def _keep_latest(self, calls: Calls, is_free: npt.NDArray[np.bool_]) -> None:
        """Calls may come before the launches that made them, though not long before."""
        latest = calls.time_ns.max() if len(calls.time_ns) else 0
        kept = is_free & (calls.time_ns > latest - self.patience_ns)
        self._calls = [Calls(*(column[kept] for column in calls))] if kept.any() else []

    def give_up(self) -> list[int]:
        """The launches that found nothing; they are forgotten."""
        launches = [one.launch for one in self._launches]
        self._launches, self._calls = [], []
        return launches


def recorded_calls(records: Records, callback: int, clock: Clock) -> Calls:
    """The calls of one driver function that succeeded, of CUPTI's records of calls."""
    import numpy as np

    kept = records[(records["cbid"] == callback) & (records["returnValue"] == 0)]
    return Calls(
        kept["threadId"].astype(np.int64),
        kept["start"].astype(np.int64) + clock.offset_ns,
        kept["correlationId"].astype(np.int64),
        np.full(len(kept), clock.error_ns + _SLACK_NS),
    )


def noted_calls(notes: bytes) -> Calls:
    """The calls that `ActivityBuffers.calls` packed; their times are the host's, as launches' are.

    Raises:
        ValueError: these are no whole notes.
    """
    import numpy as np

    found = np.frombuffer(notes, list(CALL_FIELDS))
    thread, correlation = (found[name].astype(np.int64) for name in ("thread", "correlation"))
    return Calls(thread, found["time_ns"], correlation, np.zeros(len(found), np.int64))
