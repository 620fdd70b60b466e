"""Joins CUPTI's records with the launches that were made, a round at a time.

Responsible for buffers once they are bytes: they are read at once, joined, and passed on as batches
of activities and ends of launches. It touches nothing of CUPTI, so it may be in another process
than the launches.

`OpSpans` finds the lines of the script from which kernels were launched that tkdebug did not
compile. The script's process reports the begin, the end and the thread of each operation of torch,
and its origin: a line and the scopes around it. CUPTI reports the begin and the thread of each call
of CUDA's, and its number, which the kernel has, too. An operation that was under way on that thread
launched the kernel. Autograd launches on a thread of its own, while the thread that called
`backward` waits in it: so a call on a thread without operations belongs to the only thread that was
in any at that time. A kernel for which neither is known has no origin.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tkdebug.instrument.activities import make_batch, packed_type
from tkdebug.instrument.cupti.joining import PATIENCE_NS, CallJoiner, Made, noted_calls
from tkdebug.instrument.cupti.layouts import (
    CONCURRENT_KERNEL,
    COPY_KINDS,
    DRIVER,
    MEMCPY,
    MEMSET,
    RUNTIME,
    Layout,
    records_by_kind,
)
from tkdebug.instrument.device_records import LostActivities

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tkdebug.instrument.activities import Packed
    from tkdebug.instrument.cupti.layouts import Records

# How long before the latest call anything is kept: kernels are recorded when they have ended.
_KEPT_NS = 30_000_000_000
_KINDS = (CONCURRENT_KERNEL, MEMCPY, MEMSET)  # in the order of `ACTIVITY_KINDS`


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


class Round(NamedTuple):
    """The records taken from CUPTI at once.

    Attributes:
        taken_ns: the time at which they were taken, since 1970.
        offset_ns: the addend that turns a time of CUPTI's into nanoseconds since 1970.
        buffers: filled buffers, as bytes.
        dropped: the number of records for which CUPTI had no room since the round before.
        calls: the calls that were noted since then, packed by `CALL_FIELDS`.
    """

    taken_ns: int
    offset_ns: int
    buffers: tuple[bytes, ...]
    dropped: int
    calls: bytes


class Measured(NamedTuple):
    """The record of a launch; all but `launch` are None if none came."""

    launch: int
    duration_ns: int | None
    start_ns: int | None = None
    device: int | None = None
    stream: int | None = None


class ActivityJoin:
    """Launches and activities of one process.

    Args:
        layout: the layout of CUPTI's records in memory.
        names: gives the texts at addresses in that process.
        measured: called with each launch that ran, or that is known to get no record.
        on_record: called with records for the session.
        spans: the operations that others' kernels are launched from, if they are asked for.

    Attributes:
        made: notes a launch; from any thread.
    """

    def __init__(
        self,
        layout: Layout,
        names: Callable[[list[int]], Mapping[int, str]],
        measured: Callable[[Measured], None],
        on_record: Callable[[object], None],
        spans: OpSpans | None = None,
    ) -> None:
        self._spans = spans
        self._layout = layout
        self._names = names
        self._measured = measured
        self._on_record = on_record
        self._made: deque[Made] = deque()
        self.made = self._made.append
        self._joiner = CallJoiner()
        # Launches whose kernels' records did not come yet, by the number of their call.
        self._called: dict[int, Made] = {}
        self._held: list[Part] = []
        # Calls in `_called` whose records may have been dropped; and by thread, the latest call
        # whose kernel's record came.
        self._suspects: set[int] = set()
        self._latest: dict[int, int] = {}

    def note_launches(self) -> None:
        """Note the launches so far; before buffers are taken, so that more kernels are known."""
        self._joiner.add([self._made.popleft() for _ in range(len(self._made))], None)

    def join(self, taken: Round) -> set[int]:
        """Join a round, and return the devices that ran something.

        Raises:
            RecordError: the records are not of the version that CUPTI says it has.
        """
        import numpy as np

        read = [records_by_kind(data, self._layout) for data in taken.buffers]
        for records in read:
            for kind in {DRIVER, RUNTIME} & records.keys():
                calls = records.pop(kind)
                if self._spans is not None:
                    self._spans.add_calls(calls, taken.offset_ns)
        self._joiner.add((), noted_calls(taken.calls))
        joined = self._join_calls(taken.taken_ns)
        waiting = self._joiner.waiting()
        held = [self._release(part, joined, waiting, taken.taken_ns) for part in self._held]
        known = _numbers(self._called)
        fresh = [self._report_ours(self._part(records, taken.offset_ns), known) for records in read]
        self._held = [part for part in (*held, *fresh) if part is not None]
        if self._spans is not None:
            self._spans.forget()
        self._drop_suspects()
        if taken.dropped:
            self._suspects |= self._called.keys()
            self._on_record(LostActivities(taken.dropped, "CUPTI had no room for them"))
        return {
            device
            for records in read
            for found in records.values()
            for device in np.unique(found["deviceId"]).tolist()
        }

    def names_of(self, taken: Round) -> set[int]:
        """The addresses of the names that a round's records point to.

        Raises:
            RecordError: the records are not of the version that CUPTI says it has.
        """
        import numpy as np

        found: set[int] = set()
        for data in taken.buffers:
            kernels = records_by_kind(data, self._layout).get(CONCURRENT_KERNEL)
            if kernels is not None:
                found.update(np.unique(kernels["name"]).tolist())
        return found

    def end_held(self) -> None:
        """Report held kernels that belong to no launch as others' activities."""
        import numpy as np

        self.note_launches()
        self._join_calls(0)
        held, self._held = self._held, []
        known = _numbers(self._called)
        for part in held:
            left = self._report_ours(part, known)
            if left is not None:
                self._report(left, np.ones(len(left.calls), bool))

    def give_up(self) -> None:
        """Report held kernels, and launches without a record as untimed: no more records come."""
        self.end_held()
        called = [made.launch for made in self._called.values()]
        for launch in (*self._joiner.give_up(), *called):
            self._measured(Measured(launch, None))
        self._called.clear()

    def _join_calls(self, taken_ns: int) -> npt.NDArray[np.int64]:
        """Join launches with calls, and return the calls that have a launch now."""
        joined = self._joiner.join(taken_ns)
        self._called.update(joined.launches)
        for launch in (*joined.captured, *joined.lost):
            self._measured(Measured(launch, None))
        return _numbers(joined.launches)

    def _part(self, records: dict[int, Records], offset_ns: int) -> Part:
        import numpy as np

        kernels = records.get(CONCURRENT_KERNEL)
        names = {} if kernels is None else self._names(np.unique(kernels["name"]).tolist())
        return packed_part(records, names, offset_ns)

    def _release(
        self,
        part: Part,
        joined: npt.NDArray[np.int64],
        waiting: npt.NDArray[np.int64],
        taken_ns: int,
    ) -> Part | None:
        """Report the records of a held part whose launcher is known; return the rest, or None.

        A kernel may have ended before its call is noted, and its launch be noted later still. So a
        kernel without a launch is held for a round, and then as long as its call may have a launch.
        """
        import numpy as np

        left = self._report_ours(part, joined)
        if left is None or part.until_ns > taken_ns:
            return left
        if part.until_ns:
            return self._report(left, np.ones(len(left.calls), bool))
        left = self._report(left, ~np.isin(left.calls, waiting))
        until_ns = taken_ns + PATIENCE_NS
        return None if left is None else left._replace(until_ns=until_ns)

    def _report_ours(self, part: Part, known: npt.NDArray[np.int64]) -> Part | None:
        """Report kernels of launches, and copies and fills; return the other kernels, or None.

        Args:
            part: the records.
            known: the numbers of the calls that have a launch.
        """
        self._settle(part, known)
        return self._report(part, (part.packed["launch"] > 0) | (part.packed["kind"] > 0))

    def _report(self, part: Part, is_known: npt.NDArray[np.bool_]) -> Part | None:
        """Report the timed ones of the known records; return the unknown ones, None without any."""
        import numpy as np

        packed = part.packed
        is_shown = is_known & part.is_timed
        if self._spans is not None:
            places = np.flatnonzero(is_shown & (packed["launch"] == 0))
            packed["origin"][places] = self._spans.origins_of(part.calls[places])
        if is_shown.any():
            self._on_record(make_batch(packed[is_shown], part.texts))
        return part.those(~is_known)

    def _settle(self, part: Part, known: npt.NDArray[np.int64]) -> None:
        """Write into a part the launches that its kernels belong to, and report these launches."""
        import numpy as np

        packed, calls = part.packed, part.calls
        # A node of a graph has the number of the call that launched the graph.
        candidates = np.flatnonzero(
            np.isin(calls, known) & (packed["kind"] == 0) & (packed["graph"] == 0)
        )
        for place in candidates.tolist():
            record = packed[place]
            call = int(calls[place])
            made = self._called.pop(call, None)
            if made is None:
                continue  # a call launches one kernel
            self._latest[made.thread] = max(call, self._latest.get(made.thread, 0))
            if tuple(record["grid"].tolist()) != made.grid:
                # Better no time than the time of another launch.
                self._measured(Measured(made.launch, None))
                continue
            packed["launch"][place] = made.launch
            if not part.is_timed[place]:
                self._measured(Measured(made.launch, None))
                continue
            self._measured(
                Measured(
                    made.launch,
                    int(record["duration_ns"]),
                    int(record["start_ns"]),
                    int(record["device"]),
                    int(record["stream"]),
                )
            )

    def _drop_suspects(self) -> None:
        """Give up suspect launches if the record of a later one of their thread has come."""
        for call in tuple(self._suspects):
            made = self._called.get(call)
            if made is None:
                self._suspects.discard(call)
            elif self._latest.get(made.thread, 0) > call:
                del self._called[call]
                self._suspects.discard(call)
                self._measured(Measured(made.launch, None))


def _numbers(calls: Collection[int]) -> npt.NDArray[np.int64]:
    import numpy as np

    return np.fromiter(calls, np.int64, len(calls))


class Part(NamedTuple):
    """Records of a round.

    Attributes:
        packed: the records.
        texts: the names that the records refer to.
        calls: by record, the number of the call that launched it.
        is_timed: by record, whether CUPTI gave it times; only kernels may have none.
        until_ns: the time until which the records are held; 0 for the part of a new round.
    """

    packed: Packed
    texts: tuple[str, ...]
    calls: npt.NDArray[np.int64]
    is_timed: npt.NDArray[np.bool_]
    until_ns: int = 0

    def those(self, chosen: npt.NDArray[np.bool_]) -> Part | None:
        """Return the part of the records for which `chosen` is true, or None if there are none."""
        if not chosen.any():
            return None
        chosen_arrays = (self.packed[chosen], self.calls[chosen], self.is_timed[chosen])
        packed, calls, is_timed = chosen_arrays
        return self._replace(packed=packed, calls=calls, is_timed=is_timed)


def packed_part(records: Mapping[int, Records], names: Mapping[int, str], offset_ns: int) -> Part:
    """The records, kernels first; copies without times are left out."""
    import numpy as np

    texts = {name: number for number, name in enumerate(dict.fromkeys(names.values()))}
    parts, calls, timed = [], [], []
    for number, kind in enumerate(_KINDS):
        found = records.get(kind)
        if found is None:
            continue
        # Both times are 0 if CUPTI did not know them, as for work that had not ended by then.
        is_timed = (found["start"] > 0) & (found["end"] >= found["start"])
        if kind != CONCURRENT_KERNEL:
            found, is_timed = found[is_timed], is_timed[is_timed]
        if not len(found):
            continue
        one = np.zeros(len(found), packed_type())
        one["kind"] = number
        start, end = (found[name].astype(np.int64) for name in ("start", "end"))
        one["start_ns"] = start + offset_ns
        one["duration_ns"] = np.where(is_timed, end - start, 0)
        for field, source in (("device", "deviceId"), ("context", "contextId")):
            one[field] = found[source]
        one["stream"] = found["streamId"]
        one["graph"] = found["graphId"]
        if kind == CONCURRENT_KERNEL:
            _pack_kernels(one, found, {address: texts[name] for address, name in names.items()})
        else:
            one["size_bytes"] = found["bytes"]
            _name_copies(one, found, texts, is_copy=kind == MEMCPY)
        parts.append(one)
        calls.append(found["correlationId"].astype(np.int64))
        timed.append(is_timed)
    if not parts:
        return Part(np.zeros(0, packed_type()), (), np.zeros(0, np.int64), np.zeros(0, bool))
    return Part(np.concatenate(parts), tuple(texts), np.concatenate(calls), np.concatenate(timed))


def _pack_kernels(packed: Packed, found: Records, numbers: Mapping[int, int]) -> None:
    import numpy as np

    addresses, places = np.unique(found["name"], return_inverse=True)
    packed["name"] = np.array([numbers[one] for one in addresses.tolist()], np.uint32)[places]
    for axis, letter in enumerate("XYZ"):
        packed["grid"][:, axis] = found[f"grid{letter}"]
        packed["block"][:, axis] = found[f"block{letter}"]
    packed["registers"] = found["registersPerThread"]
    packed["static_shared_bytes"] = found["staticSharedMemory"]
    packed["dynamic_shared_bytes"] = found["dynamicSharedMemory"]


def _name_copies(packed: Packed, found: Records, texts: dict[str, int], is_copy: bool) -> None:
    import numpy as np

    if not is_copy:
        packed["name"] = texts.setdefault("memset", len(texts))
        return
    kinds, places = np.unique(found["copyKind"], return_inverse=True)
    names = [COPY_KINDS.get(kind, f"copy of kind {kind}") for kind in kinds.tolist()]
    numbers = [texts.setdefault(name, len(texts)) for name in names]
    packed["name"] = np.array(numbers, np.uint32)[places]
