"""Finds programs of one launch that touch the same memory in no order that is certain.

What programs access is kept while they run (`access_history`) and compared when the launch ends,
or when it has become much: accesses to the same element by two programs race if they conflict
(`race_pairs`) and neither happens before the other (`happens_before`).

Invariant: in which order the interpreter ran the programs decides nothing by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation
from tkdebug.interpreter.access_history import Deed, Elements, Record, suspects
from tkdebug.interpreter.buffers import Buffer
from tkdebug.interpreter.happens_before import HappensBefore, Meaning
from tkdebug.interpreter.order_hints import Side, order_hint
from tkdebug.interpreter.race_hints import POLLED, race_hint
from tkdebug.interpreter.race_pairs import confirmed, conflicting
from tkdebug.interpreter.touched import Touched

_TILE_HINT = "let one element of the tile store (a mask), or reduce the tile first"
_DID = {
    Deed.READ: "reads",
    Deed.KEEP: "writes",
    Deed.WRITE: "writes",
    Deed.ATOMIC: "changes atomically",
    Deed.LOOK: "changes atomically",
}


@dataclass(frozen=True, slots=True)
class Race:
    """The first of some accesses that race in one way.

    Attributes:
        first: its position among the accesses.
        other: the other program, None for the same tile.
        other_op: what that program does there.
        did: what that is, as "writes".
    """

    first: int
    count: int
    other: int | None
    other_op: Operation
    did: str
    hint: str


Report = Callable[[Operation, Buffer, Touched, Race], None]


class RaceDetector:
    """Who touched what in one launch.

    Args:
        report: told of each race.
        programs: of the launch.
        meanings: of the ops that synchronise.
        order: in which programs synchronise; None where they do not.
    """

    def __init__(
        self,
        report: Report,
        programs: int,
        meanings: Mapping[Operation, Meaning],
        order: HappensBefore | None,
    ) -> None:
        self._report = report
        self._meanings = meanings
        self._programs = programs
        self._order = order
        self._records: dict[int, list[Record]] = {}

    def read(self, op: Operation, buffer: Buffer, touched: Touched) -> None:
        """A plain load."""
        self._add(op, buffer, Deed.READ, touched, None)

    def write(
        self, op: Operation, buffer: Buffer, touched: Touched, old: Tensor, new: Tensor
    ) -> None:
        """A plain store, of what memory held before and of what it brings, compared by bits."""
        changed = old != new
        shared = _shared(touched)
        if shared is not None:
            changed = self._look_at_tile(op, buffer, touched, changed, new, shared)
        self._add(op, buffer, Deed.WRITE, touched, changed)

    def atomic(
        self, op: Operation, buffer: Buffer, touched: Touched, changed: Tensor | None
    ) -> None:
        """An atomic; `changed` is where it brought another value, None for everywhere."""
        self._add(op, buffer, Deed.ATOMIC, touched, changed)

    def launch_ends(self) -> None:
        """Report the races of the launch."""
        for records in self._records.values():
            self._compare(records)
        self._records.clear()

    def _add(
        self, op: Operation, buffer: Buffer, deed: Deed, touched: Touched, changed: Tensor | None
    ) -> None:
        if self._programs == 1 or not touched.places.numel():
            return
        if changed is not None and bool(changed.all()):
            changed = None
        segments = None if self._order is None else self._order.segments(touched.programs)
        record = Record(op, buffer, deed, touched, changed, segments)
        self._records.setdefault(buffer.storage_key, []).append(record)

    def _look_at_tile(
        self,
        op: Operation,
        buffer: Buffer,
        touched: Touched,
        changed: Tensor,
        new: Tensor,
        order: Tensor,
    ) -> Tensor:
        """Of a store in which elements share places: which change memory, one after the other.

        Reports those of one tile whose values differ.
        """
        places, programs, values = touched.places[order], touched.programs[order], new[order]
        again = places[1:] == places[:-1]
        brings = changed[order]
        brings[1:] = torch.where(again, values[1:] != values[:-1], brings[1:])
        out = torch.empty_like(changed)
        out[order] = brings
        last = torch.ones_like(changed)
        last[:-1] = ~(again & (programs[1:] == programs[:-1]))
        at = torch.arange(order.shape[0], device=order.device)
        winner = torch.where(last, at, order.shape[0]).flip(0).cummin(0).values.flip(0)
        lost = order[values != values[winner]]
        if lost.numel():
            first = int(lost.min())
            race = Race(first, int(lost.numel()), None, op, "writes", _TILE_HINT)
            self._report(op, buffer, touched, race)
        return out

    # Comparing

    def _compare(self, records: Sequence[Record]) -> None:
        elements = suspects(records)
        if elements is None:
            return
        earlier, later = conflicting(elements)
        races = ~self._ordered(elements, earlier, later)
        earlier, later = earlier[races], later[races]
        if not earlier.numel():
            return
        loads = (elements.deeds[earlier] == Deed.WRITE) & (elements.deeds[later] == Deed.READ)
        which = loads.nonzero().reshape(-1)
        if which.numel():
            pair, again = confirmed(elements, earlier[which], later[which])
            known = self._ordered(elements, again, later[which][pair])
            kept = torch.ones_like(races[races])
            kept[which[pair[known]]] = False
            earlier, later = earlier[kept], later[kept]
        self._tell(records, elements, earlier, later)

    def _ordered(self, elements: Elements, earlier: Tensor, later: Tensor) -> Tensor:
        """Where two accesses are of one program, or their segments are ordered."""
        p, q = elements.programs[earlier], elements.programs[later]
        same = p == q
        if self._order is None or bool(same.all()):
            return same
        width = int(elements.segments.max()) + 1
        codes = elements.programs * width + elements.segments
        names, codes = torch.unique(codes, return_inverse=True)
        apart = (~same).nonzero().reshape(-1)
        pairs = codes[earlier[apart]] * names.shape[0] + codes[later[apart]]
        distinct, which = torch.unique(pairs, return_inverse=True)
        known = [
            self._order.orders(*divmod(a, width), *divmod(b, width))
            for a, b in zip(
                names[distinct // names.shape[0]].tolist(),
                names[distinct % names.shape[0]].tolist(),
                strict=True,
            )
        ]
        same[apart] = torch.tensor(known, device=same.device)[which]
        return same

    def _tell(
        self, records: Sequence[Record], elements: Elements, earlier: Tensor, later: Tensor
    ) -> None:
        """Report racing pairs: one race for each op and each way in which others touch it."""
        # Of programs that store at once in one op, the one whose value is lost.
        owner, deeds = elements.records, elements.deeds
        at_once = (owner[earlier] == owner[later]) & (deeds[earlier] != Deed.READ)
        offender = torch.where(at_once, earlier, later)
        other = torch.where(at_once, later, earlier)
        ops = torch.tensor([record.op.id for record in records], device=owner.device)
        kinds = deeds[other]
        kinds = torch.where(kinds == Deed.KEEP, int(Deed.WRITE), kinds)
        kinds = torch.where(kinds == Deed.LOOK, int(Deed.ATOMIC), kinds)
        groups = ops[owner[offender]] * len(Deed) + kinds
        largest = int(elements.rows.max()) + 1
        times = owner[offender] * largest + elements.rows[offender]
        found = []
        for group in torch.unique(groups).tolist():
            where = (groups == group).nonzero().reshape(-1)
            count = int(torch.unique(times[where]).numel())
            found.append((where[times[where].argmin()], count))
        for pair, count in sorted(found, key=lambda one: int(times[one[0]])):
            self._tell_one(records, elements, int(offender[pair]), int(other[pair]), count)

    def _tell_one(
        self,
        records: Sequence[Record],
        elements: Elements,
        offender: int,
        other: int,
        count: int,
    ) -> None:
        record = records[int(elements.records[offender])]
        other_record = records[int(elements.records[other])]
        race = Race(
            int(elements.rows[offender]),
            count,
            int(elements.programs[other]),
            other_record.op,
            _DID[Deed(int(elements.deeds[other]))],
            self._hint(_side(records, elements, offender), _side(records, elements, other)),
        )
        self._report(record.op, record.buffer, record.touched, race)

    def _hint(self, later: Side, earlier: Side) -> str:
        for op in (earlier.op, later.op):
            if op in self._meanings and tt.Load.matches(op):
                return POLLED
        hint = None
        if self._order is not None:
            hint = order_hint(self._order, self._meanings, earlier, later)
        return hint or race_hint(later.op, earlier.op)


def _side(records: Sequence[Record], elements: Elements, at: int) -> Side:
    op = records[int(elements.records[at])].op
    return Side(int(elements.programs[at]), int(elements.segments[at]), op)


def _shared(touched: Touched) -> Tensor | None:
    """An order of the elements by place, then by program; None where no two share a place."""
    places = touched.places
    if bool((places[1:] > places[:-1]).all()):
        return None
    in_order, order = torch.sort(places, stable=True)
    return order if bool((in_order[1:] == in_order[:-1]).any()) else None
