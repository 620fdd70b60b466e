"""Lines of the script from which kernels were launched that tkdebug did not compile.

The script's process reports the begin, the end and the thread of each operation of torch, and its
origin: a line and the scopes around it. CUPTI reports the begin and the thread of each call of
CUDA's, and its number, which the kernel has, too. An operation that was under way on that thread
launched the kernel. Autograd launches on a thread of its own, while the thread that called
`backward` waits in it: so a call on a thread without operations belongs to the only thread that was
in any at that time. A kernel for which neither is known has no origin.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tkdebug.instrument.cupti.layouts import Records

# How long before the latest call anything is kept: kernels are recorded when they have ended.
_KEPT_NS = 30_000_000_000


class _Thread:
    """The operations of one thread, which follow each other."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.origins: list[int] = []

    def add(self, start_ns: int, end_ns: int, origin: int) -> None:
        self.starts.append(start_ns)
        self.ends.append(end_ns)
        self.origins.append(origin)

    def at(self, time_ns: int) -> int:
        """Return the origin of the operation under way then; 0 if there was none."""
        place = bisect_right(self.starts, time_ns) - 1
        return self.origins[place] if place >= 0 and time_ns <= self.ends[place] else 0

    def forget(self, before_ns: int) -> None:
        count = bisect_right(self.ends, before_ns)
        del self.starts[:count], self.ends[:count], self.origins[:count]


class OpSpans:
    """Operations and calls of one process."""

    def __init__(self) -> None:
        self._threads: dict[int, _Thread] = defaultdict(_Thread)
        # Thread and start of calls, by number.
        self._calls: dict[int, tuple[int, int]] = {}
        self._latest_ns = 0

    def add(self, thread: int, start_ns: int, end_ns: int, origin: int) -> None:
        """Add an operation that has ended."""
        self._threads[thread].add(start_ns, end_ns, origin)

    def add_calls(self, records: Records, offset_ns: int) -> None:
        """Add calls of the driver or the runtime."""
        starts = (records["start"].astype("int64") + offset_ns).tolist()
        numbers, threads = records["correlationId"].tolist(), records["threadId"].tolist()
        self._calls.update(zip(numbers, zip(threads, starts, strict=True), strict=True))
        self._latest_ns = max(self._latest_ns, *starts)

    def origins_of(self, calls: npt.NDArray[np.int64]) -> list[int]:
        """Return the origin of each call's launch; 0 if unknown."""
        found = [self._calls.get(call) for call in calls.tolist()]
        return [0 if call is None else self._origin(*call) for call in found]

    def _origin(self, thread: int, time_ns: int) -> int:
        own = self._threads.get(thread)
        if own is not None:
            return own.at(time_ns)
        others = [one.at(time_ns) for one in self._threads.values()]
        known = [origin for origin in others if origin]
        return known[0] if len(known) == 1 else 0

    def forget(self) -> None:
        """Drop operations and calls that no record will need."""
        before_ns = self._latest_ns - _KEPT_NS
        for thread in self._threads.values():
            thread.forget(before_ns)
        # In order of their numbers, which is that of time for all that matters here.
        old = itertools.takewhile(lambda item: item[1][1] < before_ns, self._calls.items())
        for number in [number for number, _ in old]:
            del self._calls[number]
