"""The races of a native launch, from the log of its accesses (`compiler.sites.watches`).

The logged accesses are judged as those of interpreted launches are (`detector`, `happens_before`).
The order in which programs synchronised is taken from the log: of two atomics on an element, what
the later one learns was published before it. That may be more than the programs made sure of, and
never less: so a race may be missed, and no false one is reported.

Invariant: an access that did not fit into the log makes no race; a launch whose order may be wrong
is not judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tkdebug.compiler.analysis.axis_facts import unit_of
from tkdebug.compiler.analysis.global_memory import Origin, pointer_origin
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import PointerAccess
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.sites.checks import CheckPlan
from tkdebug.compiler.sites.live_memory import AddressRange
from tkdebug.compiler.sites.watches import (
    ADDRESS_BITS,
    AFTER,
    BEFORE,
    HEADER_WORDS,
    WORD_BYTES,
    WatchSite,
    Word,
    is_logged,
    spaces,
)
from tkdebug.interpreter.checks.races.access_history import Deed, suspicious
from tkdebug.interpreter.checks.races.check import race_text
from tkdebug.interpreter.checks.races.detector import Race, RaceDetector, changes
from tkdebug.interpreter.checks.races.happens_before import (
    HappensBefore,
    Meaning,
    Synchronisation,
    is_silent_flag,
)
from tkdebug.interpreter.closer_looks.reported_launch import PassedTensor, ReportedLaunch
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.touched import Touched
from tkdebug.records.events import Fault


@dataclass(frozen=True, slots=True)
class LoggedTiles:
    """Tiles that one op accessed.

    Attributes:
        addresses: (tiles, elements) int64, in bytes; 0 for masked-off elements.
        programs: (tiles,) linear program ids.
        itemsize: bytes of an element.
        deed: READ, WRITE or ATOMIC.
    """

    addresses: Tensor
    programs: Tensor
    itemsize: int
    deed: Deed


def may_race(tables: Sequence[LoggedTiles]) -> list[Tensor]:
    """Find the tiles that have to be compared element by element: (tiles,) bool for each table.

    These are stores whose own elements may share a place, and tiles of suspicious clusters, taken
    to touch all bytes from their first to their last.
    """
    if not tables:
        return []
    firsts = torch.cat([_firsts(tiles.addresses) for tiles in tables])
    stops = torch.cat([tiles.addresses.amax(1) + tiles.itemsize for tiles in tables])
    programs = torch.cat([tiles.programs for tiles in tables])
    counts = [tiles.programs.shape[0] for tiles in tables]
    deeds = torch.tensor([tiles.deed for tiles in tables]).repeat_interleave(torch.tensor(counts))
    is_shared = torch.zeros_like(programs, dtype=torch.bool)
    some = (firsts < stops).nonzero().reshape(-1)
    shared = suspicious(firsts[some], stops[some], programs[some], deeds[some])
    if shared is not None:
        is_shared[some[shared]] = True
    found = list(torch.split(is_shared, counts))
    for number, tiles in enumerate(tables):
        if tiles.deed == Deed.WRITE:
            found[number] = found[number] | _may_repeat(tiles.addresses)
    return found


def _firsts(addresses: Tensor) -> Tensor:
    """Return the minimum address of each tile; above all addresses if all is masked off."""
    return torch.where(addresses == 0, torch.iinfo(torch.int64).max, addresses).amin(1)


def _may_repeat(addresses: Tensor) -> Tensor:
    """Find the tiles whose addresses do not ascend, masked-off elements left out."""
    found = ~(addresses[:, 1:] > addresses[:, :-1]).all(1)
    doubtful = found.nonzero().reshape(-1)
    if doubtful.numel():
        tiles = addresses[doubtful]
        before = torch.cummax(tiles, 1).values[:, :-1]
        found[doubtful] = ~((tiles[:, 1:] > before) | (tiles[:, 1:] == 0)).all(1)
    return found


# Most accesses of programs that synchronise: each is looked at by itself.
MOST_EVENTS = 1 << 14
_ADDRESS = (1 << ADDRESS_BITS) - 1


@dataclass(frozen=True, slots=True)
class Judged:
    """The races of a launch, and its accesses that were not judged.

    Attributes:
        faults: its races.
        unseen: the part that was not judged, as the end of a sentence; None if all was.
    """

    faults: Sequence[Fault]
    unseen: str | None = None


@dataclass(frozen=True, slots=True)
class _Logged:
    """Accesses of one op, in order of programs, then of the tile; of some programs or of one.

    Attributes:
        when: whether the moment is before the op or after it.
        storage: number of the tensor's allocation.
        values: hashes of the values that were read or written.
        time: the time of the first of them.
    """

    op: Operation
    when: int
    storage: int
    buffer: Buffer
    touched: Touched
    values: Tensor
    time: int


def logged_races(
    plan: CheckPlan,
    launch: ReportedLaunch,
    counters: Sequence[int],
    records: Callable[[int, int], bytes],
) -> Judged:
    """Return the races of a launch.

    Args:
        plan: the plan of its kernel.
        launch: the launch.
        counters: the counters of each site of a watch.
        records: gives bytes of the records, from a first one on so many.
    """
    synchronisation = Synchronisation.of(plan.module)
    synchronises = bool(synchronisation.meanings)
    if synchronises and synchronisation.fences:
        return Judged((), "its programs synchronise by fences")
    rooms = spaces(plan.watches, plan.watch_bytes)
    rows: dict[WatchSite, Tensor] = {}
    lost = all_seen = 0
    for site, space in zip(plan.watches[:-1], rooms[:-1], strict=True):
        if not is_logged(site):
            continue
        seen = counters[site.number]
        kept = min(seen, space.capacity)
        lost, all_seen = lost + seen - kept, all_seen + seen
        words = kept * site.record_words
        if not kept:
            continue
        text = records(space.first_word * WORD_BYTES, words * WORD_BYTES)
        rows[site] = torch.frombuffer(bytearray(text), dtype=torch.int64).reshape(kept, -1)
    unseen = _shared(plan, launch)
    if lost:
        unseen = f"{lost:,} of {all_seen:,} accesses of tiles did not fit into its log"
    if synchronises and (lost or all_seen > MOST_EVENTS):
        return Judged((), unseen or f"its programs synchronise, and access {all_seen:,} tiles")
    logged = _by_time(plan, launch, rows, synchronises)
    judge = _Judge(launch, synchronisation, math.prod(launch.grid))
    return Judged(judge.faults(logged), unseen)


def _shared(plan: CheckPlan, launch: ReportedLaunch) -> str | None:
    """Return a reason not to judge a launch: a tensor without logged loads overlaps a written one.

    Return None if there is none.
    """
    ops = {op.id: op for op in plan.module.walk()}
    names = {
        name
        for site in plan.watches[:-1]
        if is_logged(site)
        for name, _ in _candidates(plan, launch, PointerAccess(ops[site.op_id]).pointer)
    }
    spans = {name: _span(passed) for name, passed in launch.tensors.items()}
    for name, (first, end) in spans.items():
        for other in sorted(names):
            if name not in names and first < spans[other].end and spans[other].first < end:
                return f"`{name}` overlaps `{other}`, and its loads are not in the log"
    return None


def _span(passed: PassedTensor) -> AddressRange:
    """Return the range from a tensor's first element to its last."""
    size_bytes = passed.buffer(None).hull_elems * passed.dtype.itemsize
    return AddressRange(passed.address, passed.address + size_bytes)


def _by_time(
    plan: CheckPlan,
    launch: ReportedLaunch,
    rows: Mapping[WatchSite, Tensor],
    synchronises: bool,
) -> list[_Logged]:
    """Return all accesses: single ones, or batches of all programs if they do not synchronise.

    In the latter case, the nth accesses of all programs by an op are one, as if the whole grid were
    one batch.
    """
    ops = {op.id: op for op in plan.module.walk()}
    tables = {site: table[torch.argsort(table[:, Word.ITERATION])] for site, table in rows.items()}
    compared = [torch.ones(table.shape[0], dtype=torch.bool) for table in tables.values()]
    if not synchronises:
        compared = may_race(
            [_tiles(ops[site.op_id], site, table) for site, table in tables.items()]
        )
    found: list[_Logged] = []
    for (site, table), kept in zip(tables.items(), compared, strict=True):
        programs, times = table[:, Word.PROGRAM], table[:, Word.ITERATION]
        groups = torch.arange(table.shape[0]) if synchronises else _occurrences(programs)
        for group in torch.unique(groups[kept]).tolist():
            where = (groups == group).nonzero().reshape(-1)
            time = int(times[where].min())
            where = where[kept[where]]
            where = where[torch.argsort(programs[where], stable=True)]
            tile = _Tile(ops[site.op_id], site, _words(site, table[where]), programs[where], time)
            found += _split(plan, launch, tile)
    return sorted(found, key=lambda one: one.time)


def _words(site: WatchSite, table: Tensor) -> Tensor:
    """Return the words of elements, (rows, elements), of some rows of a site's table."""
    return table[:, HEADER_WORDS:].reshape(table.shape[0], -1)[:, : site.elements]


def _tiles(op: Operation, site: WatchSite, table: Tensor) -> LoggedTiles:
    """Return the rows of a site's table as tiles, for `may_race`."""
    deed = Deed.ATOMIC
    if tt.Store.matches(op) or tt.Load.matches(op):
        deed = Deed.WRITE if tt.Store.matches(op) else Deed.READ
    itemsize = unit_of(PointerAccess(op).pointer.type)
    return LoggedTiles(_words(site, table) & _ADDRESS, table[:, Word.PROGRAM], itemsize, deed)


def _occurrences(programs: Tensor) -> Tensor:
    """Return, for each row, the number of earlier rows of the same program."""
    order = torch.argsort(programs, stable=True)
    sorted_ = programs[order]
    begins = torch.ones_like(sorted_, dtype=torch.bool)
    begins[1:] = sorted_[1:] != sorted_[:-1]
    at = torch.arange(programs.shape[0])
    first = torch.where(begins, at, 0).cummax(0).values
    found = torch.empty_like(at)
    found[order] = at - first
    return found


@dataclass(frozen=True, slots=True)
class _Tile:
    """Rows of a site's table: words (P, elements) of programs (P,)."""

    op: Operation
    site: WatchSite
    words: Tensor
    programs: Tensor
    time: int


def _split(plan: CheckPlan, launch: ReportedLaunch, tile: _Tile) -> Iterator[_Logged]:
    """Yield the accesses of a tile by allocation; those in no known allocation are left out."""
    count = tile.words.shape[1]
    words = tile.words.reshape(-1)
    lanes = torch.arange(count).repeat(tile.programs.shape[0])
    programs = tile.programs.repeat_interleave(count)
    addresses = words & _ADDRESS
    values = (words >> ADDRESS_BITS) & 0xFFFF
    pointer = PointerAccess(tile.op).pointer
    itemsize = unit_of(pointer.type)
    rest = words != 0
    for name, passed in _candidates(plan, launch, pointer):
        first, end = (place & _ADDRESS for place in passed.storage)
        inside = rest & (addresses >= first) & (addresses < end)
        if not bool(inside.any()):
            continue
        rest = rest & ~inside
        places = (addresses[inside] - first) // itemsize
        touched = Touched(places, programs[inside], lanes[inside], tile.site.shape, itemsize)
        buffer = passed.buffer(name).reinterpreted(itemsize)
        yield _Logged(tile.op, tile.site.operand, first, buffer, touched, values[inside], tile.time)


def _candidates(
    plan: CheckPlan, launch: ReportedLaunch, pointer: Value
) -> list[tuple[str, PassedTensor]]:
    """Return the tensors, with names, that an access may touch, its own parameter's first."""
    origin = pointer_origin(pointer)
    tensors = dict(launch.tensors)
    if isinstance(origin, Origin):
        return list(tensors.items())
    function = tt.Func(plan.module.function)
    own = function.arg_names[function.body.arguments.index(origin)]
    return [(own, tensors[own])] if own in tensors else []


class _Judge:
    """Compares the accesses of one launch.

    Args:
        launch: the launch.
        synchronisation: the synchronisation of its kernel.
        programs: the programs of the launch.
    """

    def __init__(
        self, launch: ReportedLaunch, synchronisation: Synchronisation, programs: int
    ) -> None:
        self._log = launch.log()
        self._meanings = synchronisation.meanings
        self._order = HappensBefore(programs) if self._meanings and programs > 1 else None
        self._detector = RaceDetector(self._report, programs, self._meanings, self._order)

    def faults(self, logged: Sequence[_Logged]) -> list[Fault]:
        """The races of the logged accesses, in order of time."""
        changed = _changed(logged)
        for one, brings in zip(logged, changed, strict=True):
            self._take(one, brings)
        self._detector.launch_ends()
        return self._log.publish()

    def _take(self, one: _Logged, brings: Tensor) -> None:
        meaning = self._meanings.get(one.op)
        detector, op = self._detector, one.op
        if tt.Store.matches(op):
            _, lost = changes(one.touched, torch.full_like(one.values, -1), one.values)
            if lost.numel():
                detector.tell_lost(op, one.buffer, one.touched, lost)
            detector.add(op, one.buffer, one.storage, Deed.WRITE, one.touched, brings)
            self._synchronise(one, meaning, brings)
        elif tt.Load.matches(op):
            if meaning is None or not is_silent_flag(op):
                detector.add(op, one.buffer, one.storage, Deed.READ, one.touched, True)
            self._synchronise(one, meaning, None)
        elif self._order is None:
            detector.add(op, one.buffer, one.storage, Deed.ATOMIC, one.touched, True)
        elif one.when == BEFORE:
            detector.add(op, one.buffer, one.storage, Deed.ATOMIC, one.touched, True)
            published = None if meaning is None else _half(meaning, publishes=True)
            self._synchronise(one, published, torch.ones_like(brings))
        else:
            assert one.when == AFTER
            learns = None if meaning is None else _half(meaning, publishes=False)
            self._synchronise(one, learns, None)

    def _synchronise(self, one: _Logged, meaning: Meaning | None, brings: Tensor | None) -> None:
        if self._order is None or meaning is None:
            return
        touched = one.touched
        places = touched.places * touched.itemsize
        self._order.synchronise(one.op, meaning, one.storage, places, touched.programs, brings)

    def _report(self, op: Operation, buffer: Buffer, touched: Touched, race: Race) -> None:
        offender = self._log.offender(buffer, touched, race.first)
        self._log.record(op, race_text(self._log, op, buffer, offender, race), offender, race.count)


def _half(meaning: Meaning, publishes: bool) -> Meaning:
    """Return the half of an atomic's meaning that is before the op (it publishes) or after it."""
    if publishes:
        return replace(meaning, observes=False, acquires=False)
    return replace(meaning, publishes=False, releases=False, fences=False)


def _changed(logged: Sequence[_Logged]) -> list[Tensor]:
    """Return, for each access, which elements change the value last seen there, by hashes.

    The first access of an element counts as a change, and so does every atomic.
    """
    found = [torch.ones_like(one.values, dtype=torch.bool) for one in logged]
    for storage in {one.storage for one in logged}:
        mine = [number for number, one in enumerate(logged) if one.storage == storage]
        plain = [number for number in mine if not tt.Atomic.matches(logged[number].op)]
        if not plain:
            continue
        places = torch.cat([logged[n].touched.places * logged[n].touched.itemsize for n in plain])
        values = torch.cat([logged[n].values for n in plain])
        order = torch.argsort(places, stable=True)
        same = places[order][1:] == places[order][:-1]
        brings = torch.ones_like(order, dtype=torch.bool)
        brings[1:] = ~same | (values[order][1:] != values[order][:-1])
        unsorted = torch.empty_like(brings)
        unsorted[order] = brings
        for number, part in zip(
            plain, torch.split(unsorted, [logged[n].values.numel() for n in plain]), strict=True
        ):
            found[number] = part
    return found
