"""Accesses of a launch's programs to one allocation, and which of them may conflict.

This takes three steps, each of which leaves less to the next. Whole views are compared by their
begin and end; then runs of elements; then the elements of what still overlaps. Runs that overlap
form a cluster; a cluster is suspicious if two programs have part in it and one of them may change
what the other accesses.

Long loops access the same elements again and again. Once there are many records, a record that
touches the same elements as an earlier one is merged into it, if the op, its programs and their
segments are the same: either shows the order of programs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.interpreter.checks.races.access_parts import (
    Changed,
    Layout,
    ListPart,
    Part,
    Runs,
    SlabPart,
    is_alike,
)
from tkdebug.interpreter.memory.buffers import Buffer


class Deed(IntEnum):
    """Kinds of accesses, by what they do to an element."""

    READ = 0
    # Stores what is there already.
    KEEP = 1
    WRITE = 2
    ATOMIC = 3
    # An atomic that leaves the value as it was.
    LOOK = 4


# Elements that are looked at at a time; where there are more, they are taken by their places.
_MOST_ELEMENTS = 1 << 21
_LARGEST_ITEM_BYTES = 8
_UNCHANGED = {Deed.WRITE: Deed.KEEP, Deed.ATOMIC: Deed.LOOK}


@dataclass(frozen=True, slots=True)
class Record:
    """One access of the programs of a batch.

    Attributes:
        shape: the shape of the tile.
        deed: READ, WRITE or ATOMIC.
    """

    op: Operation
    buffer: Buffer
    shape: tuple[int, ...]
    deed: Deed
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Elements:
    """Accessed elements, all tensors int64, one entry an element and access.

    Neighbours that the same accesses touch alike may be one entry, the first of them.

    Attributes:
        places: offsets in units of `unit_bytes`.
        counts: the number of neighbours that an entry represents.
        lanes: positions in the tile.
        records: positions in the list of records.
        deeds: the kind of access to this element.
    """

    places: Tensor
    counts: Tensor
    programs: Tensor
    segments: Tensor
    lanes: Tensor
    records: Tensor
    deeds: Tensor
    unit_bytes: int


def suspects(records: Sequence[Record]) -> Iterator[Elements]:
    """Yield the elements of suspicious clusters in pieces, by place and then by time."""
    if _may_conflict({record.deed for record in records}) and not _are_apart(records):
        yield from _Clusters(records).pieces()


def overlaps(parts: Sequence[Part]) -> bool:
    """Whether some elements of one access are, or may be, at one place in memory."""
    if not parts:
        return False
    if len(parts) == 1 and isinstance(parts[0], SlabPart):
        return not parts[0].slab.is_injective
    runs = [part.runs() for part in parts]
    starts, order = torch.sort(torch.cat([run.starts for run in runs]))
    stops = starts + torch.cat([run.counts for run in runs])[order]
    return bool((starts[1:] < stops[:-1]).any())


def _may_conflict(deeds: set[Deed]) -> bool:
    return Deed.WRITE in deeds or {Deed.READ, Deed.ATOMIC} <= deeds


def _are_apart(records: Sequence[Record]) -> bool:
    """Whether views prove that no two programs access one element."""
    spans: list[tuple[int, int]] = []
    known: dict[tuple[object, ...], list[Tensor]] = {}
    # Owners of views of one program, which are many where programs run one after the other.
    owners: dict[tuple[object, ...], int] = {}
    for record in records:
        for part in record.parts:
            if not isinstance(part, SlabPart):
                return False
            slab, itemsize = part.slab, record.buffer.itemsize
            key = slab.start, slab.sizes, slab.strides, itemsize
            if slab.programs.shape[0] == 1:
                owner = int(slab.programs)
                if owners.setdefault(key, owner) != owner:
                    return False
            same = known.setdefault(key, [])
            if any(torch.equal(slab.programs, programs) for programs in same):
                continue
            if slab.programs.shape[0] > 1 and not slab.is_injective:
                return False
            same.append(slab.programs)
            spans.append((slab.start * itemsize, (slab.last + 1) * itemsize))
    spans.sort()
    return all(before[1] <= after[0] for before, after in pairwise(spans))


def suspicious(starts: Tensor, stops: Tensor, programs: Tensor, deeds: Tensor) -> Tensor | None:
    """Return positions of the accesses in suspicious clusters, or None if there are none.

    Accesses are in one cluster if their bytes overlap. A cluster is suspicious if it has several
    programs, one of which writes, or one of which reads while one uses an atomic.

    Args:
        starts: (n,) first bytes.
        stops: (n,) the bytes after the last ones.
        programs: (n,) linear program ids.
        deeds: (n,) the kind of each access.
    """
    starts, order = torch.sort(starts)
    reach = torch.cummax(stops[order], 0).values
    begins = starts[1:] >= reach[:-1]
    if bool(begins.all()):
        return None
    cluster = torch.zeros_like(starts)
    torch.cumsum(begins, 0, out=cluster[1:])
    count = int(cluster[-1]) + 1
    programs, deeds = programs[order], deeds[order]
    lowest = programs.new_full((count,), 1 << 62).scatter_reduce_(0, cluster, programs, "amin")
    highest = programs.new_full((count,), -1).scatter_reduce_(0, cluster, programs, "amax")

    def has(deed: Deed) -> Tensor:
        found = torch.zeros(count, dtype=torch.bool, device=deeds.device)
        found[cluster[deeds == deed]] = True
        return found

    conflicts = has(Deed.WRITE) | (has(Deed.READ) & has(Deed.ATOMIC))
    bad = (lowest != highest) & conflicts
    return order[bad[cluster]] if bool(bad.any()) else None


class _Clusters:
    """Runs of all records by clusters, starts and stops in bytes."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._parts: list[Part] = []
        self._owners: list[int] = []
        found: list[Runs] = []
        layouts: dict[tuple[object, ...], Layout] = {}
        for number, record in enumerate(records):
            for kept in record.parts:
                part = kept.with_layout(layouts) if isinstance(kept, SlabPart) else kept
                found.append(part.runs())
                self._parts.append(part)
                self._owners.append(number)
        self._runs = found
        device = found[0].starts.device
        counts = torch.tensor([runs.starts.shape[0] for runs in found], device=device)
        self._part = torch.arange(len(found), device=device).repeat_interleave(counts)
        self._number = torch.cat([torch.arange(int(count), device=device) for count in counts])
        sizes = [records[owner].buffer.itemsize for owner in self._owners]
        self._itemsize = torch.tensor(sizes, device=device)[self._part]
        self._starts = torch.cat([runs.starts for runs in found]) * self._itemsize
        lengths = torch.cat([runs.counts for runs in found]) * self._itemsize
        self._stops = self._starts + lengths
        self._programs = torch.cat([runs.programs for runs in found])
        deeds = torch.tensor([records[owner].deed for owner in self._owners], device=device)
        self._deeds = deeds[self._part]

    def pieces(self) -> Iterator[Elements]:
        """Yield the elements of suspicious clusters, piece by piece."""
        kept = suspicious(self._starts, self._stops, self._programs, self._deeds)
        if kept is not None:
            low, high = int(self._starts[kept].min()), int(self._stops[kept].max())
            yield from self._between(kept.sort().values, low, high)

    def _between(self, kept: Tensor, low: int, high: int) -> Iterator[Elements]:
        """Yield the elements of `kept` in ascending order, from byte `low` to before `high`."""
        kept = kept[(self._starts[kept] < high) & (self._stops[kept] > low)]
        if not kept.numel():
            return
        sizes = self._stops[kept].clamp(max=high) - self._starts[kept].clamp(min=low)
        elements = int((sizes // self._itemsize[kept]).sum())
        cuts = self._cuts(kept, elements)
        if cuts is not None:
            yield self._elements(kept, low, high, cuts)
            return
        middle = (low + high) // 2 // _LARGEST_ITEM_BYTES * _LARGEST_ITEM_BYTES
        if elements <= _MOST_ELEMENTS or not low < middle < high:
            yield self._elements(kept, low, high, None)
            return
        yield from self._between(kept, low, middle)
        yield from self._between(kept, middle, high)

    def _cuts(self, kept: Tensor, elements: int) -> Tensor | None:
        """Return all begins and ends of runs if one entry may represent what is between two.

        Return None if single elements matter, or if that would not halve the entries.
        """
        parts = [self._parts[part] for part in torch.unique(self._part[kept]).tolist()]
        # The first entry is reported, so it has to be the first of its tile as well.
        if any(isinstance(part, SlabPart) and part.slab.flips for part in parts):
            return None
        if not all(is_alike(part.changed) for part in parts):
            return None
        cuts = torch.unique(torch.cat([self._starts[kept], self._stops[kept]]))
        begins = torch.searchsorted(cuts, self._starts[kept])
        entries = int((torch.searchsorted(cuts, self._stops[kept]) - begins).sum())
        return cuts if entries < elements // 2 and entries <= _MOST_ELEMENTS else None

    def _elements(self, kept: Tensor, low: int, high: int, cuts: Tensor | None) -> Elements:
        """Return the elements of `kept` from `low` to before `high`; one entry between `cuts`."""
        unit = int(self._itemsize[kept].min())
        starts = self._starts[kept].clamp(min=low)
        stops = self._stops[kept].clamp(max=high)
        if cuts is None:
            first, length = starts // unit, (stops - starts) // unit
        else:
            first = torch.searchsorted(cuts, starts)
            length = torch.searchsorted(cuts, stops) - first
        ends = length.cumsum(0)
        steps = torch.arange(int(ends[-1]), device=kept.device)
        steps -= (ends - length).repeat_interleave(length)
        places = first.repeat_interleave(length) + steps
        counts = torch.ones_like(places)
        if cuts is not None:
            counts, places = torch.diff(cuts)[places] // unit, cuts[places] // unit
        run = kept.repeat_interleave(length)
        part = self._part[run]
        lanes, segments, deeds = (torch.empty_like(run) for _ in range(3))
        items = (places * unit - self._starts[run]) // self._itemsize[run]
        names, sizes = torch.unique_consecutive(part, return_counts=True)
        begin = 0
        for name, size in zip(names.tolist(), sizes.tolist(), strict=True):
            where = slice(begin, begin + size)
            begin += size
            details = self._parts[name].details(self._number[run[where]], items[where])
            deed = self._records[self._owners[name]].deed
            lanes[where], segments[where] = details.lanes, details.segments
            unchanged = _UNCHANGED.get(deed, deed)
            deeds[where] = torch.where(details.changed, int(deed), int(unchanged))
        programs = self._programs[run]
        records = torch.tensor(self._owners, device=run.device)[part]
        # One program after the other, where a record has several at one place.
        order = torch.sort(programs, stable=True).indices
        order = order[torch.sort(records[order], stable=True).indices]
        order = order[torch.sort(places[order], stable=True).indices]
        return Elements(
            places[order],
            counts[order],
            programs[order],
            segments[order],
            lanes[order],
            records[order],
            deeds[order],
            unit,
        )


_MANY_RECORDS = 64
_MANY_ELEMENTS = 1 << 22


class AccessLog:
    """Records in order of time.

    Attributes:
        records: all records so far.
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._known: dict[Hashable, list[int]] = {}
        self._listed = 0
        self._most_listed = _MANY_ELEMENTS

    def add(self, record: Record) -> None:
        """Keep an access."""
        slabs = [part for part in record.parts if isinstance(part, SlabPart)]
        if len(slabs) == len(record.parts):
            if len(self.records) < _MANY_RECORDS or not self._merged(record, slabs):
                self.records.append(record)
            return
        self.records.append(record)
        self._listed += sum(part.programs.shape[0] for part in record.parts)
        if self._listed > self._most_listed:
            self._shrink_lists()

    def _merged(self, record: Record, slabs: list[SlabPart]) -> bool:
        views = tuple((s.slab.start, s.slab.sizes, s.slab.strides, s.slab.box) for s in slabs)
        key = record.op, id(record.buffer), record.deed, views
        alike = self._known.setdefault(key, [])
        for place in alike:
            parts = self.records[place].parts
            if all(map(_same_programs, parts, slabs)):
                merged = [_merge(old, new) for old, new in zip(parts, slabs, strict=True)]
                self.records[place] = replace(record, parts=tuple(merged))
                return True
        alike.append(len(self.records))
        return False

    def _shrink_lists(self) -> None:
        """Merge the listed records of each op, tensor and deed; keep distinct elements only."""
        groups: dict[Hashable, list[int]] = {}
        for place, record in enumerate(self.records):
            if all(isinstance(part, ListPart) for part in record.parts):
                key = record.op, id(record.buffer), record.deed
                groups.setdefault(key, []).append(place)
        dropped: set[int] = set()
        for places in groups.values():
            parts = [part for place in places for part in self.records[place].parts]
            first = self.records[places[0]]
            self.records[places[0]] = replace(first, parts=(_distinct(parts),))
            dropped.update(places[1:])
        self.records = [r for place, r in enumerate(self.records) if place not in dropped]
        self._known.clear()
        self._listed = sum(
            part.programs.shape[0]
            for record in self.records
            for part in record.parts
            if isinstance(part, ListPart)
        )
        self._most_listed = max(self._most_listed, 2 * self._listed)


def _same_programs(one: Part, other: Part) -> bool:
    assert isinstance(one, SlabPart)
    assert isinstance(other, SlabPart)
    if not torch.equal(one.programs, other.programs):
        return False
    if one.segments is None or other.segments is None:
        return one.segments is other.segments
    return torch.equal(one.segments, other.segments)


def _merge(one: Part, other: SlabPart) -> SlabPart:
    assert isinstance(one, SlabPart)
    return replace(one, changed=_either(one.changed, other.changed))


def _either(one: Changed, other: Changed) -> Changed:
    if isinstance(one, bool):
        return one or other
    return other or one if isinstance(other, bool) else one | other


def _distinct(parts: list[Part]) -> ListPart:
    """Return the distinct elements of all parts, the first of equal ones; by program."""
    lists = [part for part in parts if isinstance(part, ListPart)]
    places = torch.cat([part.touched.places for part in lists])
    programs = torch.cat([part.touched.programs for part in lists])
    lanes = torch.cat([part.touched.lanes for part in lists])
    changed = torch.cat([_as_tensor(part.changed, part.touched.places) for part in lists])
    segments = None
    columns = [places, programs, changed.long()]
    if any(part.segments is not None for part in lists):
        segments = torch.cat(
            [
                torch.zeros_like(part.touched.programs, dtype=torch.int32)
                if part.segments is None
                else part.segments
                for part in lists
            ]
        )
        columns.append(segments.long())
    order = torch.arange(places.shape[0], device=places.device)
    for column in (*columns[2:], places, programs):
        order = order[torch.sort(column[order], stable=True).indices]
    is_new = torch.zeros_like(changed)
    is_new[:1] = True
    for column in columns:
        in_order = column[order]
        is_new[1:] |= in_order[1:] != in_order[:-1]
    kept = order[is_new]
    touched = replace(
        lists[0].touched, places=places[kept], programs=programs[kept], lanes=lanes[kept]
    )
    return ListPart(touched, changed[kept], None if segments is None else segments[kept])


def _as_tensor(changed: Changed, like: Tensor) -> Tensor:
    if isinstance(changed, Tensor):
        return changed
    return torch.full_like(like, changed, dtype=torch.bool)
