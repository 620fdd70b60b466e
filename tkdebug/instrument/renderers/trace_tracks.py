"""Tracks of a Chrome trace: their numbers, and the events that have to be apart.

A viewer takes a track for a thread. So no track has the number of a thread of the system or 0,
which Perfetto takes for the main thread, and no two events of a track overlap: Perfetto drops the
later one. Kernels of one stream do overlap, in graphs and where a launch need not wait for the one
before it; so do scopes of coroutines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tkdebug.instrument.activities import packed_records, recorded_batches

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tkdebug.instrument.session import Session

    Times = npt.NDArray[np.int64]

# Linux numbers threads up to 2**22.
FIRST_WARP_TRACK = 1 << 24
_FIRST_TRACK = 1 << 23

Stream = tuple[int, int, int]  # process, device, stream
Event = dict[str, object]


class Tracks:
    """Numbers of tracks that are no threads."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, object], int] = {}

    def put(self, process: int, key: object, name: str, event: Event) -> Iterator[Event]:
        """The event on the track of `key`, after the track's name if it is the first there."""
        number = self._numbers.get((process, key))
        if number is None:
            number = self._numbers[process, key] = _FIRST_TRACK + len(self._numbers)
            yield track_name(process, number, name)
        yield {**event, "tid": number}


def host_track_name(mode: str, stream: int) -> str:
    """The name of a track of launches that the GPU's clock did not time."""
    if mode != "interpret":
        return f"stream {stream}"
    return f"interpreted, on the CPU{f', stream {stream}' if stream else ''}"


def track_name(process: int, track: int, name: str) -> Event:
    """The event that names a track."""
    return {
        "ph": "M",
        "name": "thread_name",
        "pid": process,
        "tid": track,
        "args": {"name": name},
    }


def lanes(spans: Sequence[tuple[int, int]], nested: bool) -> list[int]:
    """Return for each span (start, end) its lane, from 0, such that spans of a lane do not cross.

    Args:
        spans: spans in any order; ends are exclusive.
        nested: whether a span may lie within another one of its lane.
    """
    found = [0] * len(spans)
    open_ends: list[list[int]] = []
    for at in sorted(range(len(spans)), key=lambda i: (spans[i][0], -spans[i][1])):
        start, end = spans[at]
        lane = next((n for n, ends in enumerate(open_ends) if _fits(ends, start, end, nested)), -1)
        if lane < 0:
            lane = len(open_ends)
            open_ends.append([])
        open_ends[lane].append(end)
        found[at] = lane
    return found


def _fits(ends: list[int], start: int, end: int, nested: bool) -> bool:
    """Whether a span fits into a lane; `ends` are those of its open spans, outermost first."""
    while ends and ends[-1] <= start:
        ends.pop()
    return not ends or (nested and end <= ends[-1])


class StreamLanes:
    """The lanes of CUPTI's records in a session."""

    def __init__(self, session: Session) -> None:
        times = _times_by_stream(session)
        # Lanes by start and end: a stream that has no overlaps has none.
        self._lanes = {
            stream: _lanes_by_time(*both) for stream, both in times.items() if _overlap(*both)
        }

    def lane(self, stream: Stream, start_ns: int, duration_ns: int) -> int:
        """The lane of one activity; to be asked once for each."""
        known = self._lanes.get(stream)
        if known is None:
            return 0
        left = known.get((start_ns, start_ns + duration_ns))
        return left.pop() if left else 0


def _times_by_stream(session: Session) -> dict[Stream, tuple[Times, Times]]:
    import numpy as np

    found: dict[Stream, list[tuple[Times, Times]]] = defaultdict(list)
    for batch in recorded_batches(session):
        packed = session.checked(partial(packed_records, batch.event))
        key = packed["device"].astype(np.int64) << 32 | packed["stream"]
        for one in np.unique(key).tolist():
            chosen = packed[key == one]
            stream = (batch.process, one >> 32, one & 0xFFFFFFFF)
            starts = chosen["start_ns"]
            found[stream].append((starts, starts + chosen["duration_ns"]))
    return {stream: _joined(parts) for stream, parts in found.items()}


def _joined(parts: Iterable[tuple[Times, Times]]) -> tuple[Times, Times]:
    import numpy as np

    starts, ends = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.lexsort((ends, starts))
    return starts[order], ends[order]


def _overlap(starts: Times, ends: Times) -> bool:
    import numpy as np

    return bool((starts[1:] < np.maximum.accumulate(ends)[:-1]).any())


def _lanes_by_time(starts: Times, ends: Times) -> dict[tuple[int, int], list[int]]:
    spans = list(zip(starts.tolist(), ends.tolist(), strict=True))
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for span, lane in zip(spans, lanes(spans, nested=False), strict=True):
        found[span].append(lane)
    return found
