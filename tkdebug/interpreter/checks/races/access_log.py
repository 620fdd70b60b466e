"""The accesses to one allocation in a launch, kept small where there are many.

Long loops access the same elements again and again. Once there are many records, one that touches
what an earlier one has touched is merged into it, if the op, its programs and their segments are
the same: for the order of programs it makes no difference which of them is looked at.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import torch
from torch import Tensor

from tkdebug.interpreter.checks.races.access_history import Record
from tkdebug.interpreter.checks.races.access_parts import Changed, ListPart, Part, SlabPart

_MANY_RECORDS = 64
_MANY_ELEMENTS = 1 << 22


class AccessLog:
    """Records in order of time.

    Attributes:
        records: all that is known by now.
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
        """Keep of each element that an op accesses what is not there already."""
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
    """The elements of all parts, of equal ones the first; in order of programs."""
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
