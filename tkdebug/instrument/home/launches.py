"""Launches of a run in bounded memory: totals, sparklines, the strip of time, a list of some.

A million launches are read once. What is kept of them does not grow with their number: spans that
are near each other are put together, a sparkline's neighbours are added up, and of the launches
themselves the first and the slowest are listed.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tkdebug.instrument.activities import recorded_activities
from tkdebug.instrument.analyses.kernel_names import activity_name
from tkdebug.instrument.home.records import Basis, Bucket, Span, TimeStrip, Track
from tkdebug.instrument.session import Session
from tkdebug.records.events import ArgumentInfo

MOST_SPANS = 4_000
MOST_BUCKETS = 48
MOST_LISTED = 1_000
_FIRST_STEP_NS = 1_000
Grid = tuple[int, int, int]
# Name, basis, and process of a row of the strip.
_TrackKey = tuple[str, Basis, int]


class LaunchFields(NamedTuple):
    """The fields of a `Launch` that the model needs."""

    seq: int
    id: int
    process: int
    rank: int
    kernel: str
    kernel_hash: str
    mode: str
    grid: Grid
    start_ns: int
    duration_ns: int | None
    time_source: str | None
    error: str | None
    stream: int
    scopes: tuple[str, ...]
    arguments: tuple[ArgumentInfo, ...]
    device_start_ns: int | None
    device: int | None
    device_stream: int | None

    @property
    def basis(self) -> Basis:
        """Return how its time was obtained; "" if it has none."""
        if self.duration_ns is None or self.time_source == "none":
            return ""
        return "interpreted" if self.mode == "interpret" else "measured"


class Sparkline:
    """Launches in order, in at most so many buckets of equally many."""

    def __init__(self) -> None:
        self._buckets: list[Bucket] = []
        self._size = 1

    def add(self, duration_ns: int) -> None:
        """Add the next launch."""
        if self._buckets and self._buckets[-1].launches < self._size:
            last = self._buckets[-1]
            more = last.launches + 1, last.total_ns + duration_ns, max(last.max_ns, duration_ns)
            self._buckets[-1] = Bucket(*more)
            return
        if len(self._buckets) == 2 * MOST_BUCKETS:
            pairs = zip(self._buckets[::2], self._buckets[1::2], strict=True)
            self._buckets = [
                Bucket(a.launches + b.launches, a.total_ns + b.total_ns, max(a.max_ns, b.max_ns))
                for a, b in pairs
            ]
            self._size *= 2
        self._buckets.append(Bucket(1, duration_ns, duration_ns))

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """The buckets so far."""
        return tuple(self._buckets)


@dataclass(slots=True)
class Totals:
    """Launches of one kernel, or of one specialisation.

    Attributes:
        times: total nanoseconds and number of the timed launches, by how the time was obtained.
        grids: the number of launches with each grid.
        measured: total nanoseconds and number of the launches measured on a GPU, by grid.
    """

    launches: int = 0
    errors: int = 0
    times: dict[Basis, tuple[int, int]] = field(default_factory=dict)
    grids: Counter[Grid] = field(default_factory=Counter)
    measured: dict[Grid, tuple[int, int]] = field(default_factory=dict)
    arguments: tuple[ArgumentInfo, ...] = ()
    sparkline: Sparkline = field(default_factory=Sparkline)
    sparkline_basis: Basis = ""

    def add(self, launch: LaunchFields) -> None:
        """Count a launch."""
        self.launches += 1
        self.errors += launch.error is not None
        self.grids[launch.grid] += 1
        if self.launches == 1:
            self.arguments = launch.arguments
        basis = launch.basis
        if basis and launch.duration_ns is not None:
            total_ns, count = self.times.get(basis, (0, 0))
            self.times[basis] = total_ns + launch.duration_ns, count + 1
            if basis == "measured":
                total_ns, count = self.measured.get(launch.grid, (0, 0))
                self.measured[launch.grid] = total_ns + launch.duration_ns, count + 1
            if self.sparkline_basis in ("", basis):
                self.sparkline_basis = basis
                self.sparkline.add(launch.duration_ns)

    @property
    def measured_ns(self) -> int | None:
        """GPU time of all native launches, untimed ones counted as the mean; None without times."""
        total_ns, count = self.times.get("measured", (0, 0))
        interpreted = self.times.get("interpreted", (0, 0))[1]
        return None if not count else round(total_ns * (self.launches - interpreted) / count)

    @property
    def interpreted_ns(self) -> int:
        """Time of the interpreted launches."""
        return self.times.get("interpreted", (0, 0))[0]


class _Spans:
    """Spans of one track; if they become many, neighbouring ones of one kernel are merged."""

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self.step_ns = 0

    def add(self, span: Span) -> None:
        self._spans.append(span)
        if len(self._spans) > 2 * MOST_SPANS:
            self._put_together()

    def _put_together(self) -> None:
        while len(self._spans) > MOST_SPANS:
            self.step_ns = max(_FIRST_STEP_NS, 2 * self.step_ns)
            cells: dict[tuple[int, int, int], Span] = {}
            for span in self._spans:
                # A span as long as a step, or longer, is not merged.
                number = -1 if span.duration_ns < self.step_ns else span.start_ns
                key = span.start_ns // self.step_ns, span.kernel, number
                known = cells.get(key)
                cells[key] = span if known is None else _joined(known, span)
            self._spans = list(cells.values())

    @property
    def spans(self) -> tuple[Span, ...]:
        if len(self._spans) > MOST_SPANS:
            self._put_together()
        return tuple(sorted(self._spans))


def _joined(one: Span, other: Span) -> Span:
    start = min(one.start_ns, other.start_ns)
    end = max(one.start_ns + one.duration_ns, other.start_ns + other.duration_ns)
    busy = min(end - start, one.busy_ns + other.busy_ns)
    name = one.name if one.name == other.name else 0
    return Span(start, end - start, one.kernel, name, 0, one.launches + other.launches, busy)


@dataclass(frozen=True, slots=True)
class Launches:
    """Facts of all launches that are kept.

    Attributes:
        by_kernel: totals by name.
        by_hash: totals by `kernel_hash`.
        listed: the first launches and the slowest of the others.
        count: the number of all launches.
        kernel_numbers: numbers of kernels in the strip's spans.
        hashes: `kernel_hash` of the wanted launches, by process and id.
    """

    by_kernel: Mapping[str, Totals]
    by_hash: Mapping[str, Totals]
    listed: tuple[LaunchFields, ...]
    count: int
    strip: TimeStrip
    kernel_numbers: Mapping[str, int]
    hashes: Mapping[tuple[int, int], str]


def read_launches(
    session: Session, begin_ns: int, wanted: frozenset[tuple[int, int]] = frozenset()
) -> Launches:
    """Read all launches, and what others ran.

    Args:
        session: the run.
        begin_ns: the begin of the run.
        wanted: launches whose `kernel_hash` is kept, by process and id.
    """
    by_kernel: defaultdict[str, Totals] = defaultdict(Totals)
    by_hash: defaultdict[str, Totals] = defaultdict(Totals)
    numbers: dict[str, int] = {}
    tracks: dict[_TrackKey, _Spans] = {}
    free_ns: dict[tuple[str, int], int] = {}
    first: list[LaunchFields] = []
    slowest: list[tuple[int, int, LaunchFields]] = []
    hashes: dict[tuple[int, int], str] = {}
    count = 0
    for launch in map(LaunchFields._make, session.launch_fields(LaunchFields._fields)):
        count += 1
        if wanted and (launch.process, launch.id) in wanted:
            hashes[launch.process, launch.id] = launch.kernel_hash
        by_kernel[launch.kernel].add(launch)
        by_hash[launch.kernel_hash].add(launch)
        number = numbers.setdefault(launch.kernel, len(numbers))
        _add_span(tracks, free_ns, launch, number)
        if len(first) < MOST_LISTED:
            first.append(launch)
        else:
            entry = launch.duration_ns or 0, -launch.seq, launch
            (heapq.heappush if len(slowest) < MOST_LISTED else heapq.heappushpop)(slowest, entry)
    names = _add_others(session, tracks)
    listed = (*first, *sorted((launch for _, _, launch in slowest), key=lambda one: one.seq))
    strip = _strip(tracks, names, begin_ns)
    return Launches(dict(by_kernel), dict(by_hash), listed, count, strip, numbers, hashes)


def _add_span(
    tracks: dict[_TrackKey, _Spans],
    free_ns: dict[tuple[str, int], int],
    launch: LaunchFields,
    kernel: int,
) -> None:
    if not launch.basis or launch.duration_ns is None:
        return
    start_ns = launch.device_start_ns
    if start_ns is not None:
        name = _stream_name(launch.device or 0, launch.device_stream or 0)
    else:
        # Launches are queued before the GPU gets to them, and a stream runs them in turn.
        name = "on the CPU" if launch.mode == "interpret" else f"stream {launch.stream}"
        queue = name, launch.process
        start_ns = max(launch.start_ns, free_ns.get(queue, 0))
        free_ns[queue] = start_ns + launch.duration_ns
    span = Span(start_ns, launch.duration_ns, kernel, 0, launch.seq, 1, launch.duration_ns)
    tracks.setdefault((name, launch.basis, launch.process), _Spans()).add(span)


def _stream_name(device: int, stream: int) -> str:
    return f"GPU {device}, stream {stream}"


def _add_others(session: Session, tracks: dict[_TrackKey, _Spans]) -> tuple[str, ...]:
    """Add others' activities on the GPU to the tracks; return their names, "" the first."""
    names: dict[str, int] = {"": 0}
    for activity in recorded_activities(session):
        if activity.launch:
            continue
        text = activity_name(activity.kind, activity.name, activity.graph > 0)[:120]
        if text not in names and len(names) >= MOST_LISTED:
            text = activity.kind
        number = names.setdefault(text, len(names))
        track = _stream_name(activity.device, activity.stream)
        duration_ns = activity.duration_ns
        span = Span(activity.start_ns, duration_ns, -1, number, 0, 1, duration_ns)
        tracks.setdefault((track, "measured", activity.process), _Spans()).add(span)
    return tuple(names)


def _strip(tracks: Mapping[_TrackKey, _Spans], names: tuple[str, ...], begin_ns: int) -> TimeStrip:
    """Return the strip, from its first span on: what came before was the script's start.

    Streams of the GPU come first, those with launches of tkdebug's before the others.
    """
    spans = {key: one.spans for key, one in tracks.items()}
    step_ns = max((one.step_ns for one in tracks.values()), default=0)
    first_ns = min((found[0].start_ns for found in spans.values() if found), default=begin_ns)
    moved = {
        key: tuple(span._replace(start_ns=span.start_ns - first_ns) for span in found)
        for key, found in spans.items()
    }
    end_ns = max((s.start_ns + s.duration_ns for found in moved.values() for s in found), default=0)
    processes = Counter(name for name, _, _ in moved)

    def order(item: tuple[_TrackKey, tuple[Span, ...]]) -> tuple[bool, bool, str, int]:
        (name, basis, process), found = item
        return basis != "measured", not any(s.kernel >= 0 for s in found), name, process

    shown = tuple(
        Track(f"{name}, process {process}" if processes[name] > 1 else name, basis, found)
        for (name, basis, process), found in sorted(moved.items(), key=order)
    )
    return TimeStrip(end_ns, shown, names, step_ns)


def left_out(launches: Launches) -> Iterator[str]:
    """Yield what of the launches was put together or left out."""
    listed = len(launches.listed)
    if listed < launches.count:
        yield (
            f"{listed:,} of {launches.count:,} launches are listed: the first {MOST_LISTED:,} and "
            f"the {listed - MOST_LISTED:,} slowest of the others; totals are of all"
        )
    if launches.strip.step_ns:
        yield (
            f"in the strip of time, launches of a kernel that begin within the same "
            f"{launches.strip.step_ns / 1e3:,.0f} us are one bar"
        )
