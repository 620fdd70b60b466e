"""Records what the GPU does while a session is recorded: a thread beside the script.

Responsible for the rounds: buffers are taken from CUPTI, read at once, joined with the launches
that were made, and told on as batches of activities and ends of launches. Invariants: a launch
costs an entry in a queue; nothing waits for the GPU but `stop` and `wait`, which the recorder calls
when the script is done; whatever goes wrong ends this recording with one line, and never the
script.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tkdebug.errors import TkError
from tkdebug.instrument.activities import make_batch, packed_type
from tkdebug.instrument.cupti.collection import LAUNCH_CALLBACK, Collection
from tkdebug.instrument.cupti.joining import CallJoiner, Made, calls_of
from tkdebug.instrument.cupti.layouts import (
    CONCURRENT_KERNEL,
    COPY_KINDS,
    DRIVER,
    MEMCPY,
    MEMSET,
)
from tkdebug.instrument.device_records import LostActivities
from tkdebug.terminal_text import tell

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tkdebug.instrument.activities import Packed
    from tkdebug.instrument.cupti.collection import Clock
    from tkdebug.instrument.cupti.parsing import Records

ROUND_S = 0.1
# A launch whose call is known and whose kernel is not, although later ones of the stream are: it
# was captured in a graph, or its record was dropped.
_KERNEL_PATIENCE_NS = 2_000_000_000
_KINDS = (CONCURRENT_KERNEL, MEMCPY, MEMSET)  # in the order of `ACTIVITY_KINDS`


class Measured(NamedTuple):
    """What became of a launch; all but `launch` are None where no record of it came."""

    launch: int
    duration_ns: int | None
    start_ns: int | None = None
    device: int | None = None
    stream: int | None = None


class DeviceRecording:
    """What the GPU does in this process, from `start` to `stop`.

    Args:
        collection: CUPTI.
        measured: called with each launch that ran, or of which it is known that no record comes.
        told: called with records for the session.
        each_round: called in each round with the devices that ran something since the one before.
        failed: called where recording ends before `stop`.

    Attributes:
        is_on: whether it records.
        has_records: whether any record came since it was started.
    """

    def __init__(
        self,
        collection: Collection,
        measured: Callable[[Measured], None],
        told: Callable[[object], None],
        each_round: Callable[[set[int]], None],
        failed: Callable[[], None],
    ) -> None:
        self._collection = collection
        self._measured = measured
        self._told = told
        self._each_round = each_round
        self._failed = failed
        self._made: deque[Made] = deque()
        self.made = self._made.append
        self._joiner = CallJoiner()
        # Launches by the number of their call, and when that was joined.
        self._called: dict[int, tuple[Made, int]] = {}
        self._held: list[tuple[dict[int, Records], Mapping[int, str]]] = []
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._owner = os.getpid()
        self._thread: threading.Thread | None = None
        self.is_on = False
        self.has_records = False

    def start(self, is_ours: bool = False) -> None:
        """Begin to record, also once more after `stop`.

        Args:
            is_ours: whether it is known that no other profiler is active.

        Raises:
            CuptiError: CUPTI refuses.
        """
        self._collection.start(is_ours)
        self.has_records = False
        self._ended.clear()
        self._owner = os.getpid()
        self.is_on = True
        thread = threading.Thread(target=self._run, name="tkdebug-cupti", daemon=True)
        # No more threads, or the interpreter is ending: `stop` does one round.
        with contextlib.suppress(RuntimeError):
            thread.start()
            self._thread = thread

    def restart(self) -> None:
        """Ask CUPTI once more, in a round, where it may have forgotten of us.

        Raises:
            CuptiError: CUPTI refuses.
        """
        self._collection.stop()
        self._collection.start(is_ours=True)

    def stop(self, when_done: bool = True) -> None:
        """Take what is left and record no more; a second call is a no-op.

        Args:
            when_done: wait for the GPU first; what still runs has no times.
        """
        if os.getpid() != self._owner or not self.is_on:
            return
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        with self._lock:
            if when_done:
                self._collection.synchronize()
            self._collection.stop()
            self._round(forced=True)
            self._give_up()
            self.is_on = False

    def wait(self) -> None:
        """Wait for the GPU, and take what is there."""
        if os.getpid() == self._owner and self.is_on:
            self._collection.synchronize()
            self._round(forced=True)

    def _run(self) -> None:
        while not self._ended.wait(ROUND_S):
            self._round(forced=False)

    def _round(self, forced: bool) -> None:
        with self._lock:
            if not self.is_on:
                return
            try:
                found = self._take(forced)
            except TkError as error:
                self._fail(str(error))
            except Exception as error:
                self._fail(f"{type(error).__name__}: {error}")
            else:
                self._each_round(found)

    def _fail(self, reason: str) -> None:
        self.is_on = False
        self._failed()
        then = "the last launches have no times"
        if not self._ended.is_set():
            then = "launches are timed by CUDA events from here on"
        tell(f"GPU times: {reason}; {then}")
        self._told(LostActivities(0, reason))
        self._collection.stop()
        self._give_up()

    def _give_up(self) -> None:
        """No record comes any more."""
        self._joiner.add(self._taken_launches(), None)
        called = [made.launch for made, _ in self._called.values()]
        for launch in (*self._joiner.give_up(), *called):
            self._measured(Measured(launch, None))
        self._called.clear()

    def _taken_launches(self) -> list[Made]:
        return [self._made.popleft() for _ in range(len(self._made))]

    def _take(self, forced: bool) -> set[int]:
        """One round; the devices that ran something."""
        import numpy as np

        clock = self._collection.clock()
        # Before the buffers: a launch that is known here may have its records in them or later.
        self._joiner.add(self._taken_launches(), None)
        read = [self._collection.read(data) for data in self._collection.take(forced)]
        self.has_records = self.has_records or bool(read)
        for _, records in read:
            if DRIVER in records:
                calls = calls_of(records.pop(DRIVER), LAUNCH_CALLBACK, clock.offset_ns)
                self._joiner.add((), calls)
        joined = self._joiner.join(clock.error_ns)
        now_ns = time.time_ns()
        self._called.update((call, (made, now_ns)) for call, made in joined.launches.items())
        # A kernel's record may be delivered before that of its call: others' kernels are held for
        # a round, until it is known that they are others'.
        fresh = [(records, buffer.names) for buffer, records in read]
        self._emit(self._held, clock, is_last=True)
        self._held = self._emit(fresh, clock, is_last=forced)
        for launch in joined.lost:
            self._measured(Measured(launch, None))
        self._drop_captured(now_ns)
        if count := self._collection.dropped():
            self._told(LostActivities(count, "CUPTI had no room for them"))
        return {
            device
            for _, records in read
            for found in records.values()
            for device in np.unique(found["deviceId"]).tolist()
        }

    def _emit(
        self,
        parts: list[tuple[dict[int, Records], Mapping[int, str]]],
        clock: Clock,
        is_last: bool,
    ) -> list[tuple[dict[int, Records], Mapping[int, str]]]:
        """Tell of what is known to be ours or others'; the result is what may still be ours."""
        import numpy as np

        left: list[tuple[dict[int, Records], Mapping[int, str]]] = []
        for records, names in parts:
            packed, texts, calls = _packed(records, names, clock.offset_ns)
            is_ours = self._settle(packed, calls)
            kept = np.ones(len(packed), bool) if is_last else is_ours | (packed["kind"] > 0)
            if kept.any():
                self._told(make_batch(packed[kept], texts))
            if not kept.all():
                kernels = records[CONCURRENT_KERNEL]
                is_left = np.isin(kernels["correlationId"], calls[~kept])
                left.append(({CONCURRENT_KERNEL: kernels[is_left]}, names))
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
