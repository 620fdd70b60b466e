"""Facts of each source line of a specialisation, from all records that name the line.

Responsible for joining records of different origins at a line, and for the shares that heat shows.
Costs come from launches that were looked at; where there are several, they are added up, weighed by
how many launches each stands for.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tkdebug.advice.records import LineCost, LineTime
from tkdebug.instrument.analyses.stalls import KernelStalls
from tkdebug.instrument.analyses.timelines import LaunchTimeline
from tkdebug.instrument.analyses.watched_values import lost_values, recorded_values
from tkdebug.instrument.home.records import (
    CodeCounts,
    LineFacts,
    MemoryCost,
    PassAtLine,
    Place,
    WatchedRound,
    WatchModel,
)
from tkdebug.instrument.session import Session
from tkdebug.linemap.line_counts import LineCounts, count_lines
from tkdebug.linemap.line_table import LineTable
from tkdebug.watches.records import WatchedValue

_MOST_ROUNDS = 64
_MOST_REASONS = 8
# By what heat is shown first: what was seen on a GPU before what is predicted.
HEATS = ("stalls", "timeline", "predicted", "instructions", "sectors")


@dataclass(slots=True)
class LineRecords:
    """The records about one specialisation's lines.

    Attributes:
        weights: the number of launches that each examined launch represents, by its id.
    """

    costs: list[LineCost] = field(default_factory=list)
    times: list[LineTime] = field(default_factory=list)
    weights: dict[int, float] = field(default_factory=dict)
    stalls: list[KernelStalls] = field(default_factory=list)
    timelines: list[LaunchTimeline] = field(default_factory=list)
    watches: Mapping[Place, Sequence[WatchModel]] = field(default_factory=dict)
    faults: Mapping[Place, Sequence[int]] = field(default_factory=dict)
    remarks: Mapping[Place, Sequence[int]] = field(default_factory=dict)
    passes: Mapping[Place, Sequence[PassAtLine]] = field(default_factory=dict)
    rows: Mapping[Place, Mapping[str, int]] = field(default_factory=dict)
    table: LineTable | None = None


def line_facts(records: LineRecords) -> tuple[tuple[LineFacts, ...], tuple[str, ...]]:
    """Return the lines in order of file and number, and the measures that heat can show."""
    heat = _heat(records)
    code = {} if records.table is None else _code(records.table)
    executed = _executed(records)
    memory = _memory(records)
    reasons = _reasons(records.stalls)
    calls = {} if records.table is None else _calls(records.table)
    places: dict[Place, None] = {}
    known: list[Iterable[Place]] = [code, executed, memory, reasons, calls, *heat.values()]
    known += [records.watches, records.faults, records.remarks, records.passes, records.rows]
    for one in known:
        places.update(dict.fromkeys(one))
    lines = tuple(
        LineFacts(
            place=place,
            heat={name: shares[place] for name, shares in heat.items() if shares.get(place)},
            code=_counts(code.get(place), executed.get(place)),
            memory=tuple(memory.get(place, ())),
            stalls=reasons.get(place),
            watches=tuple(records.watches.get(place, ())),
            passes=tuple(records.passes.get(place, ())),
            faults=tuple(records.faults.get(place, ())),
            remarks=tuple(records.remarks.get(place, ())),
            calls=calls.get(place, ()),
            rows=records.rows.get(place),
        )
        for place in sorted(places)
    )
    return lines, tuple(name for name in HEATS if heat.get(name))


def _heat(records: LineRecords) -> dict[str, dict[Place, float]]:
    amounts: dict[str, dict[Place, float]] = defaultdict(lambda: defaultdict(float))
    for kernel in records.stalls:
        for line in kernel.lines:
            if line.frame is not None:
                amounts["stalls"][Place(line.frame.file, line.frame.line)] += line.samples
    for timeline in records.timelines:
        for one in timeline.lines():
            if one.frame is not None:
                amounts["timeline"][Place(one.frame.file, one.frame.line)] += one.cycles
    for time in records.times:
        place, weight = Place(time.file, time.line), records.weights.get(time.launch_id, 1.0)
        amounts["predicted"][place] += time.share * weight
        amounts["instructions"][place] += time.instructions * weight
    if not amounts["instructions"] and records.table is not None:
        for place, counts in _code(records.table).items():
            amounts["instructions"][place] += counts.instructions
    for cost in records.costs:
        weight = records.weights.get(cost.launch_id, 1.0)
        amounts["sectors"][Place(cost.file, cost.line)] += cost.requests * cost.sectors * weight
    return {name: _shares(found) for name, found in amounts.items()}


def _shares(amounts: Mapping[Place, float]) -> dict[Place, float]:
    total = sum(amounts.values())
    if not total > 0:
        return {}
    return {place: round(amount / total, 6) for place, amount in amounts.items() if amount > 0}


def _executed(records: LineRecords) -> dict[Place, float]:
    """Return by line the warp instructions of one launch: the mean over the examined launches."""
    sums: dict[Place, float] = defaultdict(float)
    for time in records.times:
        sums[Place(time.file, time.line)] += time.instructions
    launches = len({time.launch_id for time in records.times})
    return {place: total / launches for place, total in sums.items()}


def _code(table: LineTable) -> dict[Place, LineCounts]:
    return {Place(*p): counts for p, counts in count_lines(table).items() if p is not None}


def _counts(found: LineCounts | None, executed: float | None) -> CodeCounts | None:
    if found is None:
        return None if not executed else CodeCounts(0, 0, {}, {}, None, 0, executed)
    return CodeCounts(
        found.instructions,
        found.inlined,
        dict(found.kinds.most_common()),
        {f"{kind}, {bits}": count for (kind, bits), count in sorted(found.widths.items())},
        found.max_live_registers,
        found.spilled_values,
        executed,
    )


def _memory(records: LineRecords) -> dict[Place, list[MemoryCost]]:
    """Return the memory accesses of each line in the examined launch of the lowest id."""
    first = min((cost.launch_id for cost in records.costs), default=0)
    found: dict[Place, list[MemoryCost]] = defaultdict(list)
    for cost in records.costs:
        if cost.launch_id == first:
            found[Place(cost.file, cost.line)].append(
                MemoryCost(
                    cost.what,
                    cost.tensor,
                    cost.requests,
                    cost.sectors,
                    cost.needed_sectors,
                    cost.width_bytes,
                    cost.conflicts,
                )
            )
    return found


def _reasons(stalls: Iterable[KernelStalls]) -> dict[Place, dict[str, int]]:
    found: dict[Place, Counter[str]] = defaultdict(Counter)
    for kernel in stalls:
        for line in kernel.lines:
            if line.frame is not None:
                found[Place(line.frame.file, line.frame.line)].update(line.reasons)
    return {place: dict(reasons.most_common(_MOST_REASONS)) for place, reasons in found.items()}


def _calls(table: LineTable) -> dict[Place, tuple[Place, ...]]:
    """Return by line of a call the lines of functions that are inlined there."""
    found: dict[Place, set[Place]] = defaultdict(set)
    chains = {i.frames for i in table.instructions if i.mapped}
    chains |= {chain for op in table.ops.values() for chain in op.chains}
    for chain in chains:
        places = [Place(frame.file, frame.line) for frame in chain]
        for number, caller in enumerate(places[:-1]):
            found[caller].update(places[number + 1 :])
    return {place: tuple(sorted(inner - {place})) for place, inner in found.items()}


# Watched values


def watch_models(
    session: Session, variant_of: Callable[[int, int], str]
) -> dict[str, dict[Place, list[WatchModel]]]:
    """Return the watched variables of each specialisation by line, their values added up.

    Values are read one by one: a million of them need no memory.

    Args:
        session: the run.
        variant_of: the key of the specialisation of a launch, by its process and id.
    """
    sums: dict[tuple[str, str, Place, str], _WatchSum] = {}
    for recorded in recorded_values(session):
        value = recorded.event
        place = Place(value.frames[-1].file, value.frames[-1].line)
        key = variant_of(recorded.process, value.launch_id), value.watch, place, value.type
        if key not in sums:
            sums[key] = _WatchSum(value.name)
        sums[key].add(value)
    lost = lost_values(session)
    found: dict[str, dict[Place, list[WatchModel]]] = defaultdict(lambda: defaultdict(list))
    for (variant, watch, place, type_), one in sums.items():
        kept, seen = lost.get(watch, (0, 0))
        found[variant][place].append(one.model(watch, type_, seen - kept))
    return found


class _WatchSum:
    """The values of one watched variable, added up as they come."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._values = 0
        self._rounds: dict[int, list[float]] = {}
        self._width = 1
        self._histograms: dict[int, Counter[int]] = {}
        self._first_nan: tuple[int, tuple[int, int, int], int] | None = None

    def add(self, value: WatchedValue) -> None:
        """Add a value."""
        self._values += 1
        if (value.nan or value.inf) and self._first_nan is None:
            self._first_nan = value.launch_id, value.program_id, value.iteration
        while value.iteration // self._width >= _MOST_ROUNDS:
            self._halve()
        place = value.iteration // self._width
        one = self._rounds.setdefault(place, [math.inf, -math.inf, 0.0, 0, 0, 0, 0])
        finite = value.elements - value.nan - value.inf
        if not math.isnan(value.minimum):
            one[0], one[1] = min(one[0], value.minimum), max(one[1], value.maximum)
        if finite > 0 and math.isfinite(value.mean):
            one[2] += value.mean * finite
            one[3] += finite
        one[4] += value.nan
        one[5] += value.inf
        one[6] += 1
        self._histograms.setdefault(place, Counter()).update(dict(value.histogram))

    def _halve(self) -> None:
        """Merge the entries of neighbouring iterations in pairs."""
        self._width *= 2
        rounds: dict[int, list[float]] = {}
        histograms: dict[int, Counter[int]] = {}
        for place, one in self._rounds.items():
            into = rounds.setdefault(place // 2, [math.inf, -math.inf, 0.0, 0, 0, 0, 0])
            into[0], into[1] = min(into[0], one[0]), max(into[1], one[1])
            for index in range(2, 7):
                into[index] += one[index]
            histograms.setdefault(place // 2, Counter()).update(self._histograms[place])
        self._rounds, self._histograms = rounds, histograms

    def model(self, watch: str, type_: str, lost: int) -> WatchModel:
        """Return the sums as a record of the model."""
        last = max(self._histograms, default=0)
        histogram = tuple(sorted(self._histograms.get(last, {}).items()))
        return WatchModel(
            watch,
            self._name,
            type_,
            self._values,
            lost,
            tuple(self._in_order()),
            histogram,
            self._first_nan,
        )

    def _in_order(self) -> Iterator[WatchedRound]:
        for place, one in sorted(self._rounds.items()):
            least, most, total, finite, nan, inf, values = one
            mean = total / finite if finite else math.nan
            yield WatchedRound(
                place * self._width, least, most, mean, int(nan), int(inf), int(values)
            )
