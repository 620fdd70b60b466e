"""Batches of activities: packed into bytes when they are recorded, and read again.

Responsible for the packed form, which is the same whichever version of CUPTI wrote the records, and
for totals by kind and name. Nothing makes an object for a record until it is read.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

from tkdebug.instrument.device_records import ACTIVITY_KINDS, Activity, ActivityBatch, ActivityTotal
from tkdebug.instrument.session_file.tables import Recorded

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tkdebug.instrument.session import Session

    Packed = npt.NDArray[np.void]

# In the order of the fields of `Activity`; kind and name are numbers here.
_PACKED_FIELDS = (
    ("kind", "<u4"),
    ("name", "<u4"),
    ("launch", "<i8"),
    ("start_ns", "<i8"),
    ("duration_ns", "<i8"),
    ("device", "<u4"),
    ("context", "<u4"),
    ("stream", "<u4"),
    ("graph", "<u4"),
    ("grid", "<i4", (3,)),
    ("block", "<i4", (3,)),
    ("registers", "<i4"),
    ("static_shared_bytes", "<i4"),
    ("dynamic_shared_bytes", "<i4"),
    ("origin", "<i4"),
    ("size_bytes", "<i8"),
)
_PAGE = 256  # batches read at a time
_FASTEST = 1


@cache
def packed_type() -> np.dtype[np.void]:
    """Return the numpy type of a packed record."""
    import numpy as np

    return np.dtype([*_PACKED_FIELDS])


def make_batch(packed: Packed, names: tuple[str, ...]) -> ActivityBatch:
    """A batch of packed records, at least one; `names` are those they point to."""
    ends = packed["start_ns"] + packed["duration_ns"]
    return ActivityBatch(
        len(packed),
        int(packed["start_ns"].min()),
        int(ends.max()),
        names,
        _totals(packed[packed["launch"] == 0], names),
        # Many records share half of their bytes, so that compression pays.
        zlib.compress(packed.tobytes(), _FASTEST),
    )


def _totals(packed: Packed, names: tuple[str, ...]) -> tuple[ActivityTotal, ...]:
    import numpy as np

    if not len(packed):
        return ()
    is_node = (packed["graph"] > 0).astype(np.int64)
    key = packed["kind"].astype(np.int64) << 33 | is_node << 32 | packed["name"]
    order = np.argsort(key, kind="stable")
    groups, starts, counts = np.unique(key[order], return_index=True, return_counts=True)
    durations = packed["duration_ns"][order]
    totals = np.add.reduceat(durations, starts)
    least, most = np.minimum.reduceat(durations, starts), np.maximum.reduceat(durations, starts)
    rows = zip(*(c.tolist() for c in (groups, counts, totals, least, most)), strict=True)
    return tuple(
        ActivityTotal(
            ACTIVITY_KINDS[group >> 33],
            names[group & 0xFFFFFFFF],
            bool(group >> 32 & 1),
            *numbers,
        )
        for group, *numbers in rows
    )


def packed_records(batch: ActivityBatch) -> Packed:
    """The packed records of a batch.

    Raises:
        ValueError: the records are damaged.
    """
    import numpy as np

    expected = batch.count * packed_type().itemsize
    reader = zlib.decompressobj()
    try:
        data = reader.decompress(batch.data, expected + 1) if expected >= 0 else b""
    except zlib.error as error:
        raise ValueError(f"activities that cannot be decompressed: {error}") from error
    if len(data) != expected or not reader.eof:
        raise ValueError(f"activities of {len(data)} bytes or more, expected {expected}")
    packed = np.frombuffer(data, packed_type())
    is_known = (packed["kind"] < len(ACTIVITY_KINDS)) & (packed["name"] < len(batch.names))
    if not is_known.all():
        raise ValueError("activities of a kind or name that is not there")
    return packed


def unpacked(recorded: Recorded[ActivityBatch]) -> Iterator[Activity]:
    """The activities of a batch, in order of their start.

    Raises:
        ValueError: the records are damaged.
    """
    import numpy as np

    batch = recorded.event
    packed = packed_records(batch)
    packed = packed[np.argsort(packed["start_ns"], kind="stable")]
    columns = {name: packed[name].tolist() for name in packed.dtype.names or ()}
    rows = zip(
        columns["kind"],
        columns["name"],
        columns["launch"],
        columns["start_ns"],
        columns["duration_ns"],
        columns["device"],
        columns["context"],
        columns["stream"],
        columns["grid"],
        columns["block"],
        columns["registers"],
        columns["static_shared_bytes"],
        columns["dynamic_shared_bytes"],
        columns["size_bytes"],
        columns["graph"],
        columns["origin"],
        strict=True,
    )
    names, process = batch.names, recorded.process
    for kind, name, launch, start, duration, device, context, stream, grid, block, *rest in rows:
        yield Activity(
            ACTIVITY_KINDS[kind],
            names[name],
            process,
            launch,
            start,
            duration,
            device,
            context,
            stream,
            tuple(grid),
            tuple(block),
            *rest,
        )


def recorded_batches(session: Session) -> Iterator[Recorded[ActivityBatch]]:
    """Yield the batches of a session, in the order in which they were recorded."""
    since = 0
    while page := session.records(ActivityBatch, since, limit=_PAGE):
        yield from page
        since = page[-1].seq


def recorded_activities(session: Session) -> Iterator[Activity]:
    """All activities of a session.

    Raises:
        SessionError: the records are damaged.
    """
    for batch in recorded_batches(session):
        yield from session.checked(partial(_all_of, batch))


def _all_of(batch: Recorded[ActivityBatch]) -> tuple[Activity, ...]:
    return tuple(unpacked(batch))


def sum_of_totals(totals: Iterable[ActivityTotal]) -> tuple[ActivityTotal, ...]:
    """Return one total for each kind and name, in graphs and not, the longest first."""
    found: dict[tuple[str, str, bool], ActivityTotal] = {}
    for total in totals:
        key = (total.kind, total.name, total.in_graph)
        found[key] = found[key].plus(total) if key in found else total
    return tuple(sorted(found.values(), key=lambda t: (-t.total_ns, t.kind, t.name, t.in_graph)))
