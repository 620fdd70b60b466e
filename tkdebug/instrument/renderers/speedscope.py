"""The launches for speedscope: a profile for each stream, scopes of the script around kernels.

The format is speedscope's "evented" one (its `file-format-schema.json`): frames are opened and
closed in order of time, and an inner one is closed before the one around it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tkdebug.instrument.json_text import json_text
from tkdebug.instrument.records import FaultGroup
from tkdebug.instrument.renderers.json_format import recorded_launches
from tkdebug.instrument.renderers.tracks import Track, timed_launches, timed_tracks
from tkdebug.instrument.session import Session

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
Frames = dict[tuple[str, str, int], int]


def render(session: Session, faults: tuple[FaultGroup, ...]) -> Iterator[str]:
    """The document in pieces of text; faults are not in it."""
    frames = _frames(session)
    places = [_frame(*key) for key in frames]
    head = {
        "$schema": _SCHEMA,
        "exporter": "tkdebug",
        "name": session.run().script,
        "activeProfileIndex": 0,
        "shared": {"frames": places},
    }
    yield json_text(head)[:-1] + ',\n"profiles": ['
    separator = "\n"
    for track in timed_tracks(session):
        yield separator
        yield from _profile(session, track, frames)
        separator = ",\n"
    yield "]}\n"


def _frames(session: Session) -> Frames:
    """A number for each kernel, with its file and line, and each scope."""
    places = {kernel.hash: (kernel.file, kernel.line) for kernel in session.kernels()}
    frames: Frames = {}
    for launch in recorded_launches(session):
        for scope in launch.scopes:
            frames.setdefault((scope, "", 0), len(frames))
        file, line = places.get(launch.kernel_hash, ("", 0))
        frames.setdefault((launch.kernel, file, line), len(frames))
    return frames


def _frame(name: str, file: str, line: int) -> dict[str, object]:
    return {"name": name, **({"file": file, "line": line} if file else {})}


def _profile(session: Session, track: Track, frames: Frames) -> Iterator[str]:
    places = {kernel.hash: (kernel.file, kernel.line) for kernel in session.kernels()}
    first = last = None
    yield '{"events": ['
    separator = "\n"
    open_scopes: tuple[str, ...] = ()
    for timed in timed_launches(session, track):
        first = timed.start_ns if first is None else first
        scopes = timed.launch.scopes
        kept = _common(open_scopes, scopes)
        closed = [_event("C", frames[s, "", 0], last or 0) for s in reversed(open_scopes[kept:])]
        opened = [_event("O", frames[s, "", 0], timed.start_ns) for s in scopes[kept:]]
        file, line = places.get(timed.launch.kernel_hash, ("", 0))
        frame = frames[timed.launch.kernel, file, line]
        of_kernel = [_event("O", frame, timed.start_ns), _event("C", frame, timed.end_ns)]
        for event in (*closed, *opened, *of_kernel):
            yield separator + event
            separator = ",\n"
        open_scopes, last = scopes, timed.end_ns
    for scope in reversed(open_scopes):
        yield separator + _event("C", frames[scope, "", 0], last or 0)
    head = {
        "type": "evented",
        "name": track.name,
        "unit": "nanoseconds",
        "startValue": first or 0,
        "endValue": last or 0,
    }
    yield "]," + json_text(head)[1:]


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


def _event(kind: str, frame: int, at_ns: int) -> str:
    return json_text({"type": kind, "frame": frame, "at": at_ns})
