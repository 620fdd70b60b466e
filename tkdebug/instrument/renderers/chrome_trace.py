"""The launches as a Chrome trace, which Perfetto and chrome://tracing open: a track per stream.

A thread that entered scopes has a track, too; its scopes are times of the host.

The format is Google's "Trace Event Format"; times in it are microseconds, here since the run began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tkdebug.events import ArgumentInfo
from tkdebug.instrument.json_text import json_text
from tkdebug.instrument.records import FaultGroup, Launch, RunInfo, ScopeSpan
from tkdebug.instrument.renderers.json_format import recorded_launches
from tkdebug.instrument.session import Session

Track = tuple[int, int]  # process, stream


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
    free_ns: dict[Track, int] = {}
    yield '{"displayTimeUnit": "ns", "traceEvents": ['
    separator = "\n"
    for launch in recorded_launches(session):
        track = (launch.process, launch.stream)
        if track not in free_ns:
            for event in _names(run, launch, is_new=all(p != track[0] for p, _ in free_ns)):
                yield separator + json_text(event)
                separator = ",\n"
        # Launches are queued before the GPU gets to them, and a stream runs them in turn.
        start_ns = max(launch.start_ns, free_ns.get(track, 0))
        free_ns[track] = start_ns + (launch.duration_ns or 0)
        told = first_faults.get((launch.process, launch.id), [])
        yield separator + json_text(_event(launch, start_ns - run.start_ns, told))
        separator = ",\n"
    for event in _scope_events(session, run):
        yield separator + json_text(event)
        separator = ",\n"
    yield "]}\n"


def _names(run: RunInfo, launch: Launch, is_new: bool) -> Iterator[dict[str, object]]:
    """What the tracks of `launch` are called."""
    if is_new:
        name = f"{run.script}, rank {launch.rank}" if launch.rank else run.script
        yield {
            "ph": "M",
            "name": "process_name",
            "pid": launch.process,
            "args": {"name": name},
        }
    yield _track_name(launch.process, launch.stream, f"stream {launch.stream}")


def _scope_events(session: Session, run: RunInfo) -> Iterator[dict[str, object]]:
    threads: set[Track] = set()
    since = 0
    while page := session.records(ScopeSpan, since):
        for recorded in page:
            scope = recorded.event
            track = (recorded.process, scope.thread)
            if track not in threads:
                threads.add(track)
                yield _track_name(*track, f"scopes of thread {scope.thread}")
            yield {
                "ph": "X",
                "name": scope.name,
                "cat": "scope",
                "pid": recorded.process,
                "tid": scope.thread,
                "ts": (scope.start_ns - run.start_ns) / 1e3,
                "dur": max(0, scope.end_ns - scope.start_ns) / 1e3,
                "args": dict(scope.metrics),
            }
        since = page[-1].seq


def _track_name(process: int, track: int, name: str) -> dict[str, object]:
    return {
        "ph": "M",
        "name": "thread_name",
        "pid": process,
        "tid": track,
        "args": {"name": name},
    }


def _event(launch: Launch, start_ns: int, faults: list[str]) -> dict[str, object]:
    details: dict[str, object] = {
        "launch": launch.id,
        "grid": launch.grid,
        "arguments": {a.name: _argument(a) for a in launch.arguments},
        "options": dict(launch.options),
    }
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
        "tid": launch.stream,
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
