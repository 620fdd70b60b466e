"""The launches as a Chrome trace, which Perfetto and chrome://tracing open: a track per stream.

Everything that CUPTI recorded is there, of any launcher, on tracks of the GPU's streams and with
the GPU's times; others' work has a category that begins with "other". A thread that entered scopes
has a track, too; its scopes are times of the host. Overlapping events are on a track of their own.

If the GPU's own times are known, an arrow leads from the host's launch to each kernel.

The format is Google's "Trace Event Format"; times in it are microseconds, here since the run began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from tkdebug.instrument.activities import recorded_activities
from tkdebug.instrument.analyses.kernel_names import activity_name, demangled
from tkdebug.instrument.analyses.origin_totals import recorded_origins
from tkdebug.instrument.device_records import Activity, Origin
from tkdebug.instrument.records import FaultGroup, RunInfo, ScopeSpan
from tkdebug.instrument.renderers.timeline_section import timeline_events
from tkdebug.instrument.renderers.trace_tracks import StreamLanes, Tracks, host_track_name, lanes
from tkdebug.instrument.session import Session
from tkdebug.instrument.text_forms import json_text
from tkdebug.records.events import ArgumentInfo

_MOST_KNOWN = 4096


def render(session: Session, faults: tuple[FaultGroup, ...]) -> Iterator[str]:
    """The trace in pieces of text; an event is a line."""
    run = session.run()
    first_faults: dict[tuple[int, int], list[str]] = defaultdict(list)
    for group in faults:
        fault = group.fault
        if not fault.is_open:
            continue
        place = f"{fault.file}:{fault.line}: " if fault.frames else ""
        first_faults[group.first.process, fault.launch_id].append(
            f"{place}{fault.kind}: {fault.message}"
        )
    streams = _GpuStreams(session)
    starts_ns: dict[tuple[int, int], int] = {}
    yield '{"displayTimeUnit": "ns", "traceEvents": ['
    separator = "\n"
    for event in chain(
        _launch_events(session, run, streams, first_faults, starts_ns),
        _other_events(session, run, streams),
        _scope_events(session, run, streams.tracks),
        timeline_events(session, run, starts_ns),
    ):
        yield separator + json_text(event)
        separator = ",\n"
    yield "]}\n"


def _launch_events(
    session: Session,
    run: RunInfo,
    streams: _GpuStreams,
    first_faults: Mapping[tuple[int, int], list[str]],
    starts_ns: dict[tuple[int, int], int],
) -> Iterator[dict[str, object]]:
    """Yield the events of launches; put their starts on the GPU, if known, into `starts_ns`."""
    free_ns: dict[tuple[int, str], int] = {}
    processes: set[int] = set()
    texts = _ArgumentTexts()
    for launch in map(_Launch._make, session.launch_fields(_Launch._fields)):
        if launch.process not in processes:
            processes.add(launch.process)
            yield _process_name(run, launch)
        launch_faults = first_faults.get((launch.process, launch.id), [])
        if launch.device_start_ns is not None:
            starts_ns[launch.process, launch.id] = launch.device_start_ns
            start_ns = launch.device_start_ns - run.start_ns
            arrow = f"0x{launch.seq:x}"
            event = _event(launch, start_ns, launch_faults, texts)
            event.update(bind_id=arrow, flow_in=True)
            yield from streams.events(launch, launch.device_start_ns, event)
            host = _host_event(launch, run, arrow)
            yield from streams.tracks.put(launch.process, "host", "launches by the host", host)
            continue
        # Launches are queued before the GPU gets to them, and a stream runs them in turn.
        track = host_track_name(launch.mode, launch.stream)
        start_ns = max(launch.start_ns, free_ns.get((launch.process, track), 0))
        free_ns[launch.process, track] = start_ns + (launch.duration_ns or 0)
        event = _event(launch, start_ns - run.start_ns, launch_faults, texts)
        yield from streams.tracks.put(launch.process, ("launches", track), track, event)


def _host_event(launch: _Launch, run: RunInfo, arrow: str) -> dict[str, object]:
    """Return the event of a launch on the host; how long launching took is not recorded."""
    return {
        "ph": "X",
        "name": f"launch {launch.kernel}",
        "cat": "launch",
        "pid": launch.process,
        "ts": (launch.start_ns - run.start_ns) / 1e3,
        "dur": 0,
        "bind_id": arrow,
        "flow_out": True,
        "args": {"launch": launch.id},
    }


def _other_events(
    session: Session, run: RunInfo, streams: _GpuStreams
) -> Iterator[dict[str, object]]:
    origins = recorded_origins(session)
    for activity in recorded_activities(session):
        if not activity.launch:
            origin = origins.get((activity.process, activity.origin))
            event = _other_event(activity, run, origin)
            yield from streams.events(activity, activity.start_ns, event)


class _GpuStreams:
    """The tracks of CUPTI's records: one for each stream of a GPU, more where it overlaps."""

    def __init__(self, session: Session) -> None:
        self.tracks = Tracks()
        self._lanes = StreamLanes(session)

    def events(
        self, timed: _Launch | Activity, start_ns: int, event: dict[str, object]
    ) -> Iterator[dict[str, object]]:
        """The event on its track, after the track's name if it is the first one there."""
        device = timed.device or 0
        number = timed.stream if isinstance(timed, Activity) else timed.device_stream or 0
        stream = (timed.process, device, number)
        lane = self._lanes.lane(stream, start_ns, timed.duration_ns or 0)
        name = f"GPU {device}, stream {number}"
        yield from self.tracks.put(timed.process, (*stream, lane), _lane_name(name, lane), event)


def _lane_name(name: str, lane: int) -> str:
    return name if lane == 0 else f"{name}, at the same time {lane}"


def _other_event(activity: Activity, run: RunInfo, origin: Origin | None) -> dict[str, object]:
    details = _activity_details(activity)
    if origin is not None:
        frame = origin.frame
        details["launched_at"] = f"{frame.file}:{frame.line} in {frame.function}"
        details["scopes"] = origin.scopes
    return {
        "ph": "X",
        "name": activity_name(activity.kind, activity.name, activity.graph > 0),
        "cat": f"other {activity.kind}",
        "pid": activity.process,
        "ts": (activity.start_ns - run.start_ns) / 1e3,
        "dur": activity.duration_ns / 1e3,
        "args": details,
    }


def _activity_details(activity: Activity) -> dict[str, object]:
    if activity.kind != "kernel":
        return {"bytes": activity.size_bytes}
    details: dict[str, object] = {
        "name": demangled(activity.name),
        "grid": activity.grid,
        "block": activity.block,
        "registers": activity.registers,
        "shared_bytes": activity.static_shared_bytes + activity.dynamic_shared_bytes,
    }
    if activity.graph:
        details["graph"] = activity.graph
    return details


def _process_name(run: RunInfo, launch: _Launch) -> dict[str, object]:
    name = f"{run.script}, rank {launch.rank}" if launch.rank else run.script
    return {"ph": "M", "name": "process_name", "pid": launch.process, "args": {"name": name}}


def _scope_events(session: Session, run: RunInfo, tracks: Tracks) -> Iterator[dict[str, object]]:
    threads: dict[tuple[int, int], list[ScopeSpan]] = defaultdict(list)
    since = 0
    while page := session.records(ScopeSpan, since):
        for recorded in page:
            threads[recorded.process, recorded.event.thread].append(recorded.event)
        since = page[-1].seq
    for (process, thread), scopes in threads.items():
        spans = [(scope.start_ns, scope.end_ns) for scope in scopes]
        for scope, lane in zip(scopes, lanes(spans, nested=True), strict=True):
            name = _lane_name(f"scopes of thread {thread}", lane)
            event = _scope_event(scope, process, run)
            yield from tracks.put(process, ("scopes", thread, lane), name, event)


def _scope_event(scope: ScopeSpan, process: int, run: RunInfo) -> dict[str, object]:
    return {
        "ph": "X",
        "name": scope.name,
        "cat": "scope",
        "pid": process,
        "ts": (scope.start_ns - run.start_ns) / 1e3,
        "dur": max(0, scope.end_ns - scope.start_ns) / 1e3,
        "args": dict(scope.metrics),
    }


class _Launch(NamedTuple):
    """The fields of a `Launch` that events need; of a million, making it takes half as long."""

    seq: int
    process: int
    rank: int
    id: int
    kernel: str
    mode: str
    grid: tuple[int, int, int]
    options: Mapping[str, object]
    arguments: tuple[ArgumentInfo, ...]
    stream: int
    start_ns: int
    scopes: tuple[str, ...]
    duration_ns: int | None
    error: str | None
    time_source: str | None
    device_start_ns: int | None
    device: int | None
    device_stream: int | None


class _ArgumentTexts:
    """The text of a launch's arguments, made once for arguments that many launches share."""

    def __init__(self) -> None:
        # By identity, which lasts because the arguments are kept.
        self._known: dict[int, tuple[tuple[ArgumentInfo, ...], dict[str, str]]] = {}

    def of(self, arguments: tuple[ArgumentInfo, ...]) -> dict[str, str]:
        """Texts by name."""
        found = self._known.get(id(arguments))
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = arguments, {a.name: _argument(a) for a in arguments}
            self._known[id(arguments)] = found
        return found[1]


def _event(
    launch: _Launch, start_ns: int, faults: list[str], texts: _ArgumentTexts
) -> dict[str, object]:
    details: dict[str, object] = {
        "launch": launch.id,
        "grid": launch.grid,
        "arguments": texts.of(launch.arguments),
        "options": launch.options,
    }
    if launch.time_source is not None:
        details["time_source"] = launch.time_source
    if launch.scopes:
        details["scopes"] = launch.scopes
    if launch.error is not None:
        details["error"] = launch.error
    if faults:
        details["faults"] = faults
    event = {
        "ph": "X",
        "name": launch.kernel,
        "cat": launch.mode,
        "pid": launch.process,
        "ts": start_ns / 1e3,
        "args": details,
    }
    if launch.duration_ns is None:
        event["ph"] = "B"  # its end was not recorded
    else:
        event["dur"] = launch.duration_ns / 1e3
    return event


def _argument(argument: ArgumentInfo) -> str:
    if argument.shape is None:
        return f"{argument.type} = {argument.value}"
    return f"{argument.type} {list(argument.shape)}"
