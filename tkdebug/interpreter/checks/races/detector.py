"""Finds programs of one launch that access the same memory in no order that is certain.

The accesses of programs are kept while they run (`access_history`) and compared when the launch
ends, or when there are many: accesses to the same element by two programs race if they conflict and
neither happens before the other (`happens_before`).

Two accesses of one element conflict if one of them is a plain store, or one is an atomic and the
other is not. A store that makes no difference, of the value that is there, conflicts with atomics
alone. Only neighbouring pairs of conflicting accesses are listed: where each access is ordered with
the next, all are ordered.

Invariant: the order in which the interpreter ran the programs decides nothing by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation
from tkdebug.interpreter.checks.races.access_history import (
    AccessLog,
    Deed,
    Elements,
    Record,
    overlaps,
    suspects,
)
from tkdebug.interpreter.checks.races.access_parts import (
    Changed,
    ListPart,
    Part,
    SlabPart,
    stored_in,
)
from tkdebug.interpreter.checks.races.happens_before import HappensBefore, Meaning
from tkdebug.interpreter.checks.races.hints import POLLED, Side, order_hint, race_hint
from tkdebug.interpreter.checks.unwritten.patterns import bits_type
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.memory.touched import Hyperslab, Touched

# Pairs of accesses and atomics of an element; beyond it, only the next to each other are listed.
_MOST_PAIRS = 1 << 22
_NEIGHBOURS = 2


def conflicting(elements: Elements) -> tuple[Tensor, Tensor]:
    """Return positions of the earlier and the later access of each conflicting pair.

    Args:
        elements: the accesses, in order of place, then of time.
    """
    deeds = elements.deeds
    if not deeds.numel():
        return deeds, deeds
    spans = _Spans(elements)
    at = torch.arange(deeds.shape[0], device=deeds.device)
    stores = deeds == Deed.WRITE
    pairs = []
    # Each one with the last store before it, and with the first after it.
    late = (deeds != Deed.KEEP) & (spans.last_store >= 0)
    pairs.append((spans.last_store[late], at[late]))
    early = ~stores & (spans.next_store >= 0)
    pairs.append((at[early], spans.next_store[early]))
    plain = (deeds == Deed.READ) | (deeds == Deed.KEEP)
    one, other = crossed(plain, deeds == Deed.ATOMIC, spans.begin, spans.end)
    pairs.append((torch.minimum(one, other), torch.maximum(one, other)))
    first, then = (torch.cat(column) for column in zip(*pairs, strict=True))
    return first, then


def confirmed(elements: Elements, first: Tensor, then: Tensor) -> tuple[Tensor, Tensor]:
    """Find stores of the same value between a store and a load of its value.

    Args:
        elements: the accesses, in order of place, then of time.
        first: positions of stores.
        then: positions of loads of the values that these stored.

    Returns:
        (pair, store): numbers of pairs, and for each the position of such a store between them.
    """
    again = (elements.deeds == Deed.KEEP).nonzero().reshape(-1)
    low, high = torch.searchsorted(again, first), torch.searchsorted(again, then)
    low = torch.maximum(low, high - (_MOST_PAIRS // max(1, first.shape[0]) + 1))
    counts = high - low
    which = torch.arange(first.shape[0], device=first.device).repeat_interleave(counts)
    step = torch.arange(which.shape[0], device=which.device)
    step -= (counts.cumsum(0) - counts).repeat_interleave(counts)
    return which, again[low.repeat_interleave(counts) + step]


class _Spans:
    """The stores around each access, and the accesses between these.

    Attributes:
        last_store: position of the last store before it to the same element; -1 without one.
        next_store: the position of the next store; -1 without one.
        begin: the first position after `last_store`, of the same element.
        end: one past the last position before `next_store`.
    """

    def __init__(self, elements: Elements) -> None:
        places, stores = elements.places, elements.deeds == Deed.WRITE
        count = places.shape[0]
        at = torch.arange(count, device=places.device)
        heads = torch.ones_like(stores)
        torch.ne(places[1:], places[:-1], out=heads[1:])
        head = torch.where(heads, at, 0).cummax(0).values
        tails = torch.ones_like(stores)
        tails[:-1] = heads[1:]
        tail = torch.where(tails, at, count).flip(0).cummin(0).values.flip(0)
        before = torch.full_like(at, -1)
        before[1:] = torch.where(stores, at, -1).cummax(0).values[:-1]
        behind = torch.full_like(at, count)
        behind[:-1] = torch.where(stores, at, count).flip(0).cummin(0).values.flip(0)[1:]
        self.last_store = torch.where(before >= head, before, -1)
        self.next_store = torch.where(behind <= tail, behind, -1)
        self.begin = torch.where(before >= head, before + 1, head)
        self.end = torch.where(behind <= tail, behind, tail + 1)


def crossed(some: Tensor, others: Tensor, begin: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Return pairs of positions: from `some`, and from `others` between its `begin` and `end`.

    If there are too many, only the nearest of `others` are paired.
    """
    one = some.nonzero().reshape(-1)
    found = others.nonzero().reshape(-1)
    low = torch.searchsorted(found, begin[one])
    high = torch.searchsorted(found, end[one])
    if int((high - low).sum()) > _MOST_PAIRS:
        around = torch.searchsorted(found, one)
        low = torch.maximum(low, around - _NEIGHBOURS)
        high = torch.minimum(high, around + _NEIGHBOURS)
    counts = high - low
    step = torch.arange(int(counts.sum()), device=one.device)
    step -= (counts.cumsum(0) - counts).repeat_interleave(counts)
    return one.repeat_interleave(counts), found[low.repeat_interleave(counts) + step]


# To see whether all have changed takes longer than to store them.
_MOST_KEPT_BYTES = 64 << 20
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
        first: its position among the elements that are reported with it.
        other: the other program, None for the same tile.
        other_op: the op of the other program there.
        did: that op as a verb, such as "writes".
        through: the tensor through which it accesses the element, if that is another argument.
    """

    first: int
    count: int
    other: int | None
    other_op: Operation
    did: str
    hint: str
    through: Buffer | None = None


Report = Callable[[Operation, Buffer, Touched, Race], None]


class RaceDetector:
    """Collects the accesses of the programs of one launch, and finds those that race.

    Args:
        report: called with each race.
        programs: the programs of the launch.
        meanings: the meanings of the ops that synchronise.
        order: the order in which programs synchronise; None if they do not.
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
        self._logs: dict[int, AccessLog] = {}
        # Bytes of the bools that say which elements changed.
        self._kept_bytes = 0

    def read(self, access: ObservedAccess) -> None:
        """Add a plain load."""
        self._add(access, Deed.READ, self._parts(access, True))

    def write(self, access: ObservedAccess, first: int, is_first: bool = False) -> None:
        """Add a plain store of a batch that begins with program `first`, before it is done.

        Args:
            access: the store.
            first: the first program of the batch.
            is_first: whether only this op has accessed these elements, and will: then what they
                hold does not matter, since a later store there is compared with this one.
        """
        slabs = access.hyperslabs()
        if slabs is not None:
            parts = self._parts_of_store(access, slabs, first, is_first)
            if not overlaps(parts):
                self._add(access, Deed.WRITE, parts)
                return
        touched = access.touch()
        changed, lost = changes(touched, *contents(access))
        if lost.numel():
            self.tell_lost(access.op, access.buffer, touched, lost)
        self._add(access, Deed.WRITE, (self._listed(touched, self._kept(changed)),))

    def atomic(self, access: ObservedAccess, changed: Tensor | None) -> None:
        """Add an atomic; `changed` is where it changed the value, None for everywhere."""
        part = self._listed(access.touch(), True if changed is None else self._kept(changed))
        self._add(access, Deed.ATOMIC, (part,))

    def tell_lost(self, op: Operation, buffer: Buffer, touched: Touched, lost: Tensor) -> None:
        """Report elements of a store's tile that share a place with another element of it."""
        race = Race(0, int(lost.numel()), None, op, "writes", _TILE_HINT)
        self._report(op, buffer, touched.chosen(lost[:1]), race)

    def add(
        self,
        op: Operation,
        buffer: Buffer,
        storage: int,
        deed: Deed,
        touched: Touched,
        changed: Changed,
    ) -> None:
        """Add an access whose elements are listed one by one.

        Args:
            op: the op of the access.
            buffer: the tensor.
            storage: equal for tensors that share their allocation.
            deed: READ, WRITE or ATOMIC.
            touched: the elements.
            changed: where it brought another value.
        """
        part = self._listed(touched, changed)
        if self._programs > 1 and part.programs.numel():
            record = Record(op, buffer, touched.shape, deed, (part,))
            self._logs.setdefault(storage, AccessLog()).add(record)

    def forget(self) -> None:
        """Forget all accesses."""
        self._logs.clear()

    def launch_ends(self) -> None:
        """Report the races of the launch."""
        for log in self._logs.values():
            for elements in suspects(log.records):
                self._compare(log.records, elements)
        self._logs.clear()

    def _add(self, access: ObservedAccess, deed: Deed, parts: tuple[Part, ...]) -> None:
        parts = tuple(part for part in parts if part.programs.numel())
        if self._programs > 1 and parts:
            record = Record(access.op, access.buffer, access.shape, deed, parts)
            self._logs.setdefault(access.buffer.storage_key, AccessLog()).add(record)

    def _parts(self, access: ObservedAccess, changed: Changed) -> tuple[Part, ...]:
        slabs = access.hyperslabs()
        if slabs is None:
            return (self._listed(access.touch(), changed),)
        return tuple(
            SlabPart(slab, access.shape, changed, self._segments(slab.programs)) for slab in slabs
        )

    def _parts_of_store(
        self, access: ObservedAccess, slabs: Sequence[Hyperslab], first: int, is_first: bool
    ) -> tuple[Part, ...]:
        parts: list[Part] = []
        for slab in slabs:
            changed: Changed = not is_first
            if self._programs > 1 and slab.is_injective and not is_first:
                new = stored_in(access, slab, first)
                bits = bits_type(access.itemsize)
                old = slab.view(access.buffer.flat(new.dtype)).view(bits)
                changed = self._kept(old != new.view(bits))
            parts.append(SlabPart(slab, access.shape, changed, self._segments(slab.programs)))
        return tuple(parts)

    def _kept(self, changed: Tensor) -> Changed:
        """Return `changed`, as one bool if that is possible and much memory is in use."""
        if self._kept_bytes + changed.numel() > _MOST_KEPT_BYTES:
            settled = _settled(changed)
            if settled is not changed:
                return settled
        self._kept_bytes += changed.numel()
        return changed

    def _listed(self, touched: Touched, changed: Changed) -> ListPart:
        return ListPart(touched, changed, self._segments(touched.programs))

    def _segments(self, programs: Tensor) -> Tensor | None:
        return None if self._order is None else self._order.segments(programs)

    # Comparing

    def _compare(self, records: Sequence[Record], elements: Elements) -> None:
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
        """Return which pairs are of one program, or in segments of which one precedes the other."""
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
        # Where programs store at once in one op, the one whose value is lost is reported.
        owner, deeds = elements.records, elements.deeds
        at_once = (owner[earlier] == owner[later]) & (deeds[earlier] != Deed.READ)
        offender = torch.where(at_once, earlier, later)
        other = torch.where(at_once, later, earlier)
        ops = torch.tensor([record.op.id for record in records], device=owner.device)
        kinds = deeds[other]
        kinds = torch.where(kinds == Deed.KEEP, int(Deed.WRITE), kinds)
        kinds = torch.where(kinds == Deed.LOOK, int(Deed.ATOMIC), kinds)
        groups = ops[owner[offender]] * len(Deed) + kinds
        # In order of records, programs and lanes, one number an element of an access.
        width = int(elements.lanes.max()) + 1
        rows = elements.programs[offender] * width + elements.lanes[offender]
        times = owner[offender] * (self._programs * width) + rows
        found = []
        for group in torch.unique(groups).tolist():
            where = (groups == group).nonzero().reshape(-1)
            named, entry = torch.unique(times[where], return_inverse=True)
            counts = torch.zeros_like(named)
            counts[entry] = elements.counts[offender[where]]
            # Units of one element, where it has several, are one entry or in one.
            record = records[int(owner[offender[where[0]]])]
            counts = counts * elements.unit_bytes // record.buffer.itemsize
            count = int(counts.clamp(min=1).sum())
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
        is_same = other_record.buffer.name == record.buffer.name
        race = Race(
            0,
            count,
            int(elements.programs[other]),
            other_record.op,
            _DID[Deed(int(elements.deeds[other]))],
            self._hint(_side(records, elements, offender), _side(records, elements, other)),
            None if is_same else other_record.buffer,
        )
        at, itemsize = slice(offender, offender + 1), record.buffer.itemsize
        touched = Touched(
            elements.places[at] * elements.unit_bytes // itemsize,
            elements.programs[at],
            elements.lanes[at],
            record.shape,
            itemsize,
        )
        self._report(record.op, record.buffer, touched, race)

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


def _settled(changed: Tensor) -> Changed:
    """Return `changed` as one bool if all entries are equal, else unchanged."""
    if bool(changed.all()):
        return True
    return changed if bool(changed.any()) else False


def contents(access: ObservedAccess) -> tuple[Tensor, Tensor]:
    """Return what memory holds and what a store brings, by bits, for each element."""
    new = access.stored().view(bits_type(access.itemsize))
    return access.buffer.flat(access.stored().dtype).view(new.dtype)[access.touch().places], new


def changes(touched: Touched, old: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    """Return the effect of a store whose elements may share places, in program order.

    Returns:
        (n,) bool, elements that change the value; ascending positions of elements whose value
            another element of the same tile overwrites with another one.
    """
    changed = old != new
    in_order, order = torch.sort(touched.places, stable=True)
    again = in_order[1:] == in_order[:-1]
    programs, values = touched.programs[order], new[order]
    brings = changed[order]
    brings[1:] = torch.where(again, values[1:] != values[:-1], brings[1:])
    last = torch.ones_like(changed)
    last[:-1] = ~(again & (programs[1:] == programs[:-1]))
    at = torch.arange(order.shape[0], device=order.device)
    winner = torch.where(last, at, order.shape[0]).flip(0).cummin(0).values.flip(0)
    changed[order] = brings
    return changed, order[values != values[winner]].sort().values
