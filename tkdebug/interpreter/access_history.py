"""What the programs of a launch accessed, and which of it may conflict.

Accesses are kept as runs: neighbouring elements that one program accessed by one op. Whether
programs have touched the same memory shows by the runs alone, so that elements are listed only
where they have. Runs that overlap form a cluster; a cluster is suspicious if two programs have part
in it and one of them may change what the other accesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.interpreter.buffers import Buffer
from tkdebug.interpreter.touched import Touched


class Deed(IntEnum):
    """What an access does to an element."""

    READ = 0
    # Stores what is there already.
    KEEP = 1
    WRITE = 2
    ATOMIC = 3
    # An atomic that leaves the value as it was.
    LOOK = 4


@dataclass(frozen=True, slots=True)
class Record:
    """One access of the programs of a batch.

    Attributes:
        deed: READ, WRITE or ATOMIC.
        changed: for each element whether another value was brought; None for all.
        segments: for each element the segment of its program; None where all are 0.
    """

    op: Operation
    buffer: Buffer
    deed: Deed
    touched: Touched
    changed: Tensor | None = None
    segments: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of some records, all tensors int64, one entry a run.

    Attributes:
        starts: offsets in bytes from the start of the allocation.
        stops: likewise, exclusive.
        rows: at which element of its record a run begins.
        records: positions in the list of records.
        deeds: of the records.
    """

    starts: Tensor
    stops: Tensor
    programs: Tensor
    rows: Tensor
    records: Tensor
    deeds: Tensor


@dataclass(frozen=True, slots=True)
class Elements:
    """Accessed elements, all tensors int64, one entry an element and access.

    Attributes:
        places: offsets in units of `unit_bytes`.
        lanes: positions in the tile.
        rows: positions in the record.
        deeds: what was done to this element.
    """

    places: Tensor
    programs: Tensor
    segments: Tensor
    lanes: Tensor
    rows: Tensor
    records: Tensor
    deeds: Tensor
    unit_bytes: int

    def chosen(self, where: Tensor) -> Elements:
        """Those at `where`."""
        return Elements(
            self.places[where],
            self.programs[where],
            self.segments[where],
            self.lanes[where],
            self.rows[where],
            self.records[where],
            self.deeds[where],
            self.unit_bytes,
        )


def suspects(records: Sequence[Record]) -> Elements | None:
    """The elements of all suspicious clusters, in order of place, then of time."""
    runs = _runs(records)
    kept = _suspicious(runs)
    if kept is None:
        return None
    return _elements(records, runs, kept)


def _runs(records: Sequence[Record]) -> Runs:
    parts = [_runs_of(record.touched) for record in records]
    sizes = torch.tensor([part[0].shape[0] for part in parts], device=parts[0][0].device)
    deeds = torch.tensor([record.deed for record in records], device=sizes.device)
    starts, stops, programs, rows = (torch.cat(column) for column in zip(*parts, strict=True))
    place = torch.arange(len(records), device=sizes.device).repeat_interleave(sizes)
    return Runs(starts, stops, programs, rows, place, deeds[place])


def _runs_of(touched: Touched) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Starts, stops, programs and first rows."""
    places, programs = touched.places, touched.programs
    if not places.numel():
        return places, places, programs, places
    breaks = torch.ones_like(places, dtype=torch.bool)
    torch.ne(places[1:] - places[:-1], 1, out=breaks[1:])
    breaks[1:] |= programs[1:] != programs[:-1]
    rows = breaks.nonzero().reshape(-1)
    counts = torch.diff(rows, append=rows.new_tensor([places.shape[0]]))
    starts = places[rows] * touched.itemsize
    return starts, starts + counts * touched.itemsize, programs[rows], rows


def _suspicious(runs: Runs) -> Tensor | None:
    """Positions of the runs in suspicious clusters, None if there is none."""
    starts, order = torch.sort(runs.starts)
    reach = torch.cummax(runs.stops[order], 0).values
    begins = starts[1:] >= reach[:-1]
    if bool(begins.all()):
        return None
    cluster = torch.zeros_like(starts)
    torch.cumsum(begins, 0, out=cluster[1:])
    count = int(cluster[-1]) + 1
    programs, deeds = runs.programs[order], runs.deeds[order]
    lowest = programs.new_full((count,), 1 << 62).scatter_reduce_(0, cluster, programs, "amin")
    highest = programs.new_full((count,), -1).scatter_reduce_(0, cluster, programs, "amax")

    def has(deed: Deed) -> Tensor:
        found = torch.zeros(count, dtype=torch.bool, device=deeds.device)
        found[cluster[deeds == deed]] = True
        return found

    conflicts = has(Deed.WRITE) | (has(Deed.READ) & has(Deed.ATOMIC))
    bad = (lowest != highest) & conflicts
    if not bool(bad.any()):
        return None
    return order[bad[cluster]]


def _elements(records: Sequence[Record], runs: Runs, kept: Tensor) -> Elements:
    kept = kept.sort().values  # by record, then by row
    sizes = [record.touched.itemsize for record in records]
    unit = min(sizes[record] for record in torch.unique(runs.records[kept]).tolist())
    item = torch.tensor(sizes, device=kept.device)[runs.records[kept]]
    length = (runs.stops[kept] - runs.starts[kept]) // unit
    ends = length.cumsum(0)
    step = torch.arange(int(ends[-1]), device=kept.device) - (ends - length).repeat_interleave(
        length
    )
    places = (runs.starts[kept] // unit).repeat_interleave(length) + step
    rows = runs.rows[kept].repeat_interleave(length) + step * unit // item.repeat_interleave(length)
    owners = runs.records[kept].repeat_interleave(length)
    lanes, segments, deeds = (torch.empty_like(rows) for _ in range(3))
    for number in torch.unique(owners).tolist():
        where, record = owners == number, records[number]
        chosen = rows[where]
        lanes[where] = record.touched.lanes[chosen]
        segments[where] = 0 if record.segments is None else record.segments[chosen].long()
        deeds[where] = _deeds(record, chosen)
    elements = Elements(
        places,
        runs.programs[kept].repeat_interleave(length),
        segments,
        lanes,
        rows,
        owners,
        deeds,
        unit,
    )
    return elements.chosen(torch.sort(places, stable=True).indices)


def _deeds(record: Record, rows: Tensor) -> Tensor:
    deeds = torch.full_like(rows, int(record.deed))
    if record.changed is not None:
        unchanged = Deed.KEEP if record.deed is Deed.WRITE else Deed.LOOK
        deeds[~record.changed[rows]] = int(unchanged)
    return deeds
