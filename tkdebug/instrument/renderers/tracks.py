"""The launches of each stream in order of time, as programs that draw stacks want them.

Launches of a stream follow each other; where recorded times overlap by rounding, the later one
begins where the earlier ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tkdebug.instrument.records import Launch
from tkdebug.instrument.renderers.json_format import recorded_launches
from tkdebug.instrument.renderers.trace_tracks import host_track_name
from tkdebug.instrument.session import Session


@dataclass(frozen=True, slots=True, order=True)
class Track:
    """One stream of one process.

    Attributes:
        device: None where the GPU's clock did not time it.
        mode: of its launches, "" where the GPU's clock timed them.
    """

    process: int
    rank: int
    stream: int
    device: int | None
    mode: str = ""

    @property
    def name(self) -> str:
        """For people."""
        where = f"GPU {self.device}, stream {self.stream}"
        if self.device is None:
            where = host_track_name(self.mode, self.stream)
        rank = f"rank {self.rank}, " if self.rank else ""
        return f"{rank}{where}, process {self.process}"


@dataclass(frozen=True, slots=True)
class TimedLaunch:
    """A launch that was timed.

    Attributes:
        start_ns: since the run began.
        end_ns: alike.
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
