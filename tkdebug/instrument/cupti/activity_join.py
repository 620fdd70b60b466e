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
from tkdebug.instrument.cupti.joining import (
    CallJoiner,
    Clock,
    Made,
    noted_calls,
    recorded_calls,
)
from tkdebug.instrument.cupti.layouts import (
    CONCURRENT_KERNEL,
    COPY_KINDS,
    DRIVER,
    LAUNCH_CALLBACK,
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

# A launch whose call is known and whose kernel is not, although later ones of the stream are: it
# was captured in a graph, or its record was dropped.
_KERNEL_PATIENCE_NS = 2_000_000_000
_KINDS = (CONCURRENT_KERNEL, MEMCPY, MEMSET)  # in the order of `ACTIVITY_KINDS`

# A buffer's records by kind, the names that they point to, and what to add to their times.
Part = tuple["dict[int, Records]", Mapping[int, str], int]


class Round(NamedTuple):
    """What was taken from CUPTI at once.

    Attributes:
        clock: before that.
        buffers: that were filled, as bytes.
        dropped: how many records CUPTI had no room for since the round before.
        calls: noted since then (`ActivityBuffers.calls`); None where they are records.
    """

    clock: Clock
    buffers: tuple[bytes, ...]
    dropped: int
    calls: bytes | None = None


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

        clock = taken.clock
        read = [records_by_kind(data, self._layout) for data in taken.buffers]
        for records in read:
            if self._spans is not None:
                for kind in {DRIVER, RUNTIME} & records.keys():
                    self._spans.add_calls(records[kind], clock.offset_ns)
            records.pop(RUNTIME, None)
            if DRIVER in records:
                self._joiner.add((), recorded_calls(records.pop(DRIVER), LAUNCH_CALLBACK, clock))
        if taken.calls:
            self._joiner.add((), noted_calls(taken.calls))
        joined = self._joiner.join()
        now_ns = time.time_ns()
        self._called.update((call, (made, now_ns)) for call, made in joined.launches.items())
        self.end_held()
        # A kernel's record may be delivered before that of its call, or while its launch is still
        # being noted: others' kernels are held for a round, until it is known that they are.
        self._held = self._emit(
            [(records, self._names_in(records), clock.offset_ns) for records in read],
            is_last=False,
        )
        for launch in joined.lost:
            self._measured(Measured(launch, None))
        self._drop_captured(now_ns)
        if self._spans is not None:
            self._spans.forget()
        if taken.dropped:
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
        """What was held in the round before and is no launch's is others'."""
        held, self._held = self._held, []
        self._emit(held, is_last=True)

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

    def _emit(self, parts: list[Part], is_last: bool) -> list[Part]:
        """Report what is known to be ours or others'; the result is what may still be ours."""
        import numpy as np

        left: list[Part] = []
        for records, names, offset_ns in parts:
            packed, texts, calls = _packed(records, names, offset_ns)
            is_ours = self._settle(packed, calls)
            kept = np.ones(len(packed), bool) if is_last else is_ours | (packed["kind"] > 0)
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

    def _drop_captured(self, now_ns: int) -> None:
        if not self._called or self._held:
            return
        oldest = now_ns - _KERNEL_PATIENCE_NS
        late = [call for call, (_, since) in self._called.items() if since < oldest]
        latest = max(self._called)
        for call in late:
            if call < latest:
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
