"""Joins what CUPTI recorded with the launches that were made, a round at a time.

Responsible for what becomes of buffers once they are bytes: they are read at once, joined, and
passed on as batches of activities and ends of launches. It touches nothing of CUPTI, so it may be
in another process than the launches.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tkdebug.instrument.activities import make_batch, packed_type
from tkdebug.instrument.cupti.joining import CallJoiner, Made, noted_calls
from tkdebug.instrument.cupti.layouts import (
    CONCURRENT_KERNEL,
    COPY_KINDS,
    DRIVER,
    MEMCPY,
    MEMSET,
    RUNTIME,
    Layout,
)
from tkdebug.instrument.cupti.parsing import records_by_kind
from tkdebug.instrument.device_records import LostActivities

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tkdebug.instrument.activities import Packed
    from tkdebug.instrument.cupti.op_spans import OpSpans
    from tkdebug.instrument.cupti.parsing import Records

# Where records were dropped, a launch whose call has been known for so long has no record to come.
_DROPPED_AFTER_NS = 2_000_000_000
_KINDS = (CONCURRENT_KERNEL, MEMCPY, MEMSET)  # in the order of `ACTIVITY_KINDS`

# A buffer's records by kind, the names that they point to, and what to add to their times.
Part = tuple["dict[int, Records]", Mapping[int, str], int]


class Round(NamedTuple):
    """What was taken from CUPTI at once.

    Attributes:
        offset_ns: what to add to a time of CUPTI's for nanoseconds since 1970.
        buffers: that were filled, as bytes.
        dropped: how many records CUPTI had no room for since the round before.
        calls: noted since then, packed by `CALL_FIELDS`.
    """

    offset_ns: int
    buffers: tuple[bytes, ...]
    dropped: int
    calls: bytes


class Measured(NamedTuple):
    """What became of a launch; all but `launch` are None where no record of it came."""

    launch: int
    duration_ns: int | None
    start_ns: int | None = None
    device: int | None = None
    stream: int | None = None


class ActivityJoin:
    """Launches and activities of one process.

    Args:
        layout: how CUPTI's records lie in memory.
        names: gives the texts at addresses in that process.
        measured: called with each launch that ran, or of which it is known that no record comes.
        on_record: called with records for the session.
        spans: what others' kernels are launched from, where that is asked for.

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
        # Launches by the number of their call, and when that was joined.
        self._called: dict[int, tuple[Made, int]] = {}
        self._held: list[Part] = []

    def note_launches(self) -> None:
        """To be called before buffers are taken.

        A launch that is known then may have its records in them or later, never before.
        """
        self._joiner.add([self._made.popleft() for _ in range(len(self._made))], None)

    def join(self, taken: Round) -> set[int]:
        """Join a round; the result is the devices that ran something.

        Raises:
            RecordError: its records are not those of the version that CUPTI says it has.
        """
        import numpy as np

        read = [records_by_kind(data, self._layout) for data in taken.buffers]
        for records in read:
            for kind in {DRIVER, RUNTIME} & records.keys():
                calls = records.pop(kind)
                if self._spans is not None:
                    self._spans.add_calls(calls, taken.offset_ns)
        self._joiner.add((), noted_calls(taken.calls))
        joined = self._joiner.join()
        now_ns = time.time_ns()
        self._called.update((call, (made, now_ns)) for call, made in joined.launches.items())
        # A kernel may have ended before its call is noted, and its launch be noted later still: a
        # kernel that is not ours so far is held for a round, and then as long as its call waits
        # for a launch.
        held = self._emit(self._held, self._joiner.waiting())
        fresh = [(records, self._names_in(records), taken.offset_ns) for records in read]
        self._held = [*held, *self._emit(fresh, None)]
        for launch in (*joined.captured, *joined.lost):
            self._measured(Measured(launch, None))
        if self._spans is not None:
            self._spans.forget()
        if taken.dropped:
            self._drop_called(now_ns)
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
            RecordError: its records are not those of the version that CUPTI says it has.
        """
        import numpy as np

        found: set[int] = set()
        for data in taken.buffers:
            kernels = records_by_kind(data, self._layout).get(CONCURRENT_KERNEL)
            if kernels is not None:
                found.update(np.unique(kernels["name"]).tolist())
        return found

    def end_held(self) -> None:
        """What is held and is no launch's is others'."""
        held, self._held = self._held, []
        self._emit(held, [])

    def give_up(self) -> None:
        """No record comes any more."""
        self.note_launches()
        self.end_held()
        called = [made.launch for made, _ in self._called.values()]
        for launch in (*self._joiner.give_up(), *called):
            self._measured(Measured(launch, None))
        self._called.clear()

    def _names_in(self, records: Mapping[int, Records]) -> Mapping[int, str]:
        import numpy as np

        kernels = records.get(CONCURRENT_KERNEL)
        return {} if kernels is None else self._names(np.unique(kernels["name"]).tolist())

    def _emit(self, parts: list[Part], waiting: npt.ArrayLike | None) -> list[Part]:
        """Report what is known to be ours or others'; the result is what may still be ours.

        Args:
            parts: records.
            waiting: the calls whose kernels may be; None for all.
        """
        import numpy as np

        left: list[Part] = []
        for records, names, offset_ns in parts:
            packed, texts, calls = _packed(records, names, offset_ns)
            is_ours = self._settle(packed, calls)
            may_be_ours = True if waiting is None else np.isin(calls, waiting)
            kept = is_ours | (packed["kind"] > 0) | ~np.broadcast_to(may_be_ours, is_ours.shape)
            if self._spans is not None:
                places = np.flatnonzero(kept & ~is_ours)
                packed["origin"][places] = self._spans.origins_of(calls[places])
            if kept.any():
                self._on_record(make_batch(packed[kept], texts))
            if not kept.all():
                kernels = records[CONCURRENT_KERNEL]
                is_left = np.isin(kernels["correlationId"], calls[~kept])
                left.append(({CONCURRENT_KERNEL: kernels[is_left]}, names, offset_ns))
        return left

    def _settle(self, packed: Packed, calls: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Write into `packed` which launches its records are of, and tell of these."""
        import numpy as np

        is_ours = np.zeros(len(packed), bool)
        if not self._called:
            return is_ours
        known = np.fromiter(self._called, np.int64, len(self._called))
        # A node of a graph has the number of the call that launched the graph.
        candidates = np.flatnonzero(
            np.isin(calls, known) & (packed["kind"] == 0) & (packed["graph"] == 0)
        )
        for place in candidates.tolist():
            record = packed[place]
            call = int(calls[place])
            if call not in self._called:
                continue  # a call launches one kernel
            made, _ = self._called.pop(call)
            if tuple(record["grid"].tolist()) != made.grid:
                # No time is better than somebody else's.
                self._measured(Measured(made.launch, None))
                continue
            packed["launch"][place] = made.launch
            is_ours[place] = True
            self._measured(
                Measured(
                    made.launch,
                    int(record["duration_ns"]),
                    int(record["start_ns"]),
                    int(record["device"]),
                    int(record["stream"]),
                )
            )
        return is_ours

    def _drop_called(self, now_ns: int) -> None:
        oldest_ns = now_ns - _DROPPED_AFTER_NS
        for call in [call for call, (_, since_ns) in self._called.items() if since_ns < oldest_ns]:
            made, _ = self._called.pop(call)
            self._measured(Measured(made.launch, None))


def _packed(
    records: Mapping[int, Records], names: Mapping[int, str], offset_ns: int
) -> tuple[Packed, tuple[str, ...], npt.NDArray[np.int64]]:
    """The records packed, kernels first, the names they point to, and the numbers of calls."""
    import numpy as np

    texts = {name: number for number, name in enumerate(dict.fromkeys(names.values()))}
    parts, calls = [], []
    for number, kind in enumerate(_KINDS):
        found = records.get(kind)
        if found is None:
            continue
        # Both are 0 where CUPTI could not tell, such as of what had not ended when it was asked.
        found = found[(found["start"] > 0) & (found["end"] >= found["start"])]
        if not len(found):
            continue
        one = np.zeros(len(found), packed_type())
        one["kind"] = number
        one["start_ns"] = found["start"].astype(np.int64) + offset_ns
        one["duration_ns"] = found["end"].astype(np.int64) - found["start"].astype(np.int64)
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
    if not parts:
        return np.zeros(0, packed_type()), (), np.zeros(0, np.int64)
    return np.concatenate(parts), tuple(texts), np.concatenate(calls)


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
