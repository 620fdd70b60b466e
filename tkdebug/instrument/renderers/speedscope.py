"""The launches for speedscope: a profile for each stream, scopes of the script around kernels.

The format is speedscope's "evented" one (its `file-format-schema.json`): frames are opened and
closed in order of time, and an inner one is closed before the one around it. Launches of a stream
follow each other; where recorded times overlap by rounding, the later one begins where the earlier
ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tkdebug.instrument.records import FaultGroup, Launch
from tkdebug.instrument.renderers.json_format import recorded_launches
from tkdebug.instrument.renderers.trace_tracks import host_track_name
from tkdebug.instrument.session import Session
from tkdebug.instrument.text_forms import json_text

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


@dataclass(frozen=True, slots=True, order=True)
class Track:
    """One stream of one process.

    Attributes:
        device: None if the GPU's clock did not time it.
        mode: the mode of its launches, "" if the GPU's clock timed them.
    """

    process: int
    rank: int
    stream: int
    device: int | None
    mode: str = ""

    @property
    def name(self) -> str:
        """The track's name for people."""
        where = f"GPU {self.device}, stream {self.stream}"
        if self.device is None:
            where = host_track_name(self.mode, self.stream)
        rank = f"rank {self.rank}, " if self.rank else ""
        return f"{rank}{where}, process {self.process}"


@dataclass(frozen=True, slots=True)
class TimedLaunch:
    """A launch that was timed.

    Attributes:
        start_ns: the start of the launch, since the run began.
        end_ns: the end of the launch, since the run began.
    """

    launch: Launch
    start_ns: int
    end_ns: int


def track_of(launch: Launch) -> Track:
    """The track of a launch."""
    if launch.device_start_ns is None:
        return Track(launch.process, launch.rank, launch.stream, None, launch.mode)
    return Track(launch.process, launch.rank, launch.device_stream or 0, launch.device)


def timed_tracks(session: Session) -> tuple[Track, ...]:
    """The tracks that have timed launches, in the order in which these began."""
    launches = recorded_launches(session)
    return tuple(dict.fromkeys(track_of(x) for x in launches if x.duration_ns is not None))


def timed_launches(session: Session, track: Track) -> Iterator[TimedLaunch]:
    """The timed launches of a track, one after the other."""
    run_ns = session.run().start_ns
    free_ns = 0
    for launch in recorded_launches(session):
        if launch.duration_ns is None or track_of(launch) != track:
            continue
        began_ns = launch.start_ns if launch.device_start_ns is None else launch.device_start_ns
        start_ns = max(began_ns - run_ns, free_ns)
        free_ns = start_ns + launch.duration_ns
        yield TimedLaunch(launch, start_ns, free_ns)
